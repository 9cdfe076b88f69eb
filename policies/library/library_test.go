// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/format"

	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/library"
	"sluice.dev/policies/workbench"
)

var update = flag.Bool("update", false, "write the pages of the library")

func TestMain(m *testing.M) {
	check.RunIfChild()
	os.Exit(m.Run())
}

func all(t *testing.T) []entry {
	t.Helper()
	entries, err := readAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 12 {
		t.Fatalf("the library has %d policies, want 12", len(entries))
	}
	return entries
}

// Each policy passes its unit tests and its cases, which show what it refuses or changes and what it leaves alone.
func TestPolicies(t *testing.T) {
	for _, entry := range all(t) {
		t.Run(entry.Policy.Name, func(t *testing.T) {
			files, err := library.Files(entry.Policy.Name)
			if err != nil {
				t.Fatal(err)
			}
			folder, err := workbench.Load(files)
			if err != nil {
				t.Fatal(err)
			}
			units, _, err := folder.RunUnitTests(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cases, err := folder.RunCases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(units) == 0 || len(cases) < 2 {
				t.Errorf("%d unit tests and %d cases, want at least 1 and 2", len(units), len(cases))
			}
			for _, outcome := range append(units, cases...) {
				for _, failure := range outcome.Failures {
					t.Errorf("%s: %s: %s\n%s", outcome.File, outcome.Name, failure.Message, failure.Diff)
				}
			}
		})
	}
}

// A copy under another name passes its tests, too.
func TestCopy(t *testing.T) {
	for _, name := range library.Names() {
		files, err := library.Copy(name, "mine-1")
		if err != nil {
			t.Fatal(err)
		}
		folder := fstest.MapFS{}
		for file, text := range files {
			folder[file] = &fstest.MapFile{Data: []byte(text)}
		}
		loaded, err := workbench.Load(folder)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if loaded.Policies[0].Name != "mine-1" || !strings.Contains(loaded.Policies[0].Spec.Rego, "\npackage mine_1\n") {
			t.Errorf("%s: the copy is policy %s:\n%s", name, loaded.Policies[0].Name, loaded.Policies[0].Spec.Rego)
		}
		if strings.Contains(loaded.Policies[0].Spec.Rego, `"`+name+`"`) {
			t.Errorf("%s: the copy renders an object of the same name as the original:\n%s", name, loaded.Policies[0].Spec.Rego)
		}
		outcomes, _, err := loaded.RunUnitTests(t.Context())
		if err != nil || len(outcomes) == 0 {
			t.Fatalf("%s: %d unit tests, %v", name, len(outcomes), err)
		}
		for _, outcome := range outcomes {
			if !outcome.Passed() {
				t.Errorf("%s: %s failed: %v", name, outcome.Name, outcome.Failures)
			}
		}
	}
	for name, as := range map[string]string{"none": "mine", "sidecar": "Mine", "image-digests": "1", "": "mine", "../core": "mine"} {
		if _, err := library.Copy(name, as); err == nil {
			t.Errorf("policy %q was copied as %q", name, as)
		}
	}
}

// The webhook accepts each policy without a warning, beside the built-in ones and all the others. Its Rego is formatted.
func TestPoliciesAreAccepted(t *testing.T) {
	process, err := check.NewProcess(check.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	entries := all(t)
	sources := policies.BuiltIn()
	for i := range entries {
		sources = append(sources, engine.FromPolicy(&entries[i].Policy))
	}
	for i := range entries {
		p := &entries[i].Policy
		result, err := process.Check(t.Context(), engine.FromPolicy(p), check.Environment{Policies: sources})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range append(result.Problems, result.Warnings...) {
			t.Errorf("%v", problem)
		}
		formatted, err := format.Source(p.Name, []byte(p.Spec.Rego))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(formatted), p.Spec.Rego); diff != "" {
			t.Errorf("%s is not formatted (-want +got):\n%s", p.Name, diff)
		}
	}
}

// The pages are generated from the metadata, the schemas and the cases.
func TestGeneratedPages(t *testing.T) {
	root := filepath.Join("..", "..", "docs", "reference", "library")
	var index strings.Builder
	index.WriteString("# The library of policies\n\nReady policies for shared GPU clusters. Copy the folder of one, adapt its parameters and its match, " +
		"and apply it first in\n`DryRun`, then in `Warn`. None is in force by itself.\n\n| policy | what it does |\n|---|---|\n")
	pages := make(map[string]string)
	for _, entry := range all(t) {
		page, err := entry.page()
		if err != nil {
			t.Fatal(err)
		}
		pages[entry.Policy.Name+".md"] = page
		sentence, _, _ := strings.Cut(strings.Join(strings.Fields(entry.Description), " "), ". ")
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", entry.Title, entry.Policy.Name, strings.TrimSuffix(sentence, ".")+".")
	}
	pages["README.md"] = index.String()
	for name, page := range pages {
		path := filepath.Join(root, name)
		if *update {
			if err := os.MkdirAll(root, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(page, string(got)); diff != "" {
			t.Errorf("run go test ./policies/library -update (-want +file):\n%s", diff)
		}
	}
}
