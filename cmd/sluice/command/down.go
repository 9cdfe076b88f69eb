// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/up"
)

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
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the folder, so that the next `sluice up` finds everything again")
	return cmd
}
