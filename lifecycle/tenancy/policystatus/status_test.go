// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

var _ Reports = (*store.Store)(nil)

func TestBuildStatus(t *testing.T) {
	problem := func(line int, message string) engine.Problem {
		return engine.Problem{Policy: "team", Line: line, Column: 3, Message: message}
	}
	many := func(count int) []engine.Problem {
		var all []engine.Problem
		for i := range count {
			all = append(all, problem(i+1, fmt.Sprintf("problem %d", i+1)))
		}
		return all
	}
	tests := map[string]struct {
		report  engine.Report
		status  metav1.ConditionStatus
		reason  string
		message string
		errors  int
	}{
		"it compiles": {
			report: engine.Report{Generation: 2, Active: true, EnforcedGeneration: 2},
			status: metav1.ConditionTrue, reason: "Compiled", message: "compiled and in force",
		},
		"it compiles, with warnings": {
			report: engine.Report{Generation: 2, Active: true, EnforcedGeneration: 2, Warnings: many(2)},
			status: metav1.ConditionTrue, reason: "Compiled", message: "compiled and in force; warnings: 1:3: problem 1; 2:3: problem 2",
		},
		"with more warnings than one reads": {
			report: engine.Report{Generation: 2, Active: true, EnforcedGeneration: 2, Warnings: many(7)},
			status: metav1.ConditionTrue, reason: "Compiled",
			message: "compiled and in force; warnings: 1:3: problem 1; 2:3: problem 2; 3:3: problem 3; 4:3: problem 4; 5:3: problem 5; and 2 more",
		},
		"it never compiled": {
			report: engine.Report{Generation: 2, Problems: many(1)},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 1,
			message: "1:3: problem 1; no version of this policy is in force, so it is skipped",
		},
		"it compiled once": {
			report: engine.Report{Generation: 3, Problems: many(25), Active: true, EnforcedGeneration: 2},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 20,
			message: "1:3: problem 1 (and 24 more); generation 2 stays in force",
		},
		"a library is at fault": {
			report: engine.Report{Generation: 2, Problems: []engine.Problem{{Policy: "team", Library: "time.rego", Line: 4, Message: "no"}}},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 1,
			message: "library time.rego, line 4: no; no version of this policy is in force, so it is skipped",
		},
		"a message without end": {
			report: engine.Report{Generation: 2, Problems: []engine.Problem{problem(1, strings.Repeat("ä", 50_000))}, Warnings: []engine.Problem{
				problem(1, strings.Repeat("x", 50_000)), problem(2, strings.Repeat("x", 50_000)), problem(3, strings.Repeat("x", 50_000)),
				problem(4, strings.Repeat("x", 50_000)), problem(5, strings.Repeat("x", 50_000)),
			}},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 1,
		},
	}
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.Policy{Status: v1alpha1.PolicyStatus{Violations: 4, Errors: []v1alpha1.PolicyError{{Message: "old"}}}}
			status := BuildStatus(object, tt.report, nil, now)
			if status.ObservedGeneration != tt.report.Generation || status.EnforcedGeneration != tt.report.EnforcedGeneration || status.Violations != 4 {
				t.Errorf("status %+v", status)
			}
			if len(status.Errors) != tt.errors {
				t.Errorf("%d errors, want %d", len(status.Errors), tt.errors)
			}
			condition := status.Conditions[0]
			if tt.message == "" {
				// It is long, and must fit.
				if len(condition.Message) > 32768 {
					t.Errorf("the message has %d bytes", len(condition.Message))
				}
				tt.message = condition.Message
			}
			want := metav1.Condition{
				Type: "Compiled", Status: tt.status, Reason: tt.reason, Message: tt.message,
				ObservedGeneration: tt.report.Generation, LastTransitionTime: now,
			}
			if diff := cmp.Diff(want, condition); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			later := metav1.NewTime(now.Add(time.Hour))
			object.Status = status
			if diff := cmp.Diff(status, BuildStatus(object, tt.report, nil, later)); diff != "" {
				t.Errorf("the same report changes the status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuiltInPoliciesFitInAnObject(t *testing.T) {
	if err := validateBuiltIn(policies.BuiltIn()); err != nil {
		t.Error(err)
	}
	err := validateBuiltIn([]engine.Source{
		{Name: "Core.GPU", Rego: "package it\n"}, {Name: "core.empty"}, {Name: "core.long", Rego: strings.Repeat("ä", maxRegoLength+1)}, {Name: "core.good", Rego: "x"},
	})
	for _, want := range []string{
		`the built-in policy "Core.GPU" has a name that no object can have`, "core.empty has 0 characters", "core.long has 262145 characters; from 1 to 262144 fit",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\ndoes not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "core.good") {
		t.Errorf("error %v names a good policy", err)
	}
}

func TestReadyCondition(t *testing.T) {
	good := engine.Report{Generation: 2, Active: true, EnforcedGeneration: 2}
	broken := engine.Report{Generation: 3, Active: true, EnforcedGeneration: 2, Problems: []engine.Problem{{Line: 1, Column: 3, Message: "no rule"}}}
	wrong := engine.Report{Generation: 3, Active: true, EnforcedGeneration: 2, Problems: []engine.Problem{{Message: `spec.parameters.a: Invalid value: 1: must be true or false`}}}
	fresh := wrong
	fresh.EnforcedGeneration = 0
	for name, tt := range map[string]struct {
		report          engine.Report
		standIns        []store.Replacement
		status          metav1.ConditionStatus
		reason, message string
		// compiled is the status of the condition Compiled.
		compiled metav1.ConditionStatus
	}{
		"in force":     {good, nil, "True", "Ready", "in force", "True"},
		"not compiled": {broken, nil, "False", "CompileError", "1:3: no rule; generation 2 stays in force", "False"},
		"parameters that are wrong": {
			wrong, nil, "False", "InvalidParameters",
			"spec.parameters.a: Invalid value: 1: must be true or false; the parameters of generation 2 stay in force", "True",
		},
		"parameters that were never right": {
			fresh, nil, "False", "InvalidParameters",
			"spec.parameters.a: Invalid value: 1: must be true or false; the parameters as shipped are in force", "True",
		},
		"without its data": {
			engine.Report{Generation: 2, Active: true, EnforcedGeneration: 2, Missing: []string{"data.config.a does not exist", "data.config.b does not exist"}},
			nil, "False", "DataMissing",
			"data.config.a does not exist; data.config.b does not exist; until then the policy refuses every object that it matches", "True",
		},
		"replaced": {
			good,
			[]store.Replacement{{Policy: "part", Projects: []string{"a"}}, {Policy: "team"}},
			"False", "Replaced",
			"policy team replaces it (spec.replaces); pods are not evaluated by this one", "True",
		},
		"replaced for some": {
			good,
			[]store.Replacement{{Policy: "part", Projects: []string{"a", "b"}}, {Policy: "rest", Departments: []string{"c"}}},
			"True", "Replaced",
			"in force, but policy part replaces it (spec.replaces) for pods of projects a, b, and policy rest replaces it (spec.replaces) for pods of departments c", "True",
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NewTime(time.Unix(1_700_000_000, 0))
			status := BuildStatus(&v1alpha1.Policy{}, tt.report, tt.standIns, now)
			want := &metav1.Condition{
				Type: "Ready", Status: tt.status, Reason: tt.reason, Message: tt.message,
				ObservedGeneration: tt.report.Generation, LastTransitionTime: now,
			}
			if diff := cmp.Diff(want, meta.FindStatusCondition(status.Conditions, "Ready")); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			if got := meta.FindStatusCondition(status.Conditions, "Compiled").Status; got != tt.compiled {
				t.Errorf("Compiled is %s, want %s", got, tt.compiled)
			}
			if len(status.Errors) != len(tt.report.Problems) {
				t.Errorf("%d errors, want %d", len(status.Errors), len(tt.report.Problems))
			}
		})
	}
}

// A library without a good version refuses no object, and its status does not say so.
func TestStatusOfALibrary(t *testing.T) {
	object := &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Type: v1alpha1.PolicyTypeLibrary}}
	report := engine.Report{Generation: 1, Problems: []engine.Problem{{Message: "no"}}}
	status := BuildStatus(object, report, nil, metav1.Now())
	const want = "no; no version of this library is in force, and no policy can import it"
	for _, condition := range status.Conditions {
		if condition.Status != metav1.ConditionFalse || condition.Message != want {
			t.Errorf("%s is %s: %s", condition.Type, condition.Status, condition.Message)
		}
	}
}

// Where a replacement excludes projects, the built-in policy is in force.
func TestReplacementThatExcludes(t *testing.T) {
	replacement := store.Replacement{Policy: "mine", Replaces: "core.gpu", Exclude: v1alpha1.PolicyExclusion{Departments: []string{"staff"}, Projects: []string{"a", "b"}}}
	condition := readyCondition(&v1alpha1.Policy{}, engine.Report{Active: true}, []store.Replacement{replacement})
	const want = "in force, but policy mine replaces it (spec.replaces) for pods, not of departments staff, not of projects a, b"
	if condition.Status != metav1.ConditionTrue || condition.Message != want {
		t.Errorf("%s: %s\nwant %s", condition.Status, condition.Message, want)
	}
}
