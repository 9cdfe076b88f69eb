// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

var (
	noon  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	later = metav1.NewTime(noon.AddDate(0, 6, 0))
)

func quota(name, hard, counted, used string) corev1.ResourceQuota {
	list := func(value string) corev1.ResourceList {
		return corev1.ResourceList{"requests.sluice.dev/gpu-milli." + corev1.ResourceName(name): resource.MustParse(value)}
	}
	return corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: list(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: list(counted), Used: list(used)},
	}
}

func TestStatus(t *testing.T) {
	deleted := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}}}
	counted := quota("dgx", "1000", "1000", "0")
	fault := func(ofQuota bool) []render.Fault {
		return []render.Fault{{Policy: "p", Quota: ofQuota, Err: errors.New("cannot be had")}}
	}
	tests := map[string]struct {
		project v1alpha1.Project
		outcome Outcome
		phase   v1alpha1.ProjectPhase
		ready   string // reason; True where it is Ready
		quota   string // reason; True where it is Applied, no condition where it is empty
		says    string
	}{
		"governed": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{counted}},
			phase:   v1alpha1.ProjectActive, ready: v1alpha1.ReasonReady, quota: v1alpha1.ReasonApplied, says: "is governed",
		},
		"refused": {
			outcome: Outcome{Refusal: &tenancy.Refusal{Reason: tenancy.ReasonNamespaceTaken, Message: "taken"}},
			phase:   v1alpha1.ProjectActive, ready: tenancy.ReasonNamespaceTaken, says: "taken",
		},
		"deleted": {
			project: deleted, phase: v1alpha1.ProjectDeleting, ready: ReasonDeleting, says: "to go",
		},
		"not counted": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{counted, quota("old", "2000", "1000", "0")}},
			phase:   v1alpha1.ProjectActive, ready: v1alpha1.ReasonQuotaNotCounted, quota: v1alpha1.ReasonQuotaNotCounted, says: "counted old;",
		},
		"no room for what runs there": {
			outcome: Outcome{
				Pools: []facts.Pool{{Name: "dgx", Limit: 1000}}, Full: true, Looked: true,
				Strays: []Stray{{Pod: "a", Pool: "dgx", Share: 1000}, {Pod: "b", Pool: "dgx", Share: 500}},
			},
			phase: v1alpha1.ProjectActive, ready: v1alpha1.ReasonNoRoomForUncounted, quota: v1alpha1.ReasonNoRoomForUncounted,
			says: "GPU pods in it, a, b: they hold 1.5 GPUs of node pool dgx, and the project may have 1 GPU there;",
		},
		"a quota that cannot be had": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{counted}, Faults: fault(true)},
			phase:   v1alpha1.ProjectActive, ready: ReasonObjectsRefused, quota: ReasonObjectsRefused, says: "policy p: cannot be had",
		},
		"another object that cannot be had": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{counted}, Faults: fault(false)},
			phase:   v1alpha1.ProjectActive, ready: ReasonObjectsRefused, quota: v1alpha1.ReasonApplied, says: "policy p: cannot be had",
		},
		"a pool that is missing": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{counted}, MissingPools: []string{"h200", "a100"}},
			phase:   v1alpha1.ProjectActive, ready: v1alpha1.ReasonNodePoolMissing, quota: v1alpha1.ReasonApplied, says: "no node pool h200, a100;",
		},
		"several": {
			outcome: Outcome{Quotas: []corev1.ResourceQuota{quota("dgx", "1", "2", "0")}, MissingPools: []string{"h200"}},
			phase:   v1alpha1.ProjectActive, ready: v1alpha1.ReasonSeveral, quota: v1alpha1.ReasonQuotaNotCounted, says: "no node pool h200;",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.project.Generation = 7
			got := Status(&tc.project, tc.outcome, later, metav1.NewTime(noon))
			if got.Phase != tc.phase || !got.PhaseSince.Equal(&later) || got.ObservedGeneration != 7 {
				t.Errorf("phase %s since %v, generation %d", got.Phase, got.PhaseSince, got.ObservedGeneration)
			}
			holds(t, got.Conditions, v1alpha1.ConditionReady, tc.ready, v1alpha1.ReasonReady)
			holds(t, got.Conditions, v1alpha1.ConditionQuotaApplied, tc.quota, v1alpha1.ReasonApplied)
			if ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); ready != nil && !strings.Contains(ready.Message, tc.says) {
				t.Errorf("Ready says %q, want %q", ready.Message, tc.says)
			}
			tc.project.Status = got
			if again := Status(&tc.project, tc.outcome, metav1.Now(), metav1.Now()); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("the second pass says something else: %+v", again)
			}
		})
	}
}

// holds checks that the condition has the reason, is true for one reason alone,
// and speaks of this generation in machine time.
func holds(t *testing.T, conditions []metav1.Condition, kind, reason, reasonIfTrue string) {
	t.Helper()
	got := meta.FindStatusCondition(conditions, kind)
	if (got == nil) != (reason == "") {
		t.Fatalf("%s = %+v, want the reason %q", kind, got, reason)
	}
	if got == nil {
		return
	}
	status := metav1.ConditionFalse
	if reason == reasonIfTrue {
		status = metav1.ConditionTrue
	}
	if got.Status != status || got.Reason != reason || got.ObservedGeneration != 7 || !got.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("%s = %+v, want %s %s of generation 7, at machine time", kind, got, status, reason)
	}
}

// A refusal says nothing of the quotas: what was said of an earlier generation
// stays, and does not hold for this one.
func TestRefusalKeepsWhatIsKnownOfTheQuotas(t *testing.T) {
	p := &v1alpha1.Project{}
	p.Generation = 7
	p.Status = Status(p, Outcome{}, later, later)
	p.Generation = 8
	got := Status(p, Outcome{Refusal: &tenancy.Refusal{Reason: v1alpha1.ReasonDepartmentMissing, Message: "gone"}}, later, later)
	if c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionQuotaApplied); c == nil || c.ObservedGeneration != 7 {
		t.Errorf("QuotaApplied = %+v, want that of generation 7", c)
	}
}

func TestLongMessagesAreClipped(t *testing.T) {
	long := strings.Repeat("ü", 40000)
	outcome := Outcome{Faults: []render.Fault{{Err: errors.New(long)}}}
	got := Status(&v1alpha1.Project{}, outcome, later, later).Conditions[0].Message
	if len(got) > 32768 || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü ...") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-10:])
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
