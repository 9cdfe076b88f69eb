// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/check"
	"sluice.dev/policies/lint"
	"sluice.dev/policies/workbench"
)

// lintFlags are the flags of sluice policy lint.
type lintFlags struct{ strict, fix, codes bool }

func newPolicyLintCommand() *cobra.Command {
	var flags lintFlags
	cmd := &cobra.Command{
		Use:   "lint [DIRECTORY|FILE...]",
		Short: "Find probable errors in policies",
		Long: `Find what the webhook would refuse in the policies of directories or files, rules that never fire or refuse
everything, parameters that no rule reads, comparisons that mean something else, and style. Without
arguments it reads the current directory. A file is read with those beside it: NAME.yaml, NAME.rego,
NAME_test.rego and NAME.case.yaml.

Each finding has a code, a severity (error, warning or style) and a place. A comment
"# sluice:ignore SL104 reason" on its line, or on the line above, removes a warning or a finding of style.
The command fails if there is an error, with --strict also if there is a warning. It needs no cluster.`,
		Example: `  # Find errors in all policies of a directory
  sluice policy lint policies/

  # Rewrite the Rego in the format of opa fmt, in YAML files too
  sluice policy lint policies/ --fix

  # What the codes mean
  sluice policy lint --codes`,
	}
	output := addTextOutputFlag(cmd)
	cmd.Flags().BoolVar(&flags.strict, "strict", false, "Fail on warnings too")
	cmd.Flags().BoolVar(&flags.fix, "fix", false, "Rewrite the Rego in the format of opa fmt")
	cmd.Flags().BoolVar(&flags.codes, "codes", false, "Print the codes instead")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.codes {
			return printCodes(cmd, output)
		}
		process, err := check.NewProcess(check.DefaultLimits)
		if err != nil {
			return err
		}
		targets, err := lintTargets(args)
		if err != nil {
			return err
		}
		findings := []lint.Finding{} // an empty list in JSON
		for _, target := range targets {
			found, err := lintTarget(cmd, target, flags.fix, lint.Options{Check: process.Check})
			if err != nil {
				return err
			}
			findings = append(findings, found...)
		}
		if err := output.print(cmd.OutOrStdout(), findings, func(w io.Writer) error { return printFindings(w, findings) }); err != nil {
			return err
		}
		return lintError(findings, flags.strict)
	}
	return cmd
}

// lintFolder is a directory to lint, or some files of it.
type lintFolder struct {
	directory string
	names     []string
}

// lintTargets returns the directories of the arguments. Files of one directory are read together.
func lintTargets(args []string) ([]lintFolder, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var targets []lintFolder
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			targets = append(targets, lintFolder{directory: arg})
			continue
		}
		directory := filepath.Dir(arg)
		names := filesBeside(directory, filepath.Base(arg))
		at := slices.IndexFunc(targets, func(t lintFolder) bool { return t.directory == directory && len(t.names) > 0 })
		if at < 0 {
			targets = append(targets, lintFolder{directory, names})
			continue
		}
		targets[at].names = append(targets[at].names, names...)
		slices.Sort(targets[at].names)
		targets[at].names = slices.Compact(targets[at].names)
	}
	return targets, nil
}

// filesBeside returns the files of a policy, its unit tests and cases, of which name is one.
func filesBeside(directory, name string) []string {
	stem := name
	for _, ending := range []string{"_test.rego", ".case.yaml", ".rego", ".yaml", ".yml", ".json"} {
		if cut, ok := strings.CutSuffix(name, ending); ok {
			stem = cut
			break
		}
	}
	names := []string{name}
	for _, ending := range []string{".yaml", ".yml", ".json", ".rego", "_test.rego", ".case.yaml"} {
		if _, err := os.Stat(filepath.Join(directory, stem+ending)); err == nil && stem+ending != name {
			names = append(names, stem+ending)
		}
	}
	return names
}

// lintTarget returns the findings of a directory, whose files have the path that the user can open.
func lintTarget(cmd *cobra.Command, target lintFolder, fix bool, options lint.Options) ([]lint.Finding, error) {
	folder, err := workbench.Load(os.DirFS(target.directory), target.names...)
	if folder == nil || err != nil && len(folder.Faults()) == 0 {
		return nil, fmt.Errorf("%s: %w", target.directory, err)
	}
	if fix {
		changed, err := lint.Format(folder)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), printer.SanitizeLines("Warning: "+err.Error()))
		}
		for _, file := range changed {
			name := filepath.Join(target.directory, filepath.FromSlash(file))
			if err := replaceFile(name, folder.Text(file)); err != nil {
				return nil, err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), printer.Sanitize("Formatted "+name))
		}
	}
	findings, err := lint.Run(cmd.Context(), folder, options)
	for i := range findings {
		findings[i].File = path.Join(filepath.ToSlash(target.directory), findings[i].File)
	}
	return findings, err
}

// replaceFile writes a file that exists, with its permissions.
func replaceFile(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}

func printFindings(output io.Writer, findings []lint.Finding) error {
	for _, f := range findings {
		policy := ""
		if f.Policy != "" {
			policy = " (policy " + f.Policy + ")"
		}
		fmt.Fprintln(output, printer.Sanitize(f.String()+": "+string(f.Severity)+" "+f.Code+": "+f.Message+policy))
	}
	if len(findings) == 0 {
		fmt.Fprintln(output, "no findings")
	}
	return nil
}

// lintError returns the error of the exit status.
func lintError(findings []lint.Finding, strict bool) error {
	failures, warnings := 0, 0
	for _, f := range findings {
		switch f.Severity {
		case lint.Error:
			failures++
		case lint.Warning:
			warnings++
		case lint.Style:
		}
	}
	if failures > 0 || strict && warnings > 0 {
		return fmt.Errorf("findings: %d errors, %d warnings", failures, warnings)
	}
	return nil
}

func printCodes(cmd *cobra.Command, output *outputFlag) error {
	table := printer.Table{Columns: printer.Columns("Code", "Severity", "Finding")}
	for _, code := range lint.Codes() {
		table.Rows = append(table.Rows, []string{code.ID, string(code.Severity), code.Description})
	}
	return output.print(cmd.OutOrStdout(), lint.Codes(), func(w io.Writer) error { return table.Write(w, false) })
}
