// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"strings"
	"testing"
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
