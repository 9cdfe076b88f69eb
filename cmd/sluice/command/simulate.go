// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"

	"sluice.dev/test/cluster/fakekubelet"
)

// simulateCommand holds the parts of the simulation that are processes of their
// own under `sluice up`. People do not call them, so help does not list them.
func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "simulate",
		Short:  "Play a part of the simulated hardware",
		Hidden: true,
	}
	cmd.AddCommand(fakekubeletCommand())
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
