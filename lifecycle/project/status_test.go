// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

var (
	noon  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	later = metav1.NewTime(noon.AddDate(0, 6, 0))
)

func TestStatus(t *testing.T) {
	refusal := &tenancy.Refusal{Reason: tenancy.ReasonNamespaceTaken, Message: "taken"}
	deleted := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}}}
	tests := map[string]struct {
		project v1alpha1.Project
		refusal *tenancy.Refusal
		phase   v1alpha1.ProjectPhase
		status  metav1.ConditionStatus
		reason  string
	}{
		"governed": {v1alpha1.Project{}, nil, v1alpha1.ProjectActive, metav1.ConditionTrue, v1alpha1.ReasonReady},
		"refused":  {v1alpha1.Project{}, refusal, v1alpha1.ProjectActive, metav1.ConditionFalse, tenancy.ReasonNamespaceTaken},
		"deleted":  {deleted, nil, v1alpha1.ProjectDeleting, metav1.ConditionFalse, ReasonDeleting},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.project.Generation = 7
			got := Status(&tc.project, tc.refusal, later, metav1.NewTime(noon))
			ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
			if got.Phase != tc.phase || !got.PhaseSince.Equal(&later) || got.ObservedGeneration != 7 {
				t.Errorf("phase %s since %v, generation %d", got.Phase, got.PhaseSince, got.ObservedGeneration)
			}
			if ready == nil || ready.Status != tc.status || ready.Reason != tc.reason || !ready.LastTransitionTime.Time.Equal(noon) {
				t.Errorf("Ready = %+v, want %s %s at machine time", ready, tc.status, tc.reason)
			}
			tc.project.Status = got
			if again := Status(&tc.project, tc.refusal, metav1.Now(), metav1.Now()); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("the second pass says something else: %+v", again)
			}
		})
	}
}

func TestComesFirst(t *testing.T) {
	at := func(name string, created time.Time, holds bool) *v1alpha1.Project {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(created)}}
		if holds {
			p.Status.Namespace = &v1alpha1.ProjectNamespace{}
		}
		return p
	}
	tests := map[string]struct{ first, second *v1alpha1.Project }{
		"who has it, though younger": {at("b", noon.Add(time.Hour), true), at("a", noon, false)},
		"the older":                  {at("b", noon, false), at("a", noon.Add(time.Hour), false)},
		"else by name":               {at("a", noon, false), at("b", noon, false)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !comesFirst(tc.first, tc.second) || comesFirst(tc.second, tc.first) {
				t.Errorf("%s does not come before %s, or both come first", tc.first.Name, tc.second.Name)
			}
		})
	}
}
