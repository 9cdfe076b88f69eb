// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/build"
)

// controlPlane is the output of control-plane.
type controlPlane struct {
	Dir        string `json:"dir"`
	Kubeconfig string `json:"kubeconfig"`
}

func newControlPlaneCommand() *cobra.Command {
	var dir string
	var arguments []string
	cmd := &cobra.Command{
		Use:   "control-plane",
		Short: "Run a control plane without nodes, for tests",
		Long: `Run etcd and Kubernetes' API server, controllers and scheduler. When pods can be created, the command prints
the cluster's folder and the administrator's kubeconfig as one line of JSON. It runs until its standard
input closes, and then removes the folder.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := cluster.Options{Dir: dir, Progress: cmd.ErrOrStderr(), ExtraArgs: map[string][]string{}}
			for _, argument := range arguments {
				component, value, found := strings.Cut(argument, "=")
				if !found {
					return fmt.Errorf("--argument %s: want COMPONENT=ARGUMENT, such as kube-apiserver=--v=2", argument)
				}
				options.ExtraArgs[component] = append(options.ExtraArgs[component], value)
			}
			return runControlPlane(cmd.Context(), options, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "Folder of the cluster (default: a temporary one)")
	cmd.Flags().StringArrayVar(&arguments, "argument", nil, "Further argument of a component, as COMPONENT=ARGUMENT; may be repeated")
	return cmd
}

// runControlPlane runs a control plane until input or ctx ends.
func runControlPlane(ctx context.Context, options cluster.Options, input io.Reader, output io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, input) // the end of the caller, however it ends, ends its input
		cancel()
	}()
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(output).Encode(controlPlane{Dir: c.Dir(), Kubeconfig: c.Kubeconfig()}); err != nil {
		cancel()
	}
	<-ctx.Done()
	return c.Stop()
}

func newProgramsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "programs [NAME...]",
		Short: "Build programs of the cluster, and print their paths",
		Long: `Build programs unless they are in the cache, and print their paths, one a line. Without names, build those of the
embedded Kubernetes and print nothing.`,
		Args:      cobra.OnlyValidArgs,
		ValidArgs: []string{build.Kueue, build.Helm, build.Prometheus, build.Promtool},
		Hidden:    true,
		RunE: func(cmd *cobra.Command, names []string) error {
			requested := names
			if len(names) == 0 {
				requested = build.Names()
			}
			paths, err := build.Programs(cmd.Context(), cmd.ErrOrStderr(), requested...)
			if err != nil {
				return err
			}
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), paths[name])
			}
			return nil
		},
	}
}
