// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/up"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/mailsink"
)

func upCommand() *cobra.Command {
	var options up.Options
	var buildOnly bool
	var pace scaleFlag
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a real Kubernetes with Sluice on simulated DGX nodes, on this machine",
		Long: `up runs a real Kubernetes on loopback (etcd, kube-apiserver,
kube-controller-manager, kube-scheduler), simulated DGX nodes, Sluice's
components, each under its own rights, and a sample university. With
--scheduler kueue, Kueue runs there as well, and four teams share sixteen GPUs.

The first time it builds Kubernetes from its Go modules, which takes minutes;
after that it starts within seconds. It stays in the foreground until it is
interrupted, and then keeps its data for the next time; with --detach it goes on
in the background until ` + "`sluice down`" + `.`,
		Example: `  sluice up --detach
  export KUBECONFIG=.sluice/kubeconfig
  kubectl get slpool,sldept,slproj
  sluice up --detach --dir fair --scheduler kueue`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Output = cmd.OutOrStdout()
			options.TimeScale = float64(pace)
			if buildOnly {
				_, err := up.Prepare(cmd.Context(), options.Output, options.Scheduler)
				return err
			}
			options.NodesUnset = !cmd.Flags().Changed("nodes")
			if runs, err := up.CheckRunning(options); runs || err != nil {
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
	flags.BoolVarP(&options.Detach, "detach", "d", false, "return once everything is ready, and leave it running")
	flags.StringVar(&options.Scheduler, "scheduler", "", "who decides whose turn it is, by `name`: "+strings.Join(up.Schedulers, " or ")+" (default: the one it had before, or the first)")
	flags.IntVar(&options.Nodes, "nodes", up.DefaultNodes, fmt.Sprintf("how many simulated nodes: odd ones with whole GPUs, even ones in MIG mode; with kueue %d unless said, every third in MIG mode", up.DefaultNodesKueue))
	flags.IntVar(&options.Port, "port", 0, "the API server's `port` on 127.0.0.1 (default: the one it had before, or a free one)")
	flags.Var(&pace, "time-scale", "how many times as fast as real time policy time runs, 1 to 3600 (default: as before, at first 1)")
	flags.BoolVar(&buildOnly, "build-only", false, "build what is needed, and start nothing")
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop what `sluice up` started, and remove it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up.Down(cmd.Context(), dir, keep, cmd.OutOrStdout())
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the folder, so that the next `sluice up` finds everything again")
	return cmd
}

func statusCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what `sluice up` runs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q: want json, or nothing for a screen", output)
			}
			absolute, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			report, err := up.Status(absolute)
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), report)
			}
			return up.WriteReport(cmd.OutOrStdout(), report)
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for a machine")
	return cmd
}

// simulateCommand holds the parts of the simulation, of hardware and mail, that are processes of their
// own under `sluice up`. People do not call them, so help does not list them.
func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "simulate",
		Short:  "Play a part of what surrounds Sluice",
		Hidden: true,
	}
	cmd.AddCommand(fakekubeletCommand(), mailsinkCommand())
	return cmd
}

func fakekubeletCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "kubelet",
		Short: "Play the kubelet's device manager and the device plugin of the simulated nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := fakekubelet.LoadConfig(path)
			if err != nil {
				return err
			}
			return fakekubelet.Run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "path of the configuration `file`, of kind FakeKubeletConfig")
	return cmd
}

func mailsinkCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Play the mail server, which keeps each mail as a file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := mailsink.LoadConfig(path)
			if err != nil {
				return err
			}
			return mailsink.Run(cmd.Context(), cfg, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "path of the configuration `file`, of kind MailSinkConfig")
	return cmd
}
