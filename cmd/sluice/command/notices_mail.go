// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/notices"
	"sluice.dev/cmd/sluice/show"
)

func noticesPauseCommand() *cobra.Command {
	var reason string
	cmd := changeMailCommand(func(ctx context.Context, c *connect.Cluster) (notices.State, error) {
		return notices.Pause(ctx, c, reason, time.Now())
	})
	cmd.Use, cmd.Short = "pause", "Have no mail sent until it is resumed"
	cmd.Long = "pause has no mail sent until somebody resumes it. What is due waits; deadlines do not."
	cmd.Example = `  sluice notices pause --reason "the mail server moves"`
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a `sentence`")
	return cmd
}

func noticesResumeCommand() *cobra.Command {
	cmd := changeMailCommand(func(ctx context.Context, c *connect.Cluster) (notices.State, error) {
		return notices.Resume(ctx, c)
	})
	cmd.Use, cmd.Short = "resume", "Have mail sent again, all that waits first"
	cmd.Example = "  sluice notices resume"
	return cmd
}

// changeMailCommand is a command that changes whether mail is sent.
func changeMailCommand(change func(context.Context, *connect.Cluster) (notices.State, error)) *cobra.Command {
	var options connect.Options
	var output string
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			state, err := change(cmd.Context(), c)
			if err != nil {
				return err
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), state)
			}
			fmt.Fprint(cmd.OutOrStdout(), state.Text(time.Local))
			return nil
		},
	}
	clusterFlags(cmd, &options)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
