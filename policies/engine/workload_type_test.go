// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// typePolicy is a policy that sets a type.
func typePolicy(name, rule string) engine.Source {
	return engine.Source{Name: name, Rego: "package it\n" + rule + "\n"}
}

func modifySource(source engine.Source, change func(*engine.Source)) engine.Source {
	change(&source)
	return source
}

func TestWorkloadTypeNeedsAgreement(t *testing.T) {
	builtIn := func(s *engine.Source) { s.BuiltIn = true }
	tests := map[string]struct {
		policies []engine.Source
		want     v1alpha1.WorkloadType
		wantErr  string
		// at, is: the policies that the error names, and its cause.
		at []string
		is error
	}{
		"no policy at all": {want: v1alpha1.WorkloadTrain},
		"policies without the rule": {
			policies: []engine.Source{typePolicy("a", `deny contains "x"`), typePolicy("b", `type := "inference" if input.object.kind == "Job"`)},
			want:     v1alpha1.WorkloadTrain,
		},
		"one that sets it": {
			policies: []engine.Source{typePolicy("a", `type := "interactive" if input.object.kind == "Pod"`)},
			want:     v1alpha1.WorkloadInteractive,
		},
		"one that sets it beside other rules": {
			policies: []engine.Source{typePolicy("a", "type := \"inference\"\ndeny contains \"late\" if input.now > \"2026\"\nwarn contains \"x\" if input.use.gpus > 1")},
			want:     v1alpha1.WorkloadInference,
		},
		"one where it is undefined": {
			policies: []engine.Source{typePolicy("a", "default type := \"train\"\ntype := \"interactive\" if input.parameters.notebooks")},
			want:     v1alpha1.WorkloadTrain,
		},
		"one that reads its parameters": {
			policies: []engine.Source{modifySource(typePolicy("a", "type := input.parameters.type"), func(s *engine.Source) { s.Parameters = []byte(`{"type": "inference"}`) })},
			want:     v1alpha1.WorkloadInference,
		},
		"two that agree": {
			policies: []engine.Source{typePolicy("a", `type := "interactive"`), typePolicy("b", `type := "interactive"`), typePolicy("c", `deny contains "x"`)},
			want:     v1alpha1.WorkloadInteractive,
		},
		"two that differ": {
			policies: []engine.Source{typePolicy("c", `type := "inference"`), typePolicy("b", `type := "interactive"`), typePolicy("a", `type := "interactive"`)},
			wantErr:  "workload type: a, c: the policies disagree about the workload's type: a sets interactive and c sets inference; set the label sluice.dev/workload-type yourself, or report this to the cluster's administrators",
			at:       []string{"a", "c"}, is: engine.ErrTypeConflict,
		},
		"a policy that conflicts with itself": {
			policies: []engine.Source{typePolicy("a", "type := \"interactive\" if input.project\ntype := \"train\" if input.project")},
			wantErr:  "workload type: a: ", at: []string{"a"},
		},
		"an unknown type": {
			policies: []engine.Source{typePolicy("a", `type := lower(input.object.kind)`), typePolicy("b", `type := "train"`)},
			wantErr:  `workload type: a: a value of the wrong type: type: is "pod"; train, interactive and inference are allowed`,
			at:       []string{"a"}, is: engine.ErrShape,
		},
		"not a string": {
			policies: []engine.Source{typePolicy("a", `type := input.project`)},
			wantErr:  `workload type: a: a value of the wrong type: type: must be a string, and is object`,
			at:       []string{"a"}, is: engine.ErrShape,
		},
		"two that fail": {
			policies: []engine.Source{typePolicy("b", `type := {"1": "train"}[sprintf("%d", [to_number(input.object.kind)])]`), typePolicy("a", `type := input.nodePools`), typePolicy("c", `type := "train"`)},
			wantErr:  "workload type: a, b: ", at: []string{"a", "b"}, is: engine.ErrShape,
		},
		"one in DryRun is not evaluated": {
			policies: []engine.Source{modifySource(typePolicy("a", `type := "inference"`), func(s *engine.Source) { s.Enforcement = v1alpha1.EnforcementDryRun })},
			want:     v1alpha1.WorkloadTrain,
		},
		"one in Warn is evaluated": {
			policies: []engine.Source{modifySource(typePolicy("a", `type := "inference"`), func(s *engine.Source) { s.Enforcement = v1alpha1.EnforcementWarn })},
			want:     v1alpha1.WorkloadInference,
		},
		"one for other projects is not evaluated": {
			policies: []engine.Source{modifySource(typePolicy("a", `type := "inference"`), func(s *engine.Source) { s.Match.Departments = []string{"robotics"} })},
			want:     v1alpha1.WorkloadTrain,
		},
		"a replaced built-in policy is not evaluated": {
			policies: []engine.Source{
				modifySource(typePolicy("core.type", `type := "inference"`), builtIn),
				modifySource(typePolicy("a", `type := "interactive"`), func(s *engine.Source) { s.Replaces = "core.type" }),
			},
			want: v1alpha1.WorkloadInteractive,
		},
		"nor if the replacement sets no type": {
			policies: []engine.Source{
				modifySource(typePolicy("core.type", `type := "inference"`), builtIn),
				modifySource(typePolicy("a", `deny contains "x"`), func(s *engine.Source) { s.Replaces = "core.type" }),
			},
			want: v1alpha1.WorkloadTrain,
		},
		"a Gatekeeper template may use the name": {
			policies: []engine.Source{typePolicy("a", "type(x) = y { y := x.kind }\nviolation[{\"msg\": msg}] { msg := type(input.review.object) }")},
			want:     v1alpha1.WorkloadTrain,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := podInput(t, `{"kind": "Pod"}`)
			// WorkloadType ignores both.
			in.Now, in.Usage = time.Time{}, document.Document{}
			got, err := newEngine(t, tt.policies...).WorkloadType(t.Context(), in)
			if got != tt.want {
				t.Errorf("type %q, want %q", got, tt.want)
			}
			if tt.wantErr == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.wantErr) {
				t.Fatalf("error %v\nwant  %s", err, tt.wantErr)
			}
			var fault *engine.TypeError
			if !errors.As(err, &fault) {
				t.Fatalf("%T is no *TypeError", err)
			}
			if diff := cmp.Diff(tt.at, fault.Policies); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
		})
	}
}

func TestWorkloadTypeShapeAndVolatileReads(t *testing.T) {
	const want = `: write type := "interactive" if { … }, with train, interactive or inference`
	tests := map[string]struct {
		rego string
		want []string
	}{
		"a set":                               {`type contains "train"`, []string{"it:2:1: type is a set here, and must be a string" + want}},
		"an object":                           {`type.of := "train"`, []string{"it:2:1: type is an object here, and must be a string" + want}},
		"an object as a value":                {`type := {"a": 1}`, []string{`it:2:1: type is {"a": 1} here, and must be a workload type` + want}},
		"a number":                            {`type := 3`, []string{"it:2:1: type is 3 here, and must be a workload type" + want}},
		"only true":                           {`type if input.object`, []string{"it:2:1: type is true here, and must be a workload type" + want}},
		"another word":                        {`type := "notebook"`, []string{`it:2:1: type is "notebook" here, and must be a workload type` + want}},
		"a function":                          {`type(x) := "train" if x`, []string{"it:2:1: type is a function here, and must be a rule" + want}},
		"the time":                            {`type := "train" if input.now > "2026"`, []string{"it:2:20: type must not depend on the time or the present use, and reads input.now; only deny, violation and warn may"}},
		"the present use, through a function": {"type := \"train\" if f(1)\nf(x) if input.use.gpus > x", []string{"it:3:9: type must not depend on the time or the present use, and reads input.use through data.it.f; only deny, violation and warn may"}},
		"a valid rule":                        {"type := \"train\" if input.workload.gpus > 1 else := \"interactive\"", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, compileProblems(t, "package it\n"+tt.rego+"\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkloadTypeIsCachedByReadFields(t *testing.T) {
	var seen []engine.Evaluation
	e := newEngineWithOptions(t, engine.Options{Observe: func(e engine.Evaluation) { e.Duration = 0; seen = append(seen, e) }},
		typePolicy("a", "type := \"interactive\" if input.object.metadata.labels.app == \"lab\"\ndeny contains \"late\" if input.now == input.object.metadata.name"))
	for _, pod := range []struct {
		object   string
		want     v1alpha1.WorkloadType
		recalled bool
	}{
		{`{"metadata": {"name": "a", "labels": {"app": "lab"}}}`, v1alpha1.WorkloadInteractive, false},
		{`{"metadata": {"name": "b", "labels": {"app": "lab"}}}`, v1alpha1.WorkloadInteractive, true},
		{`{"metadata": {"name": "b", "labels": {"app": "web"}}}`, v1alpha1.WorkloadTrain, false},
	} {
		seen = nil
		got, err := e.WorkloadType(t.Context(), podInput(t, pod.object))
		if err != nil || got != pod.want {
			t.Errorf("%s: %q, %v; want %q", pod.object, got, err, pod.want)
		}
		want := []engine.Evaluation{{Policy: "a", Enforcement: v1alpha1.EnforcementDeny, TypeResolution: true, Cached: pod.recalled, Result: engine.ResultPassed}}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("%s: evaluations (-want +got):\n%s", pod.object, diff)
		}
	}
}

func TestWorkloadTypeIsSeparateFromAdmission(t *testing.T) {
	e := newEngine(t,
		typePolicy("a", `type := "interactive" if input.object.metadata.name == "x"`),
		typePolicy("b", `deny contains "x" if input.workload.type == "interactive"`))
	set, err := e.Current()
	if err != nil {
		t.Fatal(err)
	}
	in := podInput(t, `{"metadata": {"name": "x"}}`)
	outcome, err := set.Evaluate(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Evaluations) != 1 || len(outcome.Denials) != 1 {
		t.Errorf("outcome %+v, want one of b alone", outcome)
	}
	if diff := cmp.Diff([]string{"b"}, set.MatchingPolicies(in.Subject)); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
	for path, want := range map[string]bool{"name": true, "uid": false} {
		if got := set.Reads(in.Subject, "object", "metadata", path); got != want {
			t.Errorf("reads %s: %v, want %v", path, got, want)
		}
	}
	if _, err := set.WorkloadType(t.Context(), engine.Input{}); !errors.Is(err, engine.ErrNoObject) {
		t.Errorf("without an object: %v", err)
	}
	empty, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.WorkloadType(t.Context(), in); !errors.Is(err, engine.ErrNotLoaded) {
		t.Errorf("before the first update: %v", err)
	}
}
