// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice.dev/policies/engine"
)

// typingErrors is the number of letters in which a similar name may differ.
const typingErrors = 2

// explainMisuse adds to the errors of wrong arguments and flags how the commands below root are used. Cobra itself
// suggests similar names only for the commands of root.
func explainMisuse(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		meant := ""
		if similar := similarFlag(cmd, err); similar != "" {
			meant = "did you mean --" + similar + "? "
		}
		return fmt.Errorf("%w; %s`%s --help` lists its flags", err, meant, cmd.CommandPath())
	})
	for _, cmd := range root.Commands() {
		explainArguments(cmd)
	}
}

// similarFlag returns the flag of a command that is meant by one that does not exist, or "".
func similarFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	return engine.NearestWord(unknown.GetSpecifiedName(), names, typingErrors)
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
	cmd.SuggestionsMinimumDistance = typingErrors
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return "did you mean `" + cmd.CommandPath() + " " + similar[0] + "`?"
	}
	return "`" + cmd.CommandPath() + " --help` lists its commands"
}
