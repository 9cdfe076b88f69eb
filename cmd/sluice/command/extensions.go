// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/extension"
	"sluice.dev/cmd/sluice/show"
)

func extensionsCommand() *cobra.Command {
	var options connect.Options
	var all, decided bool
	var output string
	cmd := &cobra.Command{
		Use:   "extensions",
		Short: "List the extensions that wait for a decision",
		Example: `  sluice extensions -A
  sluice extensions -n thesis-mueller --decided`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atMostOne(all, options.Namespace, ""); err != nil {
				return err
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			rows, err := extension.List(cmd.Context(), c, namespace, decided)
			if err != nil {
				return err
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), map[string][]extension.Row{"extensions": rows})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no extension waits for a decision")
				return nil
			}
			return extension.Table(cmd.OutOrStdout(), rows, all, decided, time.Now())
		},
	}
	clusterFlags(cmd, &options)
	namespaceFlag(cmd, &options)
	allFlag(cmd, &all)
	cmd.Flags().BoolVar(&decided, "decided", false, "those too that were decided")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func approveCommand() *cobra.Command {
	return decideCommand("approve", "Approve an extension", v1alpha1.ExtensionApproved)
}

func refuseCommand() *cobra.Command {
	return decideCommand("refuse", "Refuse an extension", v1alpha1.ExtensionRefused)
}

func decideCommand(name, short string, decision v1alpha1.ExtensionDecision) *cobra.Command {
	var options connect.Options
	var message, output string
	cmd := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    short + ". A decision stands: it cannot be taken back.",
		Example: fmt.Sprintf("  sluice %s job-training-x7k2p -n thesis-mueller --message \"see you on Monday\"", name),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			key := types.NamespacedName{Namespace: c.Namespace, Name: args[0]}
			decided, err := extension.Decide(cmd.Context(), c, key, decision, message)
			if err != nil {
				return err
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), extension.RowOf(decided))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "extension %s (%s) is %s\n", decided.Name, extension.Wish(decided), strings.ToLower(string(decision)))
			return nil
		},
	}
	clusterFlags(cmd, &options)
	namespaceFlag(cmd, &options)
	cmd.Flags().StringVar(&message, "message", "", "what whoever asked shall read")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
