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

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/convert"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// inProcess checks policies without a child process.
func inProcess(_ context.Context, source engine.Source, libraries ...engine.Source) (check.Result, error) {
	return check.Check(source, libraries...), nil
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
		for _, problem := range checkOf(&folder.Policies[i], folder.Policies) {
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
	if len(result.Policies) != 27 {
		t.Errorf("%d policies, want one for each of the 23 constraints and 4 libraries", len(result.Policies))
	}
	// The namespaces and labels of the first four match none of the examples; no example has an allowed value of the annotation.
	oneCase := []string{"only-ours-in-production", "digests-in-production", "services-have-probes", "no-capabilities-for-students", "owners"}
	for _, p := range result.Policies {
		if strings.Contains(p.Policy.Spec.Rego, "violation[") {
			t.Errorf("%s is in Rego v0", p.Policy.Name)
		}
		if p.Policy.Spec.Type == v1alpha1.PolicyTypeLibrary {
			continue
		}
		if len(p.Cases) != 2 && !slices.Contains(oneCase, p.Policy.Name) {
			t.Errorf("%s has %d cases, want 2", p.Policy.Name, len(p.Cases))
		}
	}
	passesTests(t, result)
}

// checkOf returns the problems of a policy beside the libraries among others.
func checkOf(policy *v1alpha1.Policy, others []v1alpha1.Policy) []engine.Problem {
	var libraries []engine.Source
	for i := range others {
		if source := engine.FromPolicy(&others[i]); source.IsLibrary() && source.Name != policy.Name {
			libraries = append(libraries, source)
		}
	}
	return check.Check(engine.FromPolicy(policy), libraries...).Problems
}

// Mutators that set fixed values have the effect that Gatekeeper's documentation describes: the cases are written by hand.
func TestGatekeeperMutators(t *testing.T) {
	compareWithCases(t, "testdata/mutators", convert.Gatekeeper)
}

// The cases of gator's suites become cases. One that expects something else than the policy decides is a gap, and so is a
// constraint that was not converted.
func TestGatekeeperSuites(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostPID: %v, containers: [{name: main, image: \"a:1\"}]}\n"
	const suite = `apiVersion: test.gatekeeper.sh/v1alpha1
kind: Suite
tests:
  - name: t
    constraint: constraint.yaml
    cases:
      - {name: allowed, object: good.yaml, assertions: [{violations: no}]}
      - {name: refused, object: bad.yaml, assertions: [{violations: 1, message: no}]}
      - {name: wrong, object: good.yaml, assertions: [{violations: yes}]}
      - {name: missing, object: other.yaml, assertions: [{violations: yes}]}
  - name: u
    constraint: missing.yaml
`
	result, err := convert.Gatekeeper(t.Context(), []convert.File{
		{Name: "a/constraint.yaml", Text: []byte(template(plainRule, "", pods))},
		{Name: "a/good.yaml", Text: []byte(strings.ReplaceAll(pod, "%v", "false"))},
		{Name: "a/bad.yaml", Text: []byte(strings.ReplaceAll(pod, "%v", "true"))},
		{Name: "a/suite.yaml", Text: []byte(suite)},
	}, inProcess)
	if err != nil {
		t.Fatal(err)
	}
	var names, gaps, notes []string
	for _, one := range result.Policies[0].Cases {
		names = append(names, one.Name)
	}
	for _, entry := range result.Entries {
		notes = append(notes, entry.Notes...)
		for _, gap := range entry.Gaps {
			gaps = append(gaps, gap.Part+": "+gap.Reason)
		}
	}
	for _, want := range []string{"allowed", "refused"} {
		if !slices.Contains(names, want) {
			t.Errorf("the cases are %q, without %q", names, want)
		}
	}
	wantGaps := []string{
		`: the policy decides otherwise than the test "wrong" of the source expects`,
		`tests[1]: its constraint "missing.yaml" was not converted`,
	}
	slices.Sort(gaps)
	if diff := cmp.Diff(wantGaps, gaps); diff != "" {
		t.Errorf("the gaps differ (-want +got)\n%s", diff)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "other.yaml") {
		t.Errorf("the notes are %q", notes)
	}
}

// The results of Kyverno's test files become cases.
func TestKyvernoTests(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %v}\nspec: {hostPID: %v, containers: [{name: main, image: \"a:1\"}]}\n---\n"
	text := strings.Replace(strings.Replace(pod, "%v", "good", 1), "%v", "false", 1) + strings.Replace(strings.Replace(pod, "%v", "bad", 1), "%v", "true", 1)
	result, err := convert.Kyverno(t.Context(), []convert.File{
		{Name: "policy.yaml", Text: []byte(clusterPolicy("validate: {message: no, pattern: {spec: {=(hostPID): false}}}"))},
		{Name: "pods.yaml", Text: []byte(text)},
		{Name: "kyverno-test.yaml", Text: []byte("apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\nresults:\n" +
			"  - {policy: p, rule: r, kind: Pod, resources: [good], result: pass}\n  - {policy: p, rule: r, kind: Pod, resources: [bad], result: fail}\n" +
			"  - {policy: p, rule: other, kind: Pod, resources: [bad], result: fail}\n")},
	}, inProcess)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range result.Policies[0].Cases {
		names = append(names, one.Name)
	}
	if !slices.Contains(names, "good of kyverno-test.yaml") || !slices.Contains(names, "bad of kyverno-test.yaml") {
		t.Errorf("the cases are %q", names)
	}
	if result.Incomplete() > 0 {
		t.Errorf("the entries are %+v", result.Entries)
	}
}
