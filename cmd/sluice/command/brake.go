// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/brake"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/show"
)

func brakeCommand() *cobra.Command {
	var options connect.Options
	var output string
	cmd := &cobra.Command{
		Use:   "brake",
		Short: "Show the brake, or release it",
		Long: `brake shows whether the brake is engaged. It is where very many workloads would be
stopped within an hour, which is a mistake in somebody's limits far more often than
it is meant: then none is, until an administrator releases the brake.`,
		Example: `  sluice brake
  sluice brake release --for 2h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			report, err := brake.Read(cmd.Context(), c, c.Clock.Now())
			if err != nil {
				return err
			}
			return showBrake(cmd.OutOrStdout(), report, output)
		},
	}
	clusterFlags(cmd, &options)
	outputFlag(cmd, &output, "text", "json")
	cmd.AddCommand(brakeReleaseCommand())
	return cmd
}

func brakeReleaseCommand() *cobra.Command {
	var options connect.Options
	var length, output string
	cmd := &cobra.Command{
		Use:   "release --for DURATION",
		Short: "Have workloads stopped for a while, however many they are",
		Long: `release lets what the brake holds be stopped, for a while of policy time. When that
is over, the brake is engaged again if very many are still to be stopped.`,
		Example: "  sluice brake release --for 2h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length == "" {
				return errors.New("--for: say for how long, such as 2h")
			}
			span, err := brake.ParseLength(length)
			if err != nil {
				return fmt.Errorf("--for: %w", err)
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			report, err := brake.Release(cmd.Context(), c, c.Clock.Now(), span)
			if err != nil {
				return err
			}
			return showBrake(cmd.OutOrStdout(), report, output)
		},
	}
	clusterFlags(cmd, &options)
	cmd.Flags().StringVar(&length, "for", "", "for how long, such as 2h; at most 7d")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func showBrake(output io.Writer, report brake.Report, form string) error {
	if form == "json" {
		return show.JSON(output, report)
	}
	_, err := io.WriteString(output, report.Text(time.Local))
	return err
}
