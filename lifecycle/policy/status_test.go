// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
)

var _ Reports = (*live.Keeper)(nil)

func TestStatusSaysWhatBecameOfThePolicy(t *testing.T) {
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
			report: engine.Report{Generation: 2, InForce: true, EnforcedGeneration: 2},
			status: metav1.ConditionTrue, reason: "Compiled", message: "compiled and in force",
		},
		"it compiles, with warnings": {
			report: engine.Report{Generation: 2, InForce: true, EnforcedGeneration: 2, Warnings: many(2)},
			status: metav1.ConditionTrue, reason: "Compiled", message: "compiled and in force; look at 1:3: problem 1; 2:3: problem 2",
		},
		"with more warnings than one reads": {
			report: engine.Report{Generation: 2, InForce: true, EnforcedGeneration: 2, Warnings: many(7)},
			status: metav1.ConditionTrue, reason: "Compiled",
			message: "compiled and in force; look at 1:3: problem 1; 2:3: problem 2; 3:3: problem 3; 4:3: problem 4; 5:3: problem 5; and 2 more",
		},
		"it never compiled": {
			report: engine.Report{Generation: 2, Problems: many(1)},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 1,
			message: "1:3: problem 1; no version of this policy is in force",
		},
		"it compiled once": {
			report: engine.Report{Generation: 3, Problems: many(25), InForce: true, EnforcedGeneration: 2},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 20,
			message: "1:3: problem 1 (and 24 more); generation 2 stays in force",
		},
		"a library is at fault": {
			report: engine.Report{Generation: 2, Problems: []engine.Problem{{Policy: "team", Library: "time.rego", Line: 4, Message: "no"}}},
			status: metav1.ConditionFalse, reason: "CompileError", errors: 1,
			message: "library time.rego, line 4: no; no version of this policy is in force",
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
			status := Status(object, tt.report, nil, now)
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
			if diff := cmp.Diff(status, Status(object, tt.report, nil, later)); diff != "" {
				t.Errorf("the same report changes the status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryBuiltInPolicyFitsInAnObject(t *testing.T) {
	if err := mirrorable(policies.BuiltIn()); err != nil {
		t.Error(err)
	}
	err := mirrorable([]engine.Source{
		{Name: "Core.GPU", Rego: "package it\n"}, {Name: "core.empty"}, {Name: "core.long", Rego: strings.Repeat("ä", maxRego+1)}, {Name: "core.good", Rego: "x"},
	})
	for _, want := range []string{
		`the built-in policy "Core.GPU" has no name for an object`, "core.empty has 0 characters", "core.long has 262145 characters; from 1 to 262144 fit",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\ndoes not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "core.good") {
		t.Errorf("error %v names a good policy", err)
	}
}
