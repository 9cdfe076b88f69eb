// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/up"
)

func upCommand() *cobra.Command {
	var options up.Options
	var buildOnly bool
	var pace scale
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
			options.AnyNodes = !cmd.Flags().Changed("nodes")
			if runs, err := up.Already(options); runs || err != nil {
				return err
			}
			if options.Detach {
				return up.Detach(cmd.Context(), options)
			}
			return up.Run(cmd.Context(), options, up.Ready(options.Dir))
		},
	}
	dirFlag(cmd, &options.Dir)
	flags := cmd.Flags()
	flags.BoolVarP(&options.Detach, "detach", "d", false, "return once everything is ready, and leave it running")
	flags.StringVar(&options.Scheduler, "scheduler", "", "who decides whose turn it is, by `name`: "+strings.Join(up.Schedulers, " or ")+" (default: the one it had before, or the first)")
	flags.IntVar(&options.Nodes, "nodes", up.DefaultNodes, fmt.Sprintf("how many simulated nodes: odd ones with whole GPUs, even ones in MIG mode; with kueue %d unless said, every third in MIG mode", up.DefaultNodesKueue))
	flags.IntVar(&options.Port, "port", 0, "the API server's `port` on 127.0.0.1 (default: the one it had before, or a free one)")
	flags.Var(&pace, "time-scale", "how many times as fast as real time policy time runs, 1 to 3600 (default: as before, at first 1)")
	flags.BoolVar(&buildOnly, "build-only", false, "build what is needed, and start nothing")
	return cmd
}
