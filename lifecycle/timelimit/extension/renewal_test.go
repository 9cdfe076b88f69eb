// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// asRenewal makes an Extension the owner's request to renew the project.
func asRenewal(e *v1alpha1.Extension) {
	e.Spec.Action, e.Spec.By = v1alpha1.ActionRenew, nil
	e.Spec.Target = v1alpha1.ExtensionTarget{APIVersion: "sluice.dev/v1alpha1", Kind: "Project", Name: testNamespace}
	e.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "anna"}
}

// byDean makes it a request of an administrator for the other owner.
func byDean(e *v1alpha1.Extension) {
	e.Annotations, e.Spec.OnBehalfOf = map[string]string{v1alpha1.AnnotationCreatedBy: "dean@example.org"}, "ben@example.org"
}

func byKim(e *v1alpha1.Extension) {
	e.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "kim@example.org"}
}

// newRenewalFixture returns a fixture with that self-service of renewals.
func newRenewalFixture(t *testing.T, selfService *int32, objects ...client.Object) *fixture {
	t.Helper()
	w := newFixture(t, objects...)
	w.updateDepartment(func(d *v1alpha1.Department) { d.Spec.Projects.Renewals.SelfService = selfService })
	return w
}

func (w *fixture) updateDepartment(change func(*v1alpha1.Department)) {
	w.t.Helper()
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(department), department); err != nil {
		w.t.Fatal(err)
	}
	change(department)
	if err := w.client.Update(w.t.Context(), department); err != nil {
		w.t.Fatal(err)
	}
}

// updateProjectStatus updates the project's status like package expiry. It never crashes.
func (w *fixture) updateProjectStatus(change func(*v1alpha1.ProjectStatus)) {
	w.t.Helper()
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
		w.t.Fatal(err)
	}
	change(&project.Status)
	crashAt := w.crashAt
	w.crashAt = 0
	defer func() { w.crashAt = crashAt }()
	if err := w.client.Status().Update(w.t.Context(), project); err != nil {
		w.t.Fatal(err)
	}
}

// applyRenewal applies an approved renewal like package expiry: first to the project, then to the Extension.
func (w *fixture) applyRenewal(name string) {
	w.t.Helper()
	renewal := w.listExtensions()[name]
	w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) {
		if s.Expiry == nil {
			s.Expiry = &v1alpha1.ProjectExpiry{}
		}
		if renewal.Status.DecidedBy == "" {
			s.Expiry.SelfServiceRenewals++
		}
		s.Phase = v1alpha1.ProjectActive
	})
	w.updateExtension(name, markApplied)
}

// A department renews each project as often as it says, however often its Extensions are deleted. Both sides get a mail
// of each request and each decision.
func TestRenewalsWithinSelfService(t *testing.T) {
	w := newRenewalFixture(t, ptr.To[int32](1), newExtension("a", asRenewal))
	w.reconcileAll()
	status := w.listExtensions()["a"].Status
	if status.Decision != v1alpha1.ExtensionApproved || status.DecidedBy != "" || status.Message != "granted by the department's self-service: 1 of 1" {
		t.Fatalf("status %+v", status)
	}
	if notices := w.listNotices(v1alpha1.NoticeExtensionDecided); len(notices) > 0 {
		t.Errorf("announced before the project was renewed: %v", sortedKeys(notices))
	}
	w.applyRenewal("a")
	w.reconcileAll()
	notices := w.listNotices(v1alpha1.NoticeExtensionDecided)
	both := func(name string) []string {
		return []string{"anna@example.org " + name, "ben@example.org " + name, "dean@example.org " + name, "desk@example.org " + name}
	}
	// The owners get the mail of the renewal, ProjectRenewed.
	if diff := cmp.Diff([]string{"dean@example.org a", "desk@example.org a"}, sortedKeys(notices)); diff != "" {
		t.Fatalf("notices (-want +got):\n%s", diff)
	}
	inputs := map[string]string{
		"project": testNamespace, "department": "students", "targetKind": "Project", "targetName": testNamespace, "reason": "nearly done",
		"requestedBy": "anna", "onBehalfOf": "", "decision": "Approved", "decidedBy": "", "newEnd": "2026-11-22T16:00:00Z", "used": "1", "allowed": "1",
	}
	if diff := cmp.Diff(inputs, notices["desk@example.org a"].Spec.Inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal ExtensionApproved renewal: approved by the department's self-service: granted by the department's self-service: 1 of 1"}, w.recordedEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// The second one, by an administrator after the first was deleted, waits for a decision.
	if err := w.client.Delete(t.Context(), w.listExtensions()["a"]); err != nil {
		t.Fatal(err)
	}
	w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) { s.Phase = v1alpha1.ProjectExpired })
	if err := w.client.Create(t.Context(), newExtension("b", asRenewal, byDean)); err != nil {
		t.Fatal(err)
	}
	w.reconcileAll()
	b := w.listExtensions()["b"]
	if open := appliedCondition(b); b.Status.Decision != "" || open == nil || open.Reason != v1alpha1.ReasonAwaitingDecision ||
		open.Message != "the department grants 1 by itself, and 1 were granted: department-administrator decides" {
		t.Errorf("status %+v", b.Status)
	}
	requests := w.listNotices(v1alpha1.NoticeExtensionRequested)
	if diff := cmp.Diff(both("b"), sortedKeys(requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for recipient, informed := range map[string]string{"anna": "true", "ben": "true", "dean": "", "desk": ""} {
		n := requests[recipient+"@example.org b"]
		if got := n.Spec.Inputs[mail.InputInformed]; got != informed || n.Spec.Inputs[mail.InputOnBehalfOf] != "ben@example.org" {
			t.Errorf("inputs to %s: %v", recipient, n.Spec.Inputs)
		}
	}
	if events := strings.Join(w.recordedEvents(), "\n"); !strings.Contains(events, "renewal requested; the department grants 1 by itself") {
		t.Errorf("events: %s", events)
	}
	before := w.calls
	if w.reconcileAll(); w.calls != before {
		t.Errorf("%d writes when nothing changes", w.calls-before)
	}
	w.updateExtension("b", func(s *v1alpha1.ExtensionStatus) {
		s.Decision, s.DecidedBy = v1alpha1.ExtensionDenied, "dean@example.org"
	})
	w.reconcileAll()
	if c := appliedCondition(w.listExtensions()["b"]); c.Reason != v1alpha1.ReasonDenied || c.Status != metav1.ConditionFalse {
		t.Errorf("condition of b: %+v", c)
	}
	if got := w.listNotices(v1alpha1.NoticeExtensionDecided); got["anna@example.org b"] == nil || got["desk@example.org b"] == nil {
		t.Errorf("the refusal reached %v", sortedKeys(got))
	}
}

// What no person needs to decide is decided at once, and all else by the approvers of renewals.
func TestEvaluateRenewal(t *testing.T) {
	pending := func(changes ...func(*v1alpha1.Extension)) *v1alpha1.Extension {
		return newExtension("other", append([]func(*v1alpha1.Extension){asRenewal}, changes...)...)
	}
	expired := func(p *v1alpha1.Project, _ *v1alpha1.Department) { p.Status.Phase = v1alpha1.ProjectExpired }
	renewed := func(p *v1alpha1.Project, _ *v1alpha1.Department) { p.Status.Phase = v1alpha1.ProjectActive }
	confirmed := func(p *v1alpha1.Project, d *v1alpha1.Department) {
		d.Spec.Projects.AtExpiry, p.Status.Phase = v1alpha1.ExpiryConfirm, v1alpha1.ProjectPendingDeletion
		p.Status.Expiry.SelfServiceRenewals = 41
	}
	granting := func(n int32) func(*v1alpha1.Project, *v1alpha1.Department) {
		return func(_ *v1alpha1.Project, d *v1alpha1.Department) { d.Spec.Projects.Renewals.SelfService = &n }
	}
	type changes = []func(*v1alpha1.Project, *v1alpha1.Department)
	const asked = v1alpha1.ExtensionDecision("")
	tests := map[string]struct {
		extension *v1alpha1.Extension
		changes   changes
		others    []v1alpha1.Extension
		want      v1alpha1.ExtensionDecision
		code      string
	}{
		"the default":                 {changes: nil, want: asked, code: mail.CauseNoSelfService},
		"within self-service":         {changes: changes{granting(3)}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"after the expiry":            {changes: changes{granting(3), expired}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"beyond self-service":         {changes: changes{granting(2)}, want: asked, code: mail.CauseSelfServiceLimitReached},
		"a confirmation":              {changes: changes{confirmed}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"a limited confirmation":      {changes: changes{confirmed, granting(3)}, want: asked, code: mail.CauseSelfServiceLimitReached},
		"on behalf of an owner":       {extension: newExtension("a", asRenewal, byDean), changes: changes{granting(3)}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"renewed meanwhile":           {changes: changes{granting(3), renewed}, want: v1alpha1.ExtensionDenied, code: mail.CauseNotRenewable},
		"of a member":                 {extension: newExtension("a", asRenewal, byKim), changes: changes{granting(3)}, want: v1alpha1.ExtensionDenied, code: mail.CauseRequesterNotOwner},
		"one was requested before":    {changes: changes{granting(3)}, others: []v1alpha1.Extension{*pending(requestedAgo(2 * time.Hour))}, want: v1alpha1.ExtensionDenied, code: mail.CauseRenewalPending},
		"one was requested after":     {changes: changes{granting(3)}, others: []v1alpha1.Extension{*pending(requestedAgo(time.Minute))}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"one was approved":            {changes: changes{granting(3)}, others: []v1alpha1.Extension{*pending(requestedAgo(0), approvedBy("dean"))}, want: v1alpha1.ExtensionDenied, code: mail.CauseRenewalPending},
		"one was denied":              {changes: changes{granting(3)}, others: []v1alpha1.Extension{*pending(withRefusal)}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
		"a workload has more to come": {changes: changes{granting(3)}, others: []v1alpha1.Extension{*newExtension("other", requestedAgo(2*time.Hour))}, want: v1alpha1.ExtensionApproved, code: codeSelfService},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			q := &request{Extension: tc.extension, project: &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}, department: &v1alpha1.Department{}}
			if q.Extension == nil {
				q.Extension = newExtension("a", asRenewal)
			}
			q.project.Spec.Owners = []v1alpha1.Owner{{User: "anna"}, {Contact: v1alpha1.Contact{Email: "ben@example.org"}}}
			q.project.Status = v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectExpiring, Expiry: &v1alpha1.ProjectExpiry{SelfServiceRenewals: 2}}
			for _, change := range tc.changes {
				change(q.project, q.department)
			}
			got, why := evaluateRenewal(q, append(tc.others, *q.Extension))
			if got != tc.want || why.code != tc.code {
				t.Errorf("%q, %s; want %q, %s", got, why.code, tc.want, tc.code)
			}
			if parsed, ok := parseExplanation(why.String()); !ok || parsed != why && why.allowed > 0 {
				t.Errorf("%q is parsed as %+v", why, parsed)
			}
		})
	}
}

// A project without a phase, such as one restored without its status, may be about to expire. Nothing is decided until its
// phase is known. Guards invariant 11 of the design.
func TestRenewalWaitsForPhase(t *testing.T) {
	w := newRenewalFixture(t, ptr.To[int32](1), newExtension("a", asRenewal))
	w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) { s.Phase = "" })
	w.reconcileAll()
	if status := w.listExtensions()["a"].Status; status.Decision != "" || len(status.Conditions) > 0 {
		t.Errorf("status %+v", status)
	}
	w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) { s.Phase = v1alpha1.ProjectExpired })
	if requests := w.reconciler.mapProjectToRenewals(t.Context(), &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}); len(requests) != 1 {
		t.Errorf("the new phase enqueues %v", requests)
	}
	w.reconcileAll()
	if status := w.listExtensions()["a"].Status; status.Decision != v1alpha1.ExtensionApproved {
		t.Errorf("status %+v", status)
	}
}

// Package expiry found the project renewed already when the approval came.
func TestLateApprovalIsAnnounced(t *testing.T) {
	w := newRenewalFixture(t, nil, newExtension("a", asRenewal, approvedBy("dean"), withDecisionRequested))
	w.reconcileAll()
	if w.calls != 0 {
		t.Fatalf("%d writes before the renewal is applied", w.calls)
	}
	w.updateExtension("a", func(s *v1alpha1.ExtensionStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAlreadyRenewed, Message: "it was renewed before",
		})
	})
	w.reconcileAll()
	e := w.listExtensions()["a"]
	n := w.listNotices(v1alpha1.NoticeExtensionDecided)["anna@example.org a"]
	if !isDecisionAnnounced(e) || appliedCondition(e).Reason != v1alpha1.ReasonAlreadyRenewed || n == nil || n.Spec.Inputs[mail.InputCause] != mail.CauseNotRenewable {
		t.Errorf("status %+v, notice %+v", e.Status, n)
	}
}

// After a crash at any write, one of two renewals that were requested at once is granted, and each request and each
// decision is announced once.
func TestRenewalAfterCrashAtEveryWrite(t *testing.T) {
	for _, written := range []bool{false, true} {
		for crashAt := 1; ; crashAt++ {
			w := newRenewalFixture(t, ptr.To[int32](1), newExtension("a", asRenewal), newExtension("b", asRenewal, byDean))
			w.crashAt, w.crashAfterWrite = crashAt, written
			w.reconcileAll()
			got := w.listExtensions()
			if got["a"].Status.Decision != v1alpha1.ExtensionApproved || got["b"].Status.Decision != v1alpha1.ExtensionDenied {
				t.Fatalf("crash at %d: %q and %q", crashAt, got["a"].Status.Decision, got["b"].Status.Decision)
			}
			w.applyRenewal("a")
			w.reconcileAll()
			if err := w.client.Create(t.Context(), newExtension("c", asRenewal)); err != nil {
				_ = w.client.Create(t.Context(), newExtension("c", asRenewal))
			}
			w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) { s.Phase = v1alpha1.ProjectExpiring })
			w.reconcileAll()
			if decided, requested := len(w.listNotices(v1alpha1.NoticeExtensionDecided)), len(w.listNotices(v1alpha1.NoticeExtensionRequested)); decided != 6 || requested != 4 {
				t.Errorf("crash at %d: %d notices of decisions, %d of requests; want 6, 4", crashAt, decided, requested)
			}
			if c := w.listExtensions()["c"]; c.Status.Decision != "" || !awaitsDecision(c) {
				t.Errorf("crash at %d: a second one without approval: %+v", crashAt, c.Status)
			}
			if w.calls < crashAt {
				break
			}
		}
	}
}
