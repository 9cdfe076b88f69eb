// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

func at(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }

const month = 30 * 24 * time.Hour

// asking is an Extension by a day for the Job training, asked for an hour ago.
func asking(name string, change ...func(*v1alpha1.Extension)) *v1alpha1.Extension {
	e := &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lab, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: *at(time.Hour),
			Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "kim@example.org"},
		},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: "training"},
			Action: v1alpha1.ActionExtend, By: ptr.To(period.MustParseDuration("24h")), Reason: "nearly done",
		},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func by(text string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.Spec.By = ptr.To(period.MustParseDuration(text)) }
}

func askedAgo(ago time.Duration) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.CreationTimestamp = *at(ago) }
}

func granted(ago time.Duration) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Status.Decision, e.Status.DecidedAt = v1alpha1.ExtensionApproved, at(ago)
	}
}

func approvedBy(who string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Status.Decision, e.Status.DecidedBy, e.Status.DecidedAt = v1alpha1.ExtensionApproved, who, at(0)
	}
}

func refused(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionRefused }

func waiting(e *v1alpha1.Extension) {
	e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRequested}}
}

func forAnother(e *v1alpha1.Extension) { e.Spec.Target.Name = "other" }

func given(name string, ago time.Duration, selfService bool) v1alpha1.ClockExtension {
	return v1alpha1.ClockExtension{Name: name, By: period.MustParseDuration("24h"), At: *at(ago), SelfService: selfService}
}

func TestAnswer(t *testing.T) {
	two := terms{count: 2, each: period.MustParseDuration("24h"), window: period.MustParseDuration("30d")}
	tests := map[string]struct {
		terms  terms
		asked  *v1alpha1.Extension
		clock  []v1alpha1.ClockExtension
		others []*v1alpha1.Extension
		want   string // the end of why; of a grant where it says n of m
	}{
		"the first":                     {terms: two, want: "1 of 2 within 30d"},
		"none by itself":                {terms: terms{each: two.each, window: two.window}, want: "nothing by itself"},
		"too long":                      {terms: two, asked: asking("e", by("24h1s")), want: "at most 24h at once by itself"},
		"as long in other words":        {terms: two, asked: asking("e", by("1d")), want: "1 of 2 within 30d"},
		"one is in the clock":           {terms: two, clock: []v1alpha1.ClockExtension{given("a", time.Hour, true)}, want: "2 of 2 within 30d"},
		"two are":                       {terms: two, clock: []v1alpha1.ClockExtension{given("a", time.Hour, true), given("b", time.Hour, true)}, want: "2 were"},
		"one of the two by an approver": {terms: two, clock: []v1alpha1.ClockExtension{given("a", time.Hour, true), given("b", time.Hour, false)}, want: "2 of 2 within 30d"},
		"one of the two long ago":       {terms: two, clock: []v1alpha1.ClockExtension{given("a", month, true), given("b", month-time.Second, true)}, want: "2 of 2 within 30d"},
		"granted, not in the clock yet": {terms: two, others: []*v1alpha1.Extension{asking("a", granted(0)), asking("b", granted(time.Hour))}, want: "2 were"},
		"granted, and in the clock":     {terms: two, clock: []v1alpha1.ClockExtension{given("a", time.Hour, true)}, others: []*v1alpha1.Extension{asking("a", granted(time.Hour))}, want: "2 of 2 within 30d"},
		"granted before a reset":        {terms: two, others: []*v1alpha1.Extension{asking("a", granted(10*24*time.Hour)), asking("b", granted(month))}, want: "2 of 2 within 30d"},
		"of a name that was used":       {terms: two, asked: asking("a"), clock: []v1alpha1.ClockExtension{given("a", time.Hour, true)}, want: "2 of 2 within 30d"},
		"others that do not count": {terms: two, others: []*v1alpha1.Extension{
			asking("a", refused), asking("b", approvedBy("dean")), asking("c", granted(0), forAnother), asking("d", forAnother, askedAgo(2*time.Hour)),
			asking("f", askedAgo(2*time.Hour), by("48h")), asking("g", askedAgo(2*time.Hour), waiting),
		}, want: "1 of 2 within 30d"},
		"two were asked for before": {terms: two, others: []*v1alpha1.Extension{asking("y", askedAgo(2*time.Hour)), asking("z", askedAgo(3*time.Hour))}, want: "2 were"},
		"two in the same second":    {terms: two, others: []*v1alpha1.Extension{asking("d"), asking("f")}, want: "2 of 2 within 30d"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clockOfJob("training")
			clock.Status.Extensions = tc.clock
			asked := tc.asked
			if asked == nil {
				asked = asking("e")
			}
			all := []v1alpha1.Extension{*asked}
			for _, other := range tc.others {
				all = append(all, *other)
			}
			got := tc.terms.answer(asked, all, clock, now)
			if !strings.HasSuffix(got.why.String(), tc.want) || got.granted != strings.Contains(tc.want, " of ") {
				t.Errorf("granted = %v: %q, want it to end in %q", got.granted, got.why, tc.want)
			}
		})
	}
}

func TestTermsOfASilentDepartment(t *testing.T) {
	want := terms{each: period.MustParseDuration("24h"), window: period.MustParseDuration("30d")}
	if got := termsOf(&v1alpha1.Department{}); got != want {
		t.Errorf("terms = %+v, want %+v", got, want)
	}
}
