// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/up"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/mailsink"
)

// defaultDir is the folder of the embedded cluster that up and down use.
const defaultDir = ".sluice"

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir, "Folder of the cluster: data, keys, kubeconfig and logs")
}

func newUpCommand() *cobra.Command {
	var options up.Options
	var buildOnly bool
	var scale scaleFlag
	var other *contextFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a Kubernetes cluster with Sluice on this machine",
		Long: `Run a Kubernetes cluster with Sluice on this machine, on loopback only: etcd,
kube-apiserver, kube-controller-manager and kube-scheduler, simulated DGX nodes,
Sluice's components, each under its own ServiceAccount, and a sample university.
With --scheduler kueue the cluster also runs Kueue, and four teams share its GPUs.

The first run builds Kubernetes from its Go modules, which takes minutes, unless
KUBEBUILDER_ASSETS or PATH has its programs in a version that Sluice supports. Later
runs start within seconds. The cluster runs until you interrupt the command, and
keeps its data for the next run. With --detach it runs in the background until
` + "`sluice down`" + `.

With --context the command starts no cluster. It installs Sluice's manifests in the
cluster of that context, after it has shown the cluster and asked. Without --context it
reads no kubeconfig.`,
		Example: `  # Run a cluster in the background and use it
  sluice up --detach
  export KUBECONFIG=.sluice/kubeconfig
  kubectl get slpool,sldept,slproj

  # Run a cluster with Kueue in another folder
  sluice up --detach --dir fair --scheduler kueue

  # Install Sluice in a cluster of your kubeconfig
  sluice up --context test --image-registry registry.example.org/sluice --image-tag v0.1.0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if set, err := other.isSet(cmd); err != nil {
				return err
			} else if set {
				other.Replicas = options.Replicas
				return other.install(cmd)
			}
			if runtime.GOOS != "linux" {
				return fmt.Errorf("the embedded cluster needs Linux, since its pods are Linux programs, and this machine runs %s: "+
					"use a Linux machine, or install Sluice in a cluster with --context", runtime.GOOS)
			}
			options.Output = cmd.OutOrStdout()
			options.TimeScale = float64(scale)
			options.NodesUnset = !cmd.Flags().Changed("nodes")
			if buildOnly {
				_, err := up.Build(cmd.Context(), options)
				return err
			}
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
	flags.IntVar(&options.Replicas.Webhook, "webhook-replicas", 0, "Number of pods of the webhook (default 1; with --context: that of the overlay)")
	flags.IntVar(&options.Replicas.Lifecycle, "lifecycle-replicas", 0, "Number of pods of lifecycle, of which one is active (default 1; with --context: that of the overlay)")
	flags.BoolVar(&options.Pinned, "pinned", false,
		"Run the versions of Kubernetes and etcd that Sluice is tested with, also where others are installed")
	flags.BoolVar(&buildOnly, "build-only", false, "Only build the programs of the cluster")
	other = addContextFlags(cmd)
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
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
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

// newSimulateCommand returns the hidden commands of the simulation, which `sluice
// up` runs as processes.
func newSimulateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "simulate", Short: "Run a part of the simulation", Hidden: true}
	cmd.AddCommand(newSimulateKubeletCommand(), newSimulateMailCommand())
	return cmd
}

func newSimulateKubeletCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kubelet", Short: "Run the kubelets and device plugins of the simulated nodes", Args: cobra.NoArgs}
	path := cmd.Flags().String("config", "", "Path of a `file` of kind FakeKubeletConfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := fakekubelet.LoadConfig(*path)
		if err != nil {
			return err
		}
		return fakekubelet.Run(cmd.Context(), config)
	}
	return cmd
}

func newSimulateMailCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mail", Short: "Run a mail server that keeps each mail as a file", Args: cobra.NoArgs}
	path := cmd.Flags().String("config", "", "Path of a `file` of kind MailSinkConfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := mailsink.LoadConfig(*path)
		if err != nil {
			return err
		}
		return mailsink.Run(cmd.Context(), config, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	}
	return cmd
}
