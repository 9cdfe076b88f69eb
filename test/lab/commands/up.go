// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/test/lab/up"
)

// defaultDir is the folder of the embedded cluster that up and down use.
const defaultDir = ".sluice"

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir, "Folder of the cluster: data, keys, kubeconfig and logs")
}

func newUpCommand() *cobra.Command {
	var options up.Options
	var scale scaleFlag
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a Kubernetes cluster with Sluice on this machine",
		Long: `Run a Kubernetes cluster with Sluice on this machine, on loopback only: etcd,
kube-apiserver, kube-controller-manager and kube-scheduler, simulated DGX nodes,
Sluice's components, each under its own ServiceAccount, and a sample university.
With --scheduler kueue the cluster also runs Kueue, and four teams share its GPUs.

The first run builds Kubernetes from its Go modules, which takes minutes, unless
the folder KUBEBUILDER_ASSETS has its programs. Later runs start within seconds. The cluster runs until you interrupt the command, and
keeps its data for the next run. With --detach it runs in the background until
` + "`sluice down`" + `.

` + "`sluice install`" + ` installs Sluice in a cluster of your kubeconfig instead.`,
		Example: `  # Run a cluster in the background and use it
  sluice up --detach
  export KUBECONFIG=.sluice/kubeconfig
  kubectl get slpool,sldept,slproj

  # Run a cluster with Kueue in another folder
  sluice up --detach --dir fair --scheduler kueue`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runtime.GOOS != "linux" {
				return fmt.Errorf("the embedded cluster needs Linux, since its pods are Linux programs, and this machine runs %s: "+
					"use a Linux machine, or install Sluice in a cluster with `sluice install`", runtime.GOOS)
			}
			options.Output = cmd.OutOrStdout()
			options.TimeScale = float64(scale)
			options.NodesUnset = !cmd.Flags().Changed("nodes")
			if running, err := up.CheckRunning(options); running || err != nil {
				return err
			}
			if options.Detach {
				return up.Detach(cmd.Context(), options)
			}
			return up.Run(cmd.Context(), options, up.NewReadyFunc(options.Dir))
		},
	}
	addDirFlag(cmd, &options.Dir)
	flags := cmd.Flags()
	flags.BoolVarP(&options.Detach, "detach", "d", false, "Run in the background, and return when the cluster is ready")
	flags.StringVar(&options.Scheduler, "scheduler", "",
		"Scheduler of the cluster: "+strings.Join(up.Schedulers, " or ")+" (default: the cluster's own, or "+up.Schedulers[0]+")")
	flags.IntVar(&options.Nodes, "nodes", up.DefaultNodes,
		fmt.Sprintf("Number of simulated nodes; every second node has its GPUs in MIG mode. With kueue the default is %d, "+
			"and every third node has", up.DefaultNodesKueue))
	flags.IntVar(&options.Port, "port", 0, "Port of the API server on 127.0.0.1 (default: the cluster's own, or a free port)")
	flags.Var(&scale, "time-scale", "Speed of policy time, 1 to 3600 times real time (default: the cluster's own, or 1)")
	flags.IntVar(&options.Replicas.Webhook, "webhook-replicas", 0, "Number of pods of the webhook (default 1)")
	flags.IntVar(&options.Replicas.Lifecycle, "lifecycle-replicas", 0, "Number of pods of lifecycle, of which one is active (default 1)")
	return cmd
}

func newDownCommand() *cobra.Command {
	var dir string
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop and remove a cluster that `sluice up` runs",
		Long:  "Stop a cluster that `sluice up` runs, and remove its folder.",
		Example: `  # Stop and remove the cluster in .sluice
  sluice down

  # Stop it, and keep its data for the next run
  sluice down --keep`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up.Down(cmd.Context(), dir, keep, cmd.OutOrStdout())
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&keep, "keep", false, "Keep the folder, so that the next `sluice up` continues with its data")
	return cmd
}

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the components of an embedded cluster",
		Long:  "Show the components, nodes, mail and policy time of a cluster that `sluice up` runs.",
		Example: `  # Show the cluster of the current kubeconfig
  sluice status

  # Show the cluster of a folder as JSON
  sluice status --dir .sluice -o json`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd)
	output := addOutputFlag(cmd, "text")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := cluster.embeddedDir()
		if err != nil {
			return err
		}
		report, err := up.Status(dir)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), report, func(output io.Writer) error { return up.WriteReport(output, report) })
	}
	return cmd
}
