// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// Protects invariants 6 and 8: with crashes at any write, times without lifecycle and without mail, requests, holds, approved
// and dismissed deletions at any moment, no step comes without its full notice, each change is announced once, each renewal is
// applied once, and no approval outlives a renewal or a hold.
func TestNoHistoryLosesNotice(t *testing.T) {
	steps, applied, deleted := 0, int32(0), 0
	rapid.Check(t, func(rt *rapid.T) {
		action := rapid.SampledFrom([]v1alpha1.ExpiryAction{v1alpha1.ExpiryExpire, v1alpha1.ExpiryConfirm}).Draw(rt, "action")
		department := newStudents(rapid.SampledFrom([]string{"P2W", "P1M", "P2M"}).Draw(rt, "validity"), action)
		department.Spec.Holidays = holidays("2026-08-20", "2026-09-06", "2026-12-19", "2027-01-06")
		if rapid.Bool().Draw(rt, "no digest") {
			department.Spec.Notices.Digest = ""
		}
		c := newCluster(t, department, newThesis(spring, "anna", "ben"))
		h := &observedLife{cluster: c, terms: DepartmentTerms(department).StartingWith(c.project(), c.clock)}
		for i := range rapid.IntRange(10, 30).Draw(rt, "steps") {
			h.step(rt, i)
			h.check(rt)
		}
		steps += h.steps
		if c.isGone() {
			deleted++
			return
		}
		c.crashAt, c.paused, c.badAddresses, c.downAddresses = 0, false, nil, nil
		c.settle()
		h.check(rt)
		if c.isGone() {
			return
		}
		applied += h.requireRenewalsApplied(rt)
	})
	t.Logf("%d steps, %d renewals, %d deletions", steps, applied, deleted)
	if !t.Failed() && (steps == 0 || applied == 0 || deleted == 0) { // they are random: about 100, 20 and 25
		t.Error("the histories are too dull to show anything")
	}
}

// observedLife is a project, with what was seen of it.
type observedLife struct {
	*cluster
	terms    Terms
	former   *v1alpha1.ProjectStatus
	requests []*v1alpha1.Extension
	steps    int
}

// step lets one thing happen, and then lifecycle run, which may crash at a write.
func (h *observedLife) step(rt *rapid.T, i int) {
	h.t.Helper()
	c := h.cluster
	if c.crashAt = 0; c.isGone() {
		return
	}
	switch rapid.SampledFrom([]string{
		"next", "next", "next", "next", "next", "next", "next", "days", "weeks", "pause", "resume", "bad", "down", "request", "approve", "hold", "release",
	}).Draw(rt, "what") {
	case "days":
		c.clock.now = c.clock.now.Add(time.Duration(rapid.IntRange(1, 5*24).Draw(rt, "hours")) * time.Hour)
	case "weeks":
		c.clock.now = c.clock.now.AddDate(0, 0, 7*rapid.IntRange(1, 6).Draw(rt, "weeks"))
	case "pause":
		c.paused = true
	case "resume":
		c.paused = false
	case "bad":
		c.badAddresses["anna@example.org"] = !c.badAddresses["anna@example.org"]
	case "down":
		c.downAddresses["ben@example.org"] = !c.downAddresses["ben@example.org"]
	case "request":
		decision := rapid.SampledFrom([]v1alpha1.ExtensionDecision{"", v1alpha1.ExtensionApproved, v1alpha1.ExtensionDenied}).Draw(rt, "decision")
		h.requests = append(h.requests, c.request(fmt.Sprintf("renewal-%d", i), decision, ""))
	case "approve":
		for _, e := range h.requests {
			if e.Status.Decision == "" {
				c.decideRequest(e, v1alpha1.ExtensionApproved, "")
			}
		}
	case "hold":
		update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "an exam"} })
	case "release":
		update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = nil })
	default:
		if s := c.project().Status; s.DeletionRequest != "" && s.Expiry.Deletion == nil {
			h.decideDeletion(rt, s.DeletionRequest)
			break
		}
		if p, err := c.reconciler.decide(c.t.Context(), c.project(), true); err == nil && !p.nextChange().IsZero() {
			c.clock.now = policytime.Later(p.nextChange(), c.clock.now.Add(time.Second))
		}
	}
	if rapid.Bool().Draw(rt, "crash") {
		c.crashAt, c.crashAfter = c.writes+rapid.IntRange(1, 6).Draw(rt, "at write"), rapid.Bool().Draw(rt, "after it")
	}
	for range 3 {
		c.reconcile()
		h.check(rt)
		c.deliver()
	}
}

// decideDeletion approves or dismisses the deletion, if lifecycle has requested it.
func (h *observedLife) decideDeletion(rt *rapid.T, request string) {
	e := &v1alpha1.Extension{}
	err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "thesis", Name: request}, e)
	if err != nil || e.Status.Decision != "" {
		return
	}
	if rapid.IntRange(0, 3).Draw(rt, "dismiss") > 0 {
		h.decideRequest(e, v1alpha1.ExtensionApproved, "dean")
		return
	}
	if h.terms.AtExpiry != v1alpha1.ExpiryConfirm {
		e.Status.Until = ptr.To(period.DateOf(h.clock.now.AddDate(0, 0, rapid.IntRange(1, 90).Draw(rt, "until")), h.zone))
	}
	h.decideRequest(e, v1alpha1.ExtensionDenied, "dean")
}

// check fails if the project took a step without its full notice.
func (h *observedLife) check(rt *rapid.T) {
	if h.isGone() {
		h.requireApproved(rt)
		return
	}
	project := h.project()
	status := project.Status
	if status.Phase == v1alpha1.ProjectDeleting {
		h.requireApproved(rt)
	} else if e := status.Expiry; e != nil && e.Deletion != nil && status.Phase != v1alpha1.ProjectPendingDeletion {
		rt.Fatalf("at %s: %s, with the approval %+v", h.clock.now, status.Phase, e.Deletion)
	}
	before := h.former
	h.former = &status
	if before == nil || before.Next == nil || before.Next.Phase != status.Phase || before.Phase == status.Phase {
		return
	}
	h.steps++
	record := recordOf(before)
	s := h.terms.stepAfter(&record)
	var first, last time.Time
	for _, n := range h.notices() {
		if n.Status.SentAt == nil || n.Spec.Lead == nil || before.PhaseSince == nil || !h.warnsOf(&n, s.phase) {
			continue
		}
		// A warning belongs to the period whose end it names, which is before the step.
		if at := n.Status.SentAt.UTC(); !at.Before(h.terms.endOf(status.Periods-1)) || status.Periods == 1 {
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if n.Spec.Lead.Length() == s.shortest() && at.After(last) {
				last = at
			}
		}
	}
	now, calendar := h.clock.now, &h.terms.Calendar
	if first.IsZero() || last.IsZero() || calendar.After(first, s.longest()).After(now) || before.Next != nil && now.Before(before.Next.At.Time) {
		rt.Fatalf("%s at %s: first warned %s, last %s, leads %v, before %+v", status.Phase, now, first, last, s.leads, before.Next)
	}
	if h.paused {
		rt.Fatalf("%s at %s, while mail is paused", status.Phase, now)
	}
	if calendar.Postpone(now).After(now) {
		rt.Fatalf("%s at %s, in the holidays", status.Phase, now)
	}
	if isUnconfirmed := status.Phase == v1alpha1.ProjectPendingDeletion && h.terms.AtExpiry == v1alpha1.ExpiryConfirm; isUnconfirmed != (status.ClosedAt == nil) {
		rt.Fatalf("%s, closed at %v", status.Phase, status.ClosedAt)
	}
}

// requireApproved fails if the project's deletion began without approval, or earlier than seven days after the mail about it.
func (h *observedLife) requireApproved(rt *rapid.T) {
	e := h.former.Expiry
	if e == nil || e.Deletion == nil {
		rt.Fatalf("deleted at %s without approval: %+v", h.clock.now, h.former)
	}
	for _, n := range h.notices() {
		sent := n.Status.SentAt
		if n.Spec.Inputs[mail.InputCause] == mail.CauseDeletionApproved && sent != nil && !sent.Time.Before(e.Deletion.At.Time) &&
			!h.terms.Calendar.After(sent.Time, deletionNotice).After(h.clock.now) {
			return
		}
	}
	rt.Fatalf("deleted at %s without notice: %+v", h.clock.now, e.Deletion)
}

// warnsOf reports whether a Notice is a warning of a step.
func (h *observedLife) warnsOf(n *v1alpha1.Notice, step v1alpha1.ProjectPhase) bool {
	isApproval := n.Spec.Inputs[mail.InputCause] == mail.CauseDeletionApproved
	return n.Spec.Kind == (&pass{terms: h.terms}).warningKind(step) && isApproval == (step == v1alpha1.ProjectDeleting)
}

// requireRenewalsApplied fails if an approved renewal has no result, or the counter is not that of those that were applied.
func (h *observedLife) requireRenewalsApplied(rt *rapid.T) (applied int32) {
	for _, e := range h.requests {
		reason := h.appliedReason(e)
		if (e.Status.Decision == v1alpha1.ExtensionApproved) != (reason != "") {
			rt.Fatalf("%s is %s and %q", e.Name, e.Status.Decision, reason)
		}
		if meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionApplied) {
			applied++
		}
	}
	count := int32(0)
	if e := h.project().Status.Expiry; e != nil {
		count = e.SelfServiceRenewals
	}
	if count != applied {
		rt.Fatalf("%d renewals were counted, %d were applied", count, applied)
	}
	// A crash between the announcement and the change can announce a step that the renewal then prevents, and no other.
	announced := int32(0)
	for _, n := range h.notices() {
		if n.Spec.Kind == v1alpha1.NoticeProjectRenewed && n.Spec.Recipient.Email == "anna@example.org" {
			announced++
		}
	}
	if announced < applied {
		rt.Fatalf("%d of %d renewals were announced", announced, applied)
	}
	return applied
}
