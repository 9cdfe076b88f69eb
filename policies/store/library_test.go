// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// A revision keeps the libraries that the policy imports, and another version of one has another name.
func TestRevisionKeepsLibraries(t *testing.T) {
	policy := newPolicy("team", "package team\n", "")
	policy.UID = "b7e2c9d4-1"
	libraries := []engine.Source{{Name: "registries", Type: v1alpha1.PolicyTypeLibrary, Generation: 2, Rego: "package lib.registries\n\na := \"<\"\n"}}
	revision, err := NewRevision(&policy, libraries...)
	if err != nil {
		t.Fatal(err)
	}
	source, err := RevisionSource(revision, &policy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(libraries, source.Libraries, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	libraries[0].Rego += "\n"
	other, err := NewRevision(&policy, libraries...)
	if err != nil {
		t.Fatal(err)
	}
	if other.Name == revision.Name {
		t.Errorf("both revisions have the name %s", other.Name)
	}
	// The version of the policy is the last good one also if its text is the present one.
	desired := collectSources(nil, []v1alpha1.Policy{policy}, nil, map[string]engine.Source{"team": source})
	if last := desired.sources[0].LastGood; last == nil || len(last.Libraries) != 1 {
		t.Errorf("last good version: %+v", last)
	}
}

// importCompiler is exhausted by policies that are compiled with the library of a text.
type importCompiler struct {
	fakeCompiler
	exhausting string
}

func (c *importCompiler) Compile(ctx context.Context, sources []engine.Source, libraries ...engine.Source) ([]check.Result, error) {
	results, err := c.fakeCompiler.Compile(ctx, sources)
	for i, source := range sources {
		for _, library := range libraries {
			if library.Rego == c.exhausting && !source.IsLibrary() {
				results[i] = check.Result{Exhausted: true, Problems: []engine.Problem{{Policy: source.Name, Message: "too much"}}}
			}
		}
	}
	return results, err
}

// A version of a library with which a policy exhausts the compiler never reaches the engine; the policy does. Guards invariant
// 10 of the design.
func TestLibraryThatExhaustsTheCompilerIsRejected(t *testing.T) {
	compiler := &importCompiler{exhausting: "package lib.a\n\nx := 2\n"}
	store := &Store{Compiler: compiler}
	sources := func(library string) []engine.Source {
		return []engine.Source{
			{Name: "a", Type: v1alpha1.PolicyTypeLibrary, Rego: library},
			{Name: "p", Rego: "package p\n\nimport data.lib.a\n\ndeny contains a.x\n"},
			{Name: "q", Rego: "package q\n"},
		}
	}
	for i, step := range []struct {
		library            string
		compiled, rejected []string
	}{
		{"package lib.a\n\nx := 1\n", []string{"a", "p", "q"}, nil},
		{"package lib.a\n\nx := 1\n", nil, nil},
		{compiler.exhausting, []string{"a", "p"}, []string{"a"}},
		{"package lib.a\n\nx := 3\n", []string{"a", "p"}, nil},
	} {
		compiler.compiled = nil
		list := sources(step.library)
		if err := store.rejectExhausting(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		var rejected []string
		for _, source := range list {
			if len(source.Rejections) > 0 {
				rejected = append(rejected, source.Name)
			}
		}
		if diff := cmp.Diff(step.compiled, compiler.compiled); diff != "" {
			t.Errorf("step %d: compiled (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(step.rejected, rejected); diff != "" {
			t.Errorf("step %d: rejected (-want +got):\n%s", i, diff)
		}
	}
}
