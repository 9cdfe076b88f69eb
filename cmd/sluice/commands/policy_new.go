// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(library.Names(), cobra.ShellCompDirectiveNoFileComp))
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
		return writeNewFiles(cmd.OutOrStdout(), directory, files)
	}
	return cmd
}

// writeNewFiles writes files to a directory, and none if one of them exists.
func writeNewFiles(output io.Writer, directory string, files map[string]string) error {
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(directory, name)); err == nil {
			return fmt.Errorf("%s exists: choose another name or another directory", filepath.Join(directory, name))
		}
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := writeFileOnce(filepath.Join(directory, name), files[name]); err != nil {
			return err
		}
		fmt.Fprintln(output, printer.Sanitize("Wrote "+filepath.Join(directory, name)))
	}
	return nil
}

// writeFileOnce writes a file that does not exist.
func writeFileOnce(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(file, text); err != nil {
		_ = file.Close() // the first error says more
		return err
	}
	return file.Close()
}
