// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/library"
	"sluice.dev/policies/workbench"
)

func newPolicyNewCommand() *cobra.Command {
	var kind, from, directory string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the files of a new policy",
		Long: `Write the files of a new policy that you can change: the object (NAME.yaml), its Rego (NAME.rego), unit tests
(NAME_test.rego) and cases (NAME.case.yaml). They pass sluice policy test and sluice policy lint.

The kind is the rule that the policy defines: deny refuses objects, default fills fields that the author left
open, override replaces the author's values, and append adds to a list. With --from the files are those of a policy
of the library, under the new name. No file is overwritten.`,
		Example: `  # A policy that refuses pods
  sluice policy new at-most-two-gpus --kind deny --output-dir policies/

  # A policy of the library, to adapt
  sluice policy new course-nodes-a7 --from course-nodes --output-dir policies/`,
		Args: cobra.ExactArgs(1),
	}
	kind = workbench.ScaffoldKinds[0]
	addChoiceFlag(cmd, &kind, "kind", "", "Kind of policy", workbench.ScaffoldKinds)
	cmd.Flags().StringVar(&from, "from", "", "Policy of the library: "+strings.Join(library.Names(), ", "))
	completeFlag(cmd, "from", cobra.FixedCompletions(library.Names(), cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagsMutuallyExclusive("kind", "from")
	cmd.Flags().StringVar(&directory, "output-dir", ".", "Directory to write to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		files, err := workbench.Scaffold(args[0], kind)
		if from != "" {
			files, err = library.Copy(from, args[0])
		}
		if err != nil {
			return err
		}
		written, err := writePolicyFiles(directory, files, refuseExisting, "choose another name or another directory")
		printWritten(cmd.OutOrStdout(), written)
		return err
	}
	return cmd
}

// printWritten prints the paths of files that were written.
func printWritten(output io.Writer, paths []string) {
	for _, path := range paths {
		fmt.Fprintln(output, printer.Sanitize("Wrote "+path))
	}
}
