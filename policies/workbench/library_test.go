// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

const (
	libraryYAML = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: names}\nspec:\n  type: Library\n  rego: |\n    package lib.names\n" +
		"    allowed(name) if startswith(name, \"a\")\n"
	importerYAML = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: importer}\nspec:\n  rego: |\n    package importer\n" +
		"    import data.lib.names\n    deny contains \"no\" if not names.allowed(input.object.metadata.name)\n" +
		"    deny contains \"stage\" if input.namespace.labels.stage == \"closed\"\n"
)

// Cases and unit tests know the libraries of the folder, and cases the metadata of a namespace.
func TestLibrariesInFolders(t *testing.T) {
	object := "name: a pod\nobject: {apiVersion: v1, kind: Pod, metadata: {name: %}, spec: {containers: [{name: main, image: i}]}}\n"
	for name, tc := range map[string]struct{ test, want string }{
		"allowed":   {strings.ReplaceAll(object, "%", "a") + "expect: {allowed: true}\n", ""},
		"denied":    {strings.ReplaceAll(object, "%", "b") + "expect: {denied: [\"no (policy importer)\"]}\n", ""},
		"different": {strings.ReplaceAll(object, "%", "b") + "expect: {allowed: true}\n", "the object is denied, but should be allowed"},
		"namespace": {strings.ReplaceAll(object, "%", "a") + "namespace: {labels: {stage: closed}}\nexpect: {denied: [\"stage (policy importer)\"]}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCase(t, map[string]string{"lib.yaml": libraryYAML, "importer.yaml": importerYAML, "a.case.yaml": tc.test})
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("failures %q, want %q", got, tc.want)
			}
		})
	}
	folder, err := load(t, map[string]string{
		"lib.yaml": libraryYAML, "importer.yaml": importerYAML,
		"names_test.rego": "package names_test\n\nimport data.lib.names\n\ntest_a if names.allowed(\"a\")\n\ntest_b if names.allowed(\"b\")\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := folder.CheckPolicies(t.Context(), noLimits); err != nil || len(refused) > 0 {
		t.Errorf("the check refuses %+v, %v", refused, err)
	}
	outcomes, _, err := folder.RunUnitTests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range outcomes {
		if outcome.Passed() != (outcome.Name == "test_a") {
			t.Errorf("%s: passed %v", outcome.Name, outcome.Passed())
		}
	}
	if len(outcomes) != 2 {
		t.Errorf("%d outcomes, want 2", len(outcomes))
	}
}

// A library follows those that it imports, and policies follow all libraries: the webhook refuses what lacks a library.
func TestManifestOrder(t *testing.T) {
	outer := strings.NewReplacer("name: names", "name: b", "lib.names\n", "lib.b\n    import data.lib.names\n", "startswith(name, \"a\")", "names.allowed(name)")
	folder, err := load(t, map[string]string{
		"importer.yaml": strings.Replace(importerYAML, "name: importer", "name: a", 1), "b.yaml": outer.Replace(libraryYAML), "names.yaml": libraryYAML,
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := folder.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(manifest) {
		if name, ok := strings.CutPrefix(line, "  name: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if got := strings.Join(names, " "); got != "names b a" {
		t.Errorf("the order is %q, want names, b, which imports it, and the policy a", got)
	}
}

// A folder without the library says so.
func TestMissingLibraryInFolder(t *testing.T) {
	folder, err := load(t, map[string]string{"importer.yaml": importerYAML, "a.case.yaml": podCase + "expect: {allowed: true}\n"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "importer:3:27: data.lib.names.allowed does not exist: no library has this package; apply the library first"
	if _, err := folder.RunCases(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v\nwant %s", err, want)
	}
}

// The check before the tests, the measurements and the comparison know the libraries of the folder too, with the enforcement that
// the API server sets and the export writes.
func TestLibrariesEverywhere(t *testing.T) {
	folder, err := load(t, map[string]string{
		"lib.yaml": strings.Replace(libraryYAML, "type: Library", "type: Library\n  enforcement: Deny", 1), "importer.yaml": importerYAML,
	})
	if err != nil {
		t.Fatal(err)
	}
	checker := func(_ context.Context, source engine.Source, environment check.Environment) (check.Result, error) {
		return check.Check(source, environment.Policies...), nil
	}
	refused, err := folder.CheckPolicies(t.Context(), checker)
	if err != nil || len(refused) > 0 {
		t.Errorf("refused: %+v, %v", refused, err)
	}
	examples, err := check.Examples()
	if err != nil {
		t.Fatal(err)
	}
	measured, err := folder.Bench(t.Context(), examples, 1, folder.NewBaseline(nil))
	if err != nil || len(measured) != 1 || measured[0].Policy != "importer" || measured[0].Allocations == 0 || measured[0].Before == nil {
		t.Errorf("measured %+v, %v", measured, err)
	}
}

// A comparison with a policy that does not compile would show that nothing changes.
func TestSetComparisonRefusesBrokenPolicies(t *testing.T) {
	folder, err := load(t, map[string]string{"lib.yaml": libraryYAML, "importer.yaml": importerYAML})
	if err != nil {
		t.Fatal(err)
	}
	inCluster := folder.Policies
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a policy": {map[string]string{"importer.yaml": strings.Replace(importerYAML, "names.allowed(", "names.permitted(", 1)}, "importer:"},
		"a library whose importer is in the cluster": {
			map[string]string{"lib.yaml": strings.Replace(libraryYAML, "allowed(name)", "permitted(name)", 1)}, "allowed",
		},
		"an equal folder": {map[string]string{"lib.yaml": libraryYAML}, ""},
	} {
		changed, err := load(t, tc.files)
		if err != nil {
			t.Fatal(err)
		}
		_, err = changed.NewSetComparison(inCluster)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, tc.want)
		}
	}
	broken := append(slices.Clone(inCluster), inCluster[0])
	broken[2].Name, broken[2].Spec.Rego = "broken", "package broken\n\ndeny contains"
	if _, err := folder.NewSetComparison(broken); err != nil {
		t.Errorf("a broken policy of the cluster: %v", err)
	}
}
