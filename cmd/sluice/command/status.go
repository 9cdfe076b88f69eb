// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/show"
	"sluice.dev/cmd/sluice/up"
)

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
				return show.JSON(cmd.OutOrStdout(), report)
			}
			return up.Show(cmd.OutOrStdout(), report)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for a machine")
	return cmd
}
