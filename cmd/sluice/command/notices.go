// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/notices"
	"sluice.dev/cmd/sluice/show"
)

func noticesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "Show who is told what, and have mail sent again, paused or resumed",
		Example: `  sluice notices list --project thesis-mueller
  sluice notices list --phase Failed
  sluice notices test anna.mueller@example.org
  sluice notices preview WorkloadEnding --language de
  sluice notices pause --reason "the mail server moves"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(noticesListCommand(), noticesShowCommand(), noticesResendCommand(), noticesTestCommand(), noticesPauseCommand(), noticesResumeCommand(), noticesPreviewCommand())
	return cmd
}

func noticesListCommand() *cobra.Command {
	var options connect.Options
	var filter notices.Filter
	var phase, output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the messages that were or will be sent, by when they are due",
		Example: `  sluice notices list --project thesis-mueller
  sluice notices list --recipient anna.mueller@example.org -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if filter.Phase, err = notices.ParsePhase(phase); err != nil {
				return fmt.Errorf("--phase %w", err)
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			rows, err := notices.List(cmd.Context(), c, filter)
			if err != nil {
				return err
			}
			// Who may list notices need not be able to read this.
			state, stateErr := notices.ReadState(cmd.Context(), c)
			if output == "json" {
				document := map[string]any{"notices": rows}
				if stateErr == nil {
					document["mail"] = state
				}
				return show.JSON(cmd.OutOrStdout(), document)
			}
			if stateErr == nil && state.Paused {
				fmt.Fprint(cmd.ErrOrStderr(), state.Text(time.Local))
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "there is no such notice")
				return nil
			}
			return notices.Table(cmd.OutOrStdout(), rows, time.Local)
		},
	}
	clusterFlags(cmd, &options)
	cmd.Flags().StringVar(&filter.Project, "project", "", "those about this `project`")
	cmd.Flags().StringVar(&filter.Recipient, "recipient", "", "those to this `address`")
	cmd.Flags().StringVar(&phase, "phase", "", "those in this `phase`: Pending, Sending, Sent, Failed, Superseded")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func noticesShowCommand() *cobra.Command {
	var options connect.Options
	var output string
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a message, how far it has come, and its mail",
		Example: "  sluice notices show workloadending-training-4f13efbc5eee7150d5e2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			shown, err := notices.Show(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), shown)
			}
			fmt.Fprint(cmd.OutOrStdout(), shown.Text(time.Local))
			return nil
		},
	}
	clusterFlags(cmd, &options)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func noticesResendCommand() *cobra.Command {
	var options connect.Options
	cmd := &cobra.Command{
		Use:   "resend NAME",
		Short: "Have a message sent again that was sent, failed or was set aside",
		Long: `resend asks for one more sending. The mail has the same Message-ID, so that whoever
has it already sees it once.`,
		Example: "  sluice notices resend workloadending-training-4f13efbc5eee7150d5e2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			if err := notices.Resend(cmd.Context(), c, args[0], time.Now()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "notice %s will be sent again\n", args[0])
			if state, err := notices.ReadState(cmd.Context(), c); err == nil && state.Paused {
				fmt.Fprint(cmd.ErrOrStderr(), "but not now: "+state.Text(time.Local))
			}
			return nil
		},
	}
	clusterFlags(cmd, &options)
	return cmd
}
