// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/check"
	"sluice.dev/policies/workbench"
)

func newPolicyTestCommand() *cobra.Command {
	var coverage bool
	var junit string
	cmd := &cobra.Command{
		Use:   "test DIRECTORY",
		Short: "Run the tests of policies",
		Long: `Run the tests of the policies in a directory and the directories in it: the rules test_... of files *_test.rego,
and the cases of files *.case.yaml.

First each policy is checked as the webhook does when it is applied; a refused one fails, and no test runs.

A case has an object and what the policies shall decide on it: texts of denials and warnings, or
parts of the resulting object. It is evaluated with the built-in policies, as a cluster would; a
policy in DryRun counts as Deny. The command needs no cluster. It fails if a test fails.`,
		Example: `  # Run all tests of a directory
  sluice policy test policies/

  # With the lines that no unit test evaluates, and a report for a pipeline
  sluice policy test policies/ --coverage --junit report.xml`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&coverage, "coverage", false, "Print the part of each policy that the unit tests evaluate")
	cmd.Flags().StringVar(&junit, "junit", "", "Write a report in JUnit's XML format to this file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		folder, err := loadFolder(args[0])
		if err != nil {
			return err
		}
		process, err := check.NewProcess(check.DefaultLimits)
		if err != nil {
			return err
		}
		refused, err := folder.CheckPolicies(cmd.Context(), process.Check)
		if err != nil {
			return err
		}
		if len(refused) > 0 {
			return reportOutcomes(cmd.OutOrStdout(), refused, junit)
		}
		units, covered, err := folder.RunUnitTests(cmd.Context())
		if err != nil {
			return err
		}
		cases, err := folder.RunCases(cmd.Context())
		if err != nil {
			return err
		}
		outcomes := append(units, cases...)
		if len(outcomes) == 0 {
			return fmt.Errorf("%s has no tests: add rules test_... in files *_test.rego, or cases in files *.case.yaml", args[0])
		}
		if coverage {
			printCoverage(cmd.OutOrStdout(), covered)
		}
		return reportOutcomes(cmd.OutOrStdout(), outcomes, junit)
	}
	return cmd
}

// reportOutcomes prints outcomes, and writes them to a file in JUnit's format if it has a name.
func reportOutcomes(output io.Writer, outcomes []workbench.Outcome, junit string) error {
	var err error
	if junit != "" {
		err = writeFile(junit, func(w io.Writer) error { return workbench.WriteJUnit(w, outcomes) })
	}
	return errors.Join(err, printOutcomes(output, outcomes))
}

// loadFolder reads the policies and tests of a directory.
func loadFolder(directory string) (*workbench.Folder, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", directory)
	}
	return workbench.Load(os.DirFS(directory))
}

// loadPolicies reads a directory, which must have a policy.
func loadPolicies(directory string) (*workbench.Folder, error) {
	folder, err := loadFolder(directory)
	if err == nil && len(folder.Policies) == 0 {
		err = fmt.Errorf("%s has no policies, only cases: want a Policy of %s in a file *.yaml", directory, v1alpha1.GroupVersion)
	}
	return folder, err
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// printOutcomes prints the failures and a summary. The error says how many tests failed.
func printOutcomes(output io.Writer, outcomes []workbench.Outcome) error {
	failed, skipped := 0, 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.Skipped {
			skipped++
			fmt.Fprintf(output, "SKIPPED %s\n", printer.Sanitize(o.File+": "+o.Name))
		}
		if len(o.Failures) == 0 {
			continue
		}
		failed++
		fmt.Fprintf(output, "FAILED  %s\n", printer.Sanitize(o.File+": "+o.Name))
		for _, failure := range o.Failures {
			fmt.Fprintf(output, "  %s\n", printer.Sanitize(failure.Message))
			for line := range strings.Lines(failure.Diff) {
				fmt.Fprintf(output, "    %s\n", printer.Sanitize(strings.TrimRight(line, "\n")))
			}
		}
	}
	fmt.Fprintf(output, "%d passed, %d failed, %d skipped\n", len(outcomes)-failed-skipped, failed, skipped)
	if failed > 0 {
		return fmt.Errorf("tests that failed: %d", failed)
	}
	return nil
}

func printCoverage(output io.Writer, coverage []workbench.Coverage) {
	for _, c := range coverage {
		fmt.Fprintf(output, "%s: %.0f %% of the lines", printer.Sanitize(c.Policy), c.Percent)
		if len(c.Missing) > 0 {
			fmt.Fprintf(output, ", not %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Missing), " ", ", "), "[]"))
		}
		fmt.Fprintln(output)
	}
}
