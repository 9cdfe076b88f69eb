// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
	"sluice.dev/policies/workbench"
)

const policyHelp = `Write, check and test policies before they are applied.

Only audit, diff and export, and eval without --policies, need a cluster. No command changes one.`

func newPolicyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check policies",
		Long: `Check the Policy objects in files, in directories with the Rego beside them, or - for the standard input.

The command prints each problem and each warning with its line and column in spec.rego. It fails
if a policy has a problem: the webhook would refuse that policy. It also evaluates example objects,
and warns if a policy conflicts with a built-in one, or with another one in the files. The webhook makes
the same check when a policy is applied. sluice policy lint finds more, and names the lines of the files.`,
		Example: `  # Check a policy
  sluice policy check no-latest.yaml

  # Check all policies of a directory
  sluice policy check policies/`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		process, err := check.NewProcess(check.DefaultLimits)
		if err != nil {
			return err
		}
		var objects []v1alpha1.Policy
		for _, file := range args {
			read, err := readPoliciesOrFolder(cmd.InOrStdin(), file)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, read...)
		}
		refused := 0
		environment := check.Environment{Policies: store.Sources(policies.BuiltIn(), objects)}
		for i := range objects {
			result, err := process.Check(cmd.Context(), engine.FromPolicy(&objects[i]), environment)
			if err != nil {
				return fmt.Errorf("policy %s: %w", objects[i].Name, err)
			}
			printCheck(cmd.OutOrStdout(), objects[i].Name, result)
			if len(result.Problems) > 0 {
				refused++
			}
		}
		if refused > 0 {
			return fmt.Errorf("policies with problems: %d", refused)
		}
		return nil
	}
	return cmd
}

// printCheck prints the result of one policy.
func printCheck(output io.Writer, name string, result check.Result) {
	for _, problem := range result.Problems {
		fmt.Fprintln(output, printer.Sanitize(problem.Error()))
	}
	for _, warning := range result.Warnings {
		fmt.Fprintln(output, printer.Sanitize("Warning: "+warning.Error()))
	}
	if len(result.Problems) == 0 {
		fmt.Fprintln(output, printer.Sanitize(name+": no problems"))
	}
}

// readPoliciesOrFolder reads the policies of a file, or those of a directory with the Rego in files beside them.
func readPoliciesOrFolder(stdin io.Reader, path string) ([]v1alpha1.Policy, error) {
	if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
		return readPolicies(stdin, path)
	}
	folder, err := loadPolicies(path)
	if err != nil {
		return nil, err
	}
	return folder.Policies, nil
}

// readPolicies reads the policies of a file, one by one or in lists; - is the standard input. Objects of other kinds are
// an error.
func readPolicies(stdin io.Reader, path string) ([]v1alpha1.Policy, error) {
	text, err := readFileOrInput(stdin, path)
	if err != nil {
		return nil, err
	}
	var policies []v1alpha1.Policy
	err = workbench.EachDocument(text, func(document []byte, _ int) error {
		var policy v1alpha1.Policy
		if err := yaml.UnmarshalStrict(document, &policy); err != nil {
			return err
		}
		if policy.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("Policy") {
			return fmt.Errorf("%s %s is not a Policy of %s", policy.Kind, policy.Name, v1alpha1.GroupVersion)
		}
		policies = append(policies, policy)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(policies) == 0 {
		return nil, errors.New("no policies found")
	}
	return policies, nil
}
