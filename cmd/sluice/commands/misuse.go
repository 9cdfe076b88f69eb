// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"

	"github.com/spf13/cobra"
)

// explainMisuse adds to the errors of wrong arguments and flags how the commands below root are used. Cobra itself
// suggests similar names only for the commands of root.
func explainMisuse(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; `%s --help` lists its flags", err, cmd.CommandPath())
	})
	for _, cmd := range root.Commands() {
		explainArguments(cmd)
	}
}

func explainArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return fmt.Errorf("%w; %s", err, correctUse(cmd, args))
		}
	}
	for _, child := range cmd.Commands() {
		explainArguments(child)
	}
}

// correctUse returns how a command is used that was called with wrong arguments.
func correctUse(cmd *cobra.Command, args []string) string {
	if !cmd.HasAvailableSubCommands() || len(args) == 0 {
		return "usage: `" + cmd.UseLine() + "`"
	}
	const typingErrors = 2
	cmd.SuggestionsMinimumDistance = typingErrors
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return "did you mean `" + cmd.CommandPath() + " " + similar[0] + "`?"
	}
	return "`" + cmd.CommandPath() + " --help` lists its commands"
}
