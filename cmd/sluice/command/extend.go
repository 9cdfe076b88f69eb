// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/extension"
	"sluice.dev/cmd/sluice/show"
)

// lookEvery is how often a decision is looked for.
const lookEvery = 500 * time.Millisecond

func extendCommand() *cobra.Command {
	var options connect.Options
	var by, reason, output string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "extend KIND/NAME",
		Short: "Ask for more time for a workload, or for the renewal of a project",
		Long: `extend asks for more time, and waits a while for the answer. What your department
grants by itself is granted at once; on everything else somebody decides. It ends
with an error where the answer is no.`,
		Example: `  sluice extend job/training -n thesis-mueller --by 24h --reason "two epochs are left"
  sluice extend project/thesis-mueller --reason "the defence is in June"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var length period.Duration
			var err error
			if by != "" {
				if length, err = period.ParseDuration(by); err != nil {
					return fmt.Errorf("--by: %w", err)
				}
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			target, err := extension.Find(cmd.Context(), c, c.Namespace, args[0])
			if err != nil {
				return err
			}
			asked, err := extension.New(target, length, reason)
			if err != nil {
				return err
			}
			if err := extension.Ask(cmd.Context(), c, asked, extension.Patience{Within: within, Every: lookEvery}); err != nil {
				return err
			}
			return answer(cmd, asked, output)
		},
	}
	clusterFlags(cmd, &options)
	namespaceFlag(cmd, &options)
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "", "how much more time a workload shall have, such as 24h; a project takes none")
	flags.StringVar(&reason, "reason", "", "why, in a sentence")
	flags.DurationVar(&within, "wait", 30*time.Second, "how long to wait for the answer; 0 for not at all")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// answer says what became of an Extension; a refusal is an error.
func answer(cmd *cobra.Command, asked *v1alpha1.Extension, form string) error {
	outcome := extension.Outcome(asked, time.Local)
	if form == "json" {
		if err := show.JSON(cmd.OutOrStdout(), extension.RowOf(asked)); err != nil {
			return err
		}
	}
	if asked.Status.Decision == v1alpha1.ExtensionRefused {
		return fmt.Errorf("extension %s was %s", asked.Name, outcome)
	}
	if form == "json" {
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "extension %s: %s\n", asked.Name, outcome)
	if asked.Status.Decision == "" {
		fmt.Fprintf(cmd.OutOrStdout(), "to see later what became of it: kubectl get slext %s -n %s\n", asked.Name, asked.Namespace)
	}
	return nil
}
