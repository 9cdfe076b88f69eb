// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/live"
)

func TestReadySaysWhetherPodsAreJudgedByThePolicy(t *testing.T) {
	good := engine.Report{Generation: 2, InForce: true, EnforcedGeneration: 2}
	broken := engine.Report{Generation: 3, InForce: true, EnforcedGeneration: 2, Problems: []engine.Problem{{Line: 1, Column: 3, Message: "no rule"}}}
	wrong := engine.Report{Generation: 3, InForce: true, EnforcedGeneration: 2, Problems: []engine.Problem{{Message: `spec.parameters.a: Invalid value: 1: must be true or false`}}}
	fresh := wrong
	fresh.EnforcedGeneration = 0
	for name, tt := range map[string]struct {
		report          engine.Report
		standIns        []live.StandIn
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
		"replaced": {
			good,
			[]live.StandIn{{Policy: "part", Projects: []string{"a"}}, {Policy: "team"}},
			"False", "Replaced",
			"policy team stands in its place (spec.replaces); pods are not judged by this one", "True",
		},
		"replaced for some": {
			good,
			[]live.StandIn{{Policy: "part", Projects: []string{"a", "b"}}, {Policy: "rest", Departments: []string{"c"}}},
			"True", "Replaced",
			"in force, but policy part stands in its place (spec.replaces) for pods of projects a, b, and policy rest stands in its place (spec.replaces) for pods of departments c", "True",
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NewTime(time.Unix(1_700_000_000, 0))
			status := Status(&v1alpha1.Policy{}, tt.report, tt.standIns, now)
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
