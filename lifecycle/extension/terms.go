// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
	"sluice.dev/lifecycle/notices/message"
)

// What holds where a department says nothing, as its schema has it.
var (
	defaultEach   = period.MustParseDuration("24h")
	defaultWindow = period.MustParseDuration("30d")
)

// terms are what a department grants by itself: how many, of at most which length,
// within which time.
type terms struct {
	count        int
	each, window period.Duration
}

func termsOf(department *v1alpha1.Department) terms {
	said := department.Spec.Extensions
	t := terms{count: int(said.SelfService), each: defaultEach, window: defaultWindow}
	if said.Each != nil {
		t.each = *said.Each
	}
	if said.Window != nil {
		t.window = *said.Window
	}
	return t
}

// answer is what the terms say to an Extension, and why.
type answer struct {
	granted bool
	why     because
}

// answer is the department's to an undecided Extension for the clock's workload,
// where all are the Extensions of the namespace.
func (t terms) answer(asked *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time) answer {
	switch {
	case t.count == 0:
		return answer{why: because{code: message.BecauseNothingGranted}}
	case !t.short(asked):
		return answer{why: because{code: message.BecauseTooLong, each: t.each}}
	}
	used := t.used(asked, all, clock, now)
	if used >= t.count {
		return answer{why: because{code: message.BecauseLimitReached, used: used, allowed: t.count, window: t.window}}
	}
	return answer{granted: true, why: because{code: selfService, used: used + 1, allowed: t.count, window: t.window}}
}

func (t terms) short(e *v1alpha1.Extension) bool { return e.Spec.By.Length() <= t.each.Length() }

// used is how many were granted within the window, or are about to be. A workload
// may have had them before its time began anew, and then only the Extensions tell;
// an Extension may have been deleted since, and then only the clock does.
func (t terms) used(asked *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time) int {
	recent := func(at *metav1.Time) bool { return at == nil || at.Add(t.window.Length()).After(now) }
	counted := map[string]bool{}
	for i := range clock.Status.Extensions {
		if given := &clock.Status.Extensions[i]; given.SelfService && recent(&given.At) {
			counted[given.Name] = true
		}
	}
	for i := range all {
		e := &all[i]
		if e.Name == asked.Name || !clocks.Extends(e, clock) {
			continue
		}
		granted := e.Status.Decision == v1alpha1.ExtensionApproved && e.Status.DecidedBy == "" && recent(e.Status.DecidedAt)
		comesFirst := e.Status.Decision == "" && !leftToPeople(e) && t.short(e) && before(e, asked)
		if granted || comesFirst {
			counted[e.Name] = true
		}
	}
	return len(counted)
}

// before tells whether a was asked for before b: the names decide within a second.
func before(a, b *v1alpha1.Extension) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// leftToPeople tells whether somebody was asked to decide.
func leftToPeople(e *v1alpha1.Extension) bool {
	return meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced) != nil
}
