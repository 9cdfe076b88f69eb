// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// fakeCompiler records the names of the policies that it compiles. The policy bomb exhausts it.
type fakeCompiler struct {
	compiled []string
	err      error
}

func (c *fakeCompiler) Compile(_ context.Context, sources []engine.Source, _ ...engine.Source) ([]check.Result, error) {
	if c.err != nil {
		return nil, c.err
	}
	results := make([]check.Result, len(sources))
	for i, source := range sources {
		c.compiled = append(c.compiled, source.Name)
		if source.Name == "bomb" {
			results[i] = check.Result{Exhausted: true, Problems: []engine.Problem{{Message: "too much"}}}
		}
	}
	return results, nil
}

// Each version of a policy is compiled in a child once, before the engine gets it. One that
// exhausts the child never reaches the engine. Guards invariant 10 of the design.
func TestVersionThatExhaustsTheCompilerIsRejected(t *testing.T) {
	compiler := &fakeCompiler{}
	store := &Store{Compiler: compiler}
	sources := func(generation int64, names ...string) []engine.Source {
		list := []engine.Source{{Name: "core.gpu", Rego: "package a", BuiltIn: true}}
		for _, name := range names {
			list = append(list, engine.Source{Name: name, Rego: "package b", Generation: generation})
		}
		return list
	}
	for _, step := range []struct {
		sources  []engine.Source
		compiled []string
	}{
		{sources(1, "good", "bomb"), []string{"good", "bomb"}},
		{sources(2, "good", "bomb"), nil},
		{sources(2, "good", "bomb", "other"), []string{"other"}},
		{sources(2, "good"), nil},
		{sources(2, "good", "bomb"), []string{"bomb"}},
	} {
		compiler.compiled = nil
		if err := store.rejectExhausting(t.Context(), step.sources); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(compiler.compiled, step.compiled) {
			t.Errorf("compiled %v, want %v", compiler.compiled, step.compiled)
		}
		for _, source := range step.sources {
			if rejected := len(source.Rejections) > 0; rejected != (source.Name == "bomb") {
				t.Errorf("%s: rejected %v", source.Name, rejected)
			}
		}
	}
	compiler.err = errors.New("no process")
	if err := store.rejectExhausting(t.Context(), sources(2, "new")); !errors.Is(err, errNotCompiled) {
		t.Errorf("err = %v, want %v", err, errNotCompiled)
	}
}

// A rejected version is not compiled, and the last good one stays in force.
func TestRejectedVersionKeepsTheLastGoodOne(t *testing.T) {
	e := newEngine(t)
	e.Update([]engine.Source{{Name: "a", Rego: "package a", Generation: 1}})
	reports := e.Update([]engine.Source{{
		Name: "a", Rego: "package a\ndeny contains \"x\"", Generation: 2, Rejections: []engine.Problem{{Message: "too much"}},
	}})
	if r := reports[0]; len(r.Problems) != 1 || !r.Active || r.Generation != 2 || r.EnforcedGeneration != 1 {
		t.Errorf("report: %+v", r)
	}
}
