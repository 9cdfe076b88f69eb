// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/convert"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// inProcess checks policies without a child process.
func inProcess(_ context.Context, source engine.Source) (check.Result, error) {
	return check.Check(source), nil
}

// filesOf reads the files of a directory.
func filesOf(tb testing.TB, directory string) []convert.File {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil || len(names) == 0 {
		tb.Fatal(directory, err)
	}
	var files []convert.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, convert.File{Name: filepath.Base(name), Text: text})
	}
	return files
}

// passesTests fails the test unless the files of a result pass the check and their own cases.
func passesTests(t *testing.T, result *convert.Result) {
	t.Helper()
	directory := t.TempDir()
	for _, file := range convert.Files(result) {
		if err := os.WriteFile(filepath.Join(directory, file.Name), file.Text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := workbench.Load(os.DirFS(directory))
	if err != nil {
		t.Fatal(err)
	}
	for i := range folder.Policies {
		for _, problem := range check.Check(engine.FromPolicy(&folder.Policies[i])).Problems {
			t.Error(problem)
		}
	}
	outcomes, err := folder.RunCases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range outcomes {
		for _, failure := range outcome.Failures {
			t.Errorf("%s: %s: %s\n%s", outcome.File, outcome.Name, failure.Message, failure.Diff)
		}
	}
}

// All templates of our own are converted, to v1 but for those that say otherwise, with a pod that each refuses and one that
// it does not.
func TestGatekeeperTemplates(t *testing.T) {
	result, err := convert.Gatekeeper(t.Context(), filesOf(t, "testdata/gatekeeper"), inProcess)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range result.Entries {
		if entry.Status != convert.StatusConverted {
			t.Errorf("%s %s: %s: %v", entry.File, entry.Object, entry.Status, entry.Gaps)
		}
	}
	if len(result.Policies) != 23 {
		t.Errorf("%d policies, want one for each of the 23 constraints", len(result.Policies))
	}
	// The namespaces and labels of the first four match none of the examples; no example has an allowed value of the annotation.
	oneCase := []string{"only-ours-in-production", "digests-in-production", "services-have-probes", "no-capabilities-for-students", "owners"}
	for _, p := range result.Policies {
		if strings.Contains(p.Policy.Spec.Rego, "violation[") {
			t.Errorf("%s is in Rego v0", p.Policy.Name)
		}
		if len(p.Cases) != 2 && !slices.Contains(oneCase, p.Policy.Name) {
			t.Errorf("%s has %d cases, want 2", p.Policy.Name, len(p.Cases))
		}
	}
	passesTests(t, result)
}

// checkOf returns the problems of a policy.
func checkOf(policy *v1alpha1.Policy) []engine.Problem {
	return check.Check(engine.FromPolicy(policy)).Problems
}
