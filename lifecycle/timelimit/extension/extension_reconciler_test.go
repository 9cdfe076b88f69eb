// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func appliedCondition(e *v1alpha1.Extension) *metav1.Condition {
	return meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionApplied)
}

func markApplied(s *v1alpha1.ExtensionStatus) {
	s.NewEnd = &metav1.Time{Time: testTime.Add(24 * time.Hour)}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: "Extended"})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestSelfServiceGrantsWithinLimits(t *testing.T) {
	w := newFixture(t, newJobClock("training"), newExtension("a"))
	w.reconcileAll()
	e := w.listExtensions()["a"]
	want := v1alpha1.ExtensionStatus{
		Decision: v1alpha1.ExtensionApproved, DecidedAt: e.Status.DecidedAt,
		Message: "granted by the department's self-service: 1 of 2 within 30d",
	}
	if diff := cmp.Diff(want, e.Status); diff != "" || !e.Status.DecidedAt.Time.Equal(testTime) {
		t.Errorf("at %v, status (-want +got):\n%s", e.Status.DecidedAt, diff)
	}
	if notices := w.listNotices(v1alpha1.NoticeExtensionDecided); len(notices) > 0 {
		t.Errorf("announced before the clock has the extension: %v", sortedKeys(notices))
	}
	w.updateExtension("a", markApplied)
	w.reconcileAll()
	notices := w.listNotices(v1alpha1.NoticeExtensionDecided)
	if diff := cmp.Diff([]string{"kim@example.org a"}, sortedKeys(notices)); diff != "" {
		t.Fatalf("notices (-want +got):\n%s", diff)
	}
	inputs := map[string]string{
		"project": testNamespace, "department": "students", "targetKind": "Job", "targetName": "training", "by": "24h", "reason": "nearly done",
		"requestedBy": "kim@example.org", "decision": "Approved", "decidedBy": "", "newEnd": "2026-11-22T16:00:00Z",
		"used": "1", "allowed": "2", "window": "30d", "maxDuration": "24h",
	}
	if diff := cmp.Diff(inputs, notices["kim@example.org a"].Spec.Inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal ExtensionApproved 24h more: approved by the department's self-service: granted by the department's self-service: 1 of 2 within 30d"}, w.recordedEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	before := w.calls
	if w.reconcileAll(); w.calls != before {
		t.Errorf("%d writes when nothing changes", w.calls-before)
	}
}

func TestDecisionIsRequestedBeyondLimits(t *testing.T) {
	w := newFixture(t, newJobClock("training"), newExtension("a"), newExtension("b"), newExtension("c"), newExtension("d", withLength("48h")))
	w.reconcileAll()
	got := w.listExtensions()
	for name, want := range map[string]v1alpha1.ExtensionDecision{"a": v1alpha1.ExtensionApproved, "b": v1alpha1.ExtensionApproved, "c": "", "d": ""} {
		if got[name].Status.Decision != want {
			t.Errorf("%s is %q, want %q", name, got[name].Status.Decision, want)
		}
	}
	open := appliedCondition(got["c"])
	if open == nil || open.Reason != v1alpha1.ReasonAwaitingDecision ||
		open.Message != "the department grants 2 within 30d by itself, and 2 were granted: department-administrator or editor decides" {
		t.Errorf("condition of c: %+v", open)
	}
	want := []string{"dean@example.org c", "dean@example.org d", "desk@example.org c", "desk@example.org d"}
	if diff := cmp.Diff(want, sortedKeys(w.listNotices(v1alpha1.NoticeExtensionRequested))); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	events := strings.Join(w.recordedEvents(), "\n")
	if !strings.Contains(events, "48h more requested; the department grants at most 24h at once by itself: department-administrator or editor decides (sluice approve d -n lab)") {
		t.Errorf("events: %s", events)
	}
	// Two months later two more could be granted. Those that await a decision still do.
	w.reconciler.Clock = fixedClock(testTime.Add(2 * month))
	w.reconcileAll()
	if e := w.listExtensions()["c"]; e.Status.Decision != "" {
		t.Errorf("c is %s without a decision of people", e.Status.Decision)
	}
	// People decide.
	w.updateExtension("c", func(s *v1alpha1.ExtensionStatus) {
		s.Decision, s.DecidedBy, s.Message = v1alpha1.ExtensionDenied, "dean", "others wait"
	})
	w.updateExtension("d", func(s *v1alpha1.ExtensionStatus) { s.Decision, s.DecidedBy = v1alpha1.ExtensionApproved, "dean" })
	w.reconcileAll()
	w.updateExtension("d", markApplied)
	w.reconcileAll()
	if c := appliedCondition(w.listExtensions()["c"]); c.Reason != v1alpha1.ReasonDenied || c.Status != metav1.ConditionFalse {
		t.Errorf("condition of c: %+v", c)
	}
	if diff := cmp.Diff([]string{"kim@example.org c", "kim@example.org d"}, sortedKeys(w.listNotices(v1alpha1.NoticeExtensionDecided))); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	wantEvents := []string{"Normal ExtensionDenied 24h more: denied by an approver: others wait", "Normal ExtensionApproved 48h more: approved by an approver"}
	if diff := cmp.Diff(wantEvents, w.recordedEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestExtensionOfMissingWorkloadIsDenied(t *testing.T) {
	gone := newJobClock("training")
	gone.Status.MissingSince = timeAgo(time.Hour)
	full := newJobClock("training")
	for i := range v1alpha1.MaxClockExtensions {
		full.Status.Extensions = append(full.Status.Extensions, newClockExtension(fmt.Sprint("e", i), 2*month, false))
	}
	tests := map[string]struct {
		clock     []client.Object
		extension *v1alpha1.Extension
		want      string
	}{
		"no clock":         {nil, newExtension("a"), "the workload does not exist any more"},
		"missing workload": {[]client.Object{gone}, newExtension("a"), "the workload does not exist any more"},
		"workload deleted while awaiting decision": {[]client.Object{gone}, newExtension("a", withDecisionRequested), "the workload does not exist any more"},
		"limit of extensions":                      {[]client.Object{full}, newExtension("a"), "the workload was extended 128 times, which is the limit"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, append(tc.clock, tc.extension)...)
			w.reconcileAll()
			e := w.listExtensions()["a"]
			if e.Status.Decision != v1alpha1.ExtensionDenied || e.Status.Message != tc.want || e.Status.DecidedBy != "" || e.Status.DecidedAt == nil {
				t.Errorf("status %+v", e.Status)
			}
			if !isDecisionAnnounced(e) || len(w.listNotices(v1alpha1.NoticeExtensionDecided)) != 1 {
				t.Error("the decision was not announced")
			}
		})
	}
}

func TestApprovedExtensionOfMissingWorkload(t *testing.T) {
	w := newFixture(t, newExtension("a", approvedBy("dean"), withDecisionRequested))
	w.reconcileAll()
	e := w.listExtensions()["a"]
	if c := appliedCondition(e); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonTargetNotFound || !isDecisionAnnounced(e) {
		t.Errorf("status %+v", e.Status)
	}
}

// The request of a project's deletion is decided and applied elsewhere, and so is an Extension in a namespace without project.
func TestDeletionRequestsAreIgnored(t *testing.T) {
	deletion := newExtension("a", func(e *v1alpha1.Extension) {
		asRenewal(e)
		e.Spec.Action = v1alpha1.ActionDelete
	})
	ungoverned := newExtension("b", func(e *v1alpha1.Extension) { e.Namespace = "ungoverned" })
	w := newFixture(t, deletion, ungoverned)
	w.reconcileAll()
	if w.calls != 0 {
		t.Errorf("%d writes", w.calls)
	}
}

// After a crash at any write, before or after the object was written, no more is granted
// than allowed, and each decision is announced once.
func TestReconcileAfterCrashAtEveryWrite(t *testing.T) {
	for _, written := range []bool{false, true} {
		for crashAt := 1; ; crashAt++ {
			w := newFixture(t, newJobClock("training"), newExtension("a"), newExtension("b"), newExtension("c"))
			w.crashAt, w.crashAfterWrite = crashAt, written
			w.reconcileAll()
			for name, e := range w.listExtensions() {
				if e.Status.Decision == v1alpha1.ExtensionApproved {
					w.updateExtension(name, markApplied)
				}
			}
			w.reconcileAll()
			var approved []string
			for name, e := range w.listExtensions() {
				if e.Status.Decision == v1alpha1.ExtensionApproved {
					approved = append(approved, name)
				}
			}
			slices.Sort(approved)
			if diff := cmp.Diff([]string{"a", "b"}, approved); diff != "" {
				t.Errorf("crash at %d: granted (-want +got):\n%s", crashAt, diff)
			}
			if n := len(w.listNotices(v1alpha1.NoticeExtensionRequested)); n != 2 {
				t.Errorf("crash at %d: %d notices request a decision, want 2", crashAt, n)
			}
			if n := len(w.listNotices(v1alpha1.NoticeExtensionDecided)); n != 2 {
				t.Errorf("crash at %d: %d notices announce a decision, want 2", crashAt, n)
			}
			if w.calls < crashAt {
				break
			}
		}
	}
}

// Two processes with different orders do not grant more.
func TestConcurrentReconcilersGrantOnce(t *testing.T) {
	w := newFixture(t, newJobClock("training"), newExtension("a"), newExtension("b"), newExtension("c"), newExtension("d"))
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: testNamespace, Name: name} }
	// The second has read everything before the first writes.
	var others []*request
	for _, name := range []string{"d", "c", "b", "a"} {
		q, err := w.reconciler.observe(t.Context(), key(name))
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, q)
	}
	w.reconcileAll()
	for _, q := range others {
		if err := w.reconciler.reconcileSelfService(t.Context(), q); err == nil {
			t.Errorf("the second process wrote %s, which the first had changed", q.Name)
		}
	}
	n := 0
	for _, e := range w.listExtensions() {
		if e.Status.Decision == v1alpha1.ExtensionApproved {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d were granted, want 2", n)
	}
}
