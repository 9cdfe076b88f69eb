// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

var exemptionEnd = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func exempt(projects []string, names ...string) v1alpha1.PolicyExemption {
	return v1alpha1.PolicyExemption{Projects: projects, Names: names, Reason: "migration", Until: metav1.NewTime(exemptionEnd)}
}

// An exempted object gets a warning in place of the denial, until the end. Guards against a cache that outlives it: the same
// object is evaluated before and after the end.
func TestExemptions(t *testing.T) {
	const rego = "package p\n\noverrides := {\"metadata\": {\"labels\": {\"a\": \"b\"}}}\n\ndeny contains \"no\"\n\nwarn contains \"careful\"\n"
	exempted := "exempted until 2026-03-01T00:00:00Z (migration): no"
	for name, tt := range map[string]struct {
		exemptions []v1alpha1.PolicyExemption
		object     string
		review     string
		template   bool
		before     time.Duration
		want       []string
	}{
		"the project":            {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"other", "thesis"})}, before: 1, want: []string{"exempted", exempted, "careful"}},
		"another project":        {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"other"})}, before: 1, want: []string{"denied", "no", "careful"}},
		"after the end":          {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"})}, want: []string{"denied", "no", "careful"}},
		"a name":                 {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"}, "a", "train-*")}, object: `{"metadata": {"name": "train-1"}}`, before: 1, want: []string{"exempted", exempted, "careful"}},
		"another name":           {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"}, "train-*")}, object: `{"metadata": {"name": "test-train-1"}}`, before: 1, want: []string{"denied", "no", "careful"}},
		"the name of a template": {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"}, "train-*")}, review: `{"name": "train"}`, template: true, before: 1, want: []string{"exempted", exempted, "careful"}},
		"a generated name":       {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"}, "train-*")}, object: `{"metadata": {"generateName": "train-"}}`, before: 1, want: []string{"exempted", exempted, "careful"}},
		"no name":                {exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"}, "train-*")}, review: `{"name": "train-1"}`, before: 1, want: []string{"denied", "no", "careful"}},
	} {
		for _, enforcement := range []v1alpha1.Enforcement{v1alpha1.EnforcementDeny, v1alpha1.EnforcementWarn, v1alpha1.EnforcementDryRun} {
			t.Run(fmt.Sprintf("%s in %s", name, enforcement), func(t *testing.T) {
				e := newEngine(t, engine.Source{Name: "p", Rego: rego, Exemptions: tt.exemptions, Enforcement: enforcement})
				set, err := e.Current()
				if err != nil {
					t.Fatal(err)
				}
				object := tt.object
				if object == "" {
					object = `{"kind": "Pod"}`
				}
				in := podInput(t, object)
				in.Subject.Project, in.Template = "thesis", tt.template
				if in.Object, err = document.Decode([]byte(object)); err != nil {
					t.Fatal(err)
				}
				if tt.review != "" {
					if in.Review, err = document.Decode([]byte(tt.review)); err != nil {
						t.Fatal(err)
					}
				}
				evaluate := set.Evaluate
				if enforcement == v1alpha1.EnforcementDryRun {
					evaluate = set.EvaluateDryRun
				}
				// The other time first, so that a result of the cache is used.
				for _, now := range []time.Time{exemptionEnd.Add(-time.Hour), exemptionEnd.Add(-tt.before)} {
					in.Now = now
					outcome, err := evaluate(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					if now.Equal(exemptionEnd.Add(-time.Hour)) && tt.before == 0 {
						continue
					}
					got := []string{string(outcome.Evaluations[0].Result)}
					for _, finding := range slices.Concat(outcome.Denials, outcome.Warnings) {
						got = append(got, finding.Message)
					}
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if len(outcome.Changes) != 1 {
						t.Errorf("changes: %v", outcome.Changes)
					}
					if isExempted := tt.want[0] == "exempted"; isExempted != slices.Equal(outcome.Exempted, []string{"p"}) {
						t.Errorf("exempted: %v", outcome.Exempted)
					}
				}
			})
		}
	}
}

// A failure is not exempted: what the policy would have decided is not known.
func TestFailureIsNotExempted(t *testing.T) {
	e := newEngine(t, engine.Source{Name: "p", Rego: "package p\n\ndeny contains x if x := 1 / input.object.zero\n", Exemptions: []v1alpha1.PolicyExemption{exempt([]string{"thesis"})}})
	in := podInput(t, `{"kind": "Pod", "zero": 0}`)
	in.Subject.Project, in.Now = "thesis", exemptionEnd.Add(-time.Hour)
	outcome, err := e.Evaluate(t.Context(), in)
	if err != nil || len(outcome.Denials) != 1 || len(outcome.Exempted) != 0 {
		t.Errorf("outcome %+v, error %v", outcome, err)
	}
}

// Exemptions that nothing may have are problems of the policy, whatever the schema of the kind accepted.
func TestInvalidExemptions(t *testing.T) {
	good := exempt([]string{"a"})
	for name, tt := range map[string]struct {
		source engine.Source
		want   string
	}{
		"of a built-in policy": {engine.Source{BuiltIn: true, Exemptions: []v1alpha1.PolicyExemption{good}}, "spec.exemptions is set, which a built-in policy does not have"},
		"of a replacement": {
			engine.Source{Replaces: "core.devices", Exemptions: []v1alpha1.PolicyExemption{good}},
			"spec.exemptions: a policy that replaces a built-in one has no exemptions: allow the objects in its rules",
		},
		"no projects": {engine.Source{Exemptions: []v1alpha1.PolicyExemption{{Reason: "a", Until: good.Until}}}, "spec.exemptions[0].projects is empty; name the projects"},
		"no reason": {
			engine.Source{Exemptions: []v1alpha1.PolicyExemption{good, {Projects: good.Projects, Reason: " ", Until: good.Until}}},
			"spec.exemptions[1].reason is empty; write why the objects are exempted",
		},
		"no end": {
			engine.Source{Exemptions: []v1alpha1.PolicyExemption{{Projects: good.Projects, Reason: "a"}}},
			"spec.exemptions[0].until is not set; write when the exemption ends, such as 2026-12-31T23:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := engine.New(engine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tt.source.Name, tt.source.Rego = "p", goodSource
			report := e.Check(tt.source, []string{"core.devices"})
			if len(report.Problems) != 1 || report.Problems[0].Message != tt.want {
				t.Errorf("problems %q, want %q", report.Problems, tt.want)
			}
		})
	}
}

// A policy is not evaluated for excluded departments and projects, also where it names others.
func TestExclusions(t *testing.T) {
	for name, tt := range map[string]struct {
		match v1alpha1.PolicyMatch
		want  []string
	}{
		"of all": {
			v1alpha1.PolicyMatch{Exclude: v1alpha1.PolicyExclusion{Departments: []string{"staff"}, Projects: []string{"a1"}}},
			[]string{"/", "students/a2"},
		},
		"of a department": {
			v1alpha1.PolicyMatch{Departments: []string{"students"}, Exclude: v1alpha1.PolicyExclusion{Projects: []string{"a2"}}}, []string{"students/a1"},
		},
		"of projects": {
			v1alpha1.PolicyMatch{Projects: []string{"a1", "b1"}, Exclude: v1alpha1.PolicyExclusion{Departments: []string{"students"}}}, []string{"staff/b1"},
		},
		"of itself": {v1alpha1.PolicyMatch{Projects: []string{"a1"}, Exclude: v1alpha1.PolicyExclusion{Projects: []string{"a1"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Source{Name: "p", Rego: goodSource, Match: tt.match})
			var got []string
			for _, owner := range [][2]string{{"", ""}, {"students", "a1"}, {"students", "a2"}, {"staff", "b1"}} {
				in := podInput(t, `{"kind": "Pod"}`)
				in.Subject.Department, in.Subject.Project = owner[0], owner[1]
				outcome, err := e.Evaluate(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				if len(outcome.Denials) > 0 {
					got = append(got, owner[0]+"/"+owner[1])
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Where the replacement of a built-in policy excludes a project, the built-in policy holds.
func TestExclusionOfAReplacement(t *testing.T) {
	e := newEngine(t,
		engine.Source{Name: "core.gpu", BuiltIn: true, Rego: "package a\n\ndeny contains \"built in\"\n"},
		engine.Source{Name: "mine", Replaces: "core.gpu", Rego: "package a\n\ndeny contains \"mine\"\n", Match: v1alpha1.PolicyMatch{Exclude: v1alpha1.PolicyExclusion{Projects: []string{"a"}}}},
	)
	for project, want := range map[string]string{"a": "built in", "b": "mine"} {
		in := podInput(t, `{"kind": "Pod"}`)
		in.Subject.Project = project
		outcome, err := e.Evaluate(t.Context(), in)
		if err != nil || len(outcome.Denials) != 1 || outcome.Denials[0].Message != want {
			t.Errorf("%s: %v, %v", project, outcome.Denials, err)
		}
	}
}

// Policies read the namespace, and a cached result is used as long as what they read of it is equal.
func TestNamespaceOfInput(t *testing.T) {
	e := newEngine(t, engine.Source{Name: "p", Rego: "package p\n\ndeny contains input.namespace.labels.tier\n"})
	for i, tt := range []struct {
		namespace, want string
		cached          bool
	}{
		{`{"name": "a", "labels": {"tier": "gold"}, "annotations": {}}`, "gold", false},
		{`{"name": "a", "labels": {"tier": "gold", "other": "1"}, "annotations": {"x": "y"}}`, "gold", true},
		{`{"name": "a", "labels": {"tier": "iron"}, "annotations": {"x": "y"}}`, "iron", false},
		{`{"name": "a", "labels": {}, "annotations": {}}`, "", false},
	} {
		in := podInput(t, `{"kind": "Pod"}`)
		var err error
		if in.Namespace, err = document.Decode([]byte(tt.namespace)); err != nil {
			t.Fatal(err)
		}
		outcome, err := e.Evaluate(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(outcome.Denials) > 0 {
			got = outcome.Denials[0].Message
		}
		if got != tt.want || outcome.Evaluations[0].Cached != tt.cached {
			t.Errorf("%d: %q, cached %v; want %q, %v", i, got, outcome.Evaluations[0].Cached, tt.want, tt.cached)
		}
	}
	report := describeReports(newEngine(t).Update([]engine.Source{{Name: "q", Rego: "package q\n\nobjects contains {\"a\": input.namespace.name}\n"}}))
	want := []string{"q 0/0 | q:3:24: objects reads input.namespace, which objects and requires do not have; a project's labels are input.project.labels"}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzExemptionNames(f *testing.F) {
	for _, seed := range [][2]string{{"a*b*c", "aXbYc"}, {"*", ""}, {"**", "a"}, {"a*a", "a"}, {"", ""}, {"*-0", "a-0"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if got, want := engine.MatchesPattern(pattern, name), globMatches([]byte(pattern), []byte(name)); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

// globMatches is the definition of a pattern, in time that grows with the product of the lengths.
func globMatches(pattern, name []byte) bool {
	row := make([]bool, len(name)+1)
	row[0] = true
	for _, r := range pattern {
		next := make([]bool, len(name)+1)
		for j := range next {
			if r == '*' {
				next[j] = row[j] || j > 0 && next[j-1]
			} else if j > 0 {
				next[j] = row[j-1] && name[j-1] == r
			}
		}
		row = next
	}
	return row[len(name)]
}
