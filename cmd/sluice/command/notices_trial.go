// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/notices"
	"sluice.dev/cmd/sluice/show"
)

// Bounds of how long a test mail is waited for.
const (
	shortestTestWait = time.Second
	longestTestWait  = time.Hour
)

func noticesTestCommand() *cobra.Command {
	var options connect.Options
	var language, output string
	test := notices.Test{}
	cmd := &cobra.Command{
		Use:   "test ADDRESS",
		Short: "Send a test mail, and say what became of it",
		Long: `test asks for one mail to one address, waits until the mail server has taken it,
and says each step. It fails where it is not sent in time, with why and what to do.
It goes before all mail that waits, within the rates. The mail says that it is a
test, where it comes from and when it was asked for, and nothing else.`,
		Example: `  sluice notices test anna.mueller@example.org
  sluice notices test anna.mueller@example.org --language de --timeout 5m -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if language != string(v1alpha1.LanguageGerman) && language != string(v1alpha1.LanguageEnglish) {
				return fmt.Errorf("--language %q: want de or en", language)
			}
			if test.Timeout < shortestTestWait || test.Timeout > longestTestWait {
				return fmt.Errorf("--timeout %s: want %s to %s", test.Timeout, shortestTestWait, longestTestWait)
			}
			if err := notices.CheckAddress(args[0]); err != nil {
				return err
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			test.Address, test.Language, test.Now = args[0], v1alpha1.Language(language), c.Clock.Now()
			test.Progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), step) }
			tested, err := test.Run(cmd.Context(), c)
			if err != nil && !errors.Is(err, notices.ErrNotSent) {
				return err
			}
			if output == "json" {
				if failed := show.JSON(cmd.OutOrStdout(), tested); failed != nil {
					return failed
				}
				return err
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(tested.Text(time.Local)))
			}
			fmt.Fprint(cmd.OutOrStdout(), tested.Text(time.Local))
			return nil
		},
	}
	clusterFlags(cmd, &options)
	cmd.Flags().StringVar(&language, "language", string(v1alpha1.LanguageEnglish), "the mail's `language`: de, en")
	cmd.Flags().DurationVar(&test.Timeout, "timeout", time.Minute, "how `long` to wait, 1s to 1h")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
