// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

var testTime = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

func timeAgo(ago time.Duration) *metav1.Time { return &metav1.Time{Time: testTime.Add(-ago)} }

const month = 30 * 24 * time.Hour

// newExtension returns an Extension by a day for the Job training, created an hour ago.
func newExtension(name string, change ...func(*v1alpha1.Extension)) *v1alpha1.Extension {
	e := &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: *timeAgo(time.Hour),
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

func withLength(text string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.Spec.By = ptr.To(period.MustParseDuration(text)) }
}

func requestedAgo(ago time.Duration) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.CreationTimestamp = *timeAgo(ago) }
}

func grantedAgo(ago time.Duration) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Status.Decision, e.Status.DecidedAt = v1alpha1.ExtensionApproved, timeAgo(ago)
	}
}

func approvedBy(who string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Status.Decision, e.Status.DecidedBy, e.Status.DecidedAt = v1alpha1.ExtensionApproved, who, timeAgo(0)
	}
}

func withRefusal(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionDenied }

func withDecisionRequested(e *v1alpha1.Extension) {
	e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRequested}}
}

func asApplied(e *v1alpha1.Extension) { markApplied(&e.Status) }

func withOtherTarget(e *v1alpha1.Extension) { e.Spec.Target.Name = "other" }

func newClockExtension(name string, ago time.Duration, selfService bool) v1alpha1.ClockExtension {
	return v1alpha1.ClockExtension{Name: name, By: period.MustParseDuration("24h"), At: *timeAgo(ago), SelfService: selfService}
}

func TestSelfServiceEvaluate(t *testing.T) {
	two := selfServiceLimits{count: 2, maxLength: period.MustParseDuration("24h"), window: period.MustParseDuration("30d")}
	tests := map[string]struct {
		limits    selfServiceLimits
		extension *v1alpha1.Extension
		clock     []v1alpha1.ClockExtension
		others    []*v1alpha1.Extension
		want      string // the end of the explanation; it contains " of " if granted
	}{
		"the first":                     {limits: two, want: "1 of 2 within 30d"},
		"no self-service":               {limits: selfServiceLimits{maxLength: two.maxLength, window: two.window}, want: "nothing by itself"},
		"too long":                      {limits: two, extension: newExtension("e", withLength("24h1s")), want: "at most 24h at once by itself"},
		"same length in another unit":   {limits: two, extension: newExtension("e", withLength("1d")), want: "1 of 2 within 30d"},
		"one in the clock":              {limits: two, clock: []v1alpha1.ClockExtension{newClockExtension("a", time.Hour, true)}, want: "2 of 2 within 30d"},
		"two in the clock":              {limits: two, clock: []v1alpha1.ClockExtension{newClockExtension("a", time.Hour, true), newClockExtension("b", time.Hour, true)}, want: "2 were granted"},
		"one of two by an approver":     {limits: two, clock: []v1alpha1.ClockExtension{newClockExtension("a", time.Hour, true), newClockExtension("b", time.Hour, false)}, want: "2 of 2 within 30d"},
		"one of two long ago":           {limits: two, clock: []v1alpha1.ClockExtension{newClockExtension("a", month, true), newClockExtension("b", month-time.Second, true)}, want: "2 of 2 within 30d"},
		"granted, not in the clock yet": {limits: two, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(0)), newExtension("b", grantedAgo(time.Hour))}, want: "2 were granted"},
		"granted, and in the clock":     {limits: two, clock: []v1alpha1.ClockExtension{newClockExtension("a", time.Hour, true)}, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(time.Hour))}, want: "2 of 2 within 30d"},
		"granted before a reset":        {limits: two, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(10*24*time.Hour)), newExtension("b", grantedAgo(month))}, want: "2 of 2 within 30d"},
		"another user's, for a former workload of the name": {limits: two, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(time.Hour), byDean, asApplied), newExtension("b", grantedAgo(time.Hour), byDean, asApplied)}, want: "1 of 2 within 30d"},
		"a manager's, not in the clock yet":                 {limits: two, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(time.Hour), byDean), newExtension("b", grantedAgo(time.Hour), byDean)}, want: "2 were granted"},
		"the user's, before a reset":                        {limits: two, others: []*v1alpha1.Extension{newExtension("a", grantedAgo(time.Hour), asApplied), newExtension("b", grantedAgo(time.Hour), asApplied)}, want: "2 were granted"},
		"reused name":                                       {limits: two, extension: newExtension("a"), clock: []v1alpha1.ClockExtension{newClockExtension("a", time.Hour, true)}, want: "2 of 2 within 30d"},
		"others do not count": {limits: two, others: []*v1alpha1.Extension{
			newExtension("a", withRefusal), newExtension("b", approvedBy("dean")), newExtension("c", grantedAgo(0), withOtherTarget), newExtension("d", withOtherTarget, requestedAgo(2*time.Hour)),
			newExtension("f", requestedAgo(2*time.Hour), withLength("48h")), newExtension("g", requestedAgo(2*time.Hour), withDecisionRequested),
		}, want: "1 of 2 within 30d"},
		"two earlier requests":   {limits: two, others: []*v1alpha1.Extension{newExtension("y", requestedAgo(2*time.Hour)), newExtension("z", requestedAgo(3*time.Hour))}, want: "2 were granted"},
		"two in the same second": {limits: two, others: []*v1alpha1.Extension{newExtension("d"), newExtension("f")}, want: "2 of 2 within 30d"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clock := newJobClock("training")
			clock.Status.Extensions = tc.clock
			e := tc.extension
			if e == nil {
				e = newExtension("e")
			}
			all := []v1alpha1.Extension{*e}
			for _, other := range tc.others {
				all = append(all, *other)
			}
			granted, why := tc.limits.evaluate(e, all, clock, testTime)
			if !strings.HasSuffix(why.String(), tc.want) || granted != strings.Contains(tc.want, " of ") {
				t.Errorf("granted = %v: %q, want it to end in %q", granted, why, tc.want)
			}
		})
	}
}

func TestDefaultSelfServiceLimits(t *testing.T) {
	want := selfServiceLimits{maxLength: period.MustParseDuration("24h"), window: period.MustParseDuration("30d")}
	if got := selfServiceLimitsOf(&v1alpha1.Department{}); got != want {
		t.Errorf("limits = %+v, want %+v", got, want)
	}
}

// parseExplanation inverts String.
func TestParseExplanation(t *testing.T) {
	day, month := period.MustParseDuration("24h"), period.MustParseDuration("30d")
	for _, want := range []explanation{
		{code: mail.CauseNoSelfService},
		{code: mail.CauseExtensionTooLong, maxLength: day},
		{code: mail.CauseSelfServiceLimitReached, used: 3, allowed: 2, window: month},
		{code: mail.CauseWorkloadNotFound},
		{code: mail.CauseExtensionLimitReached, used: 64},
		{code: codeSelfService, used: 1, allowed: 2, window: month},
	} {
		got, ok := parseExplanation(want.String())
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(explanation{})); diff != "" || !ok {
			t.Errorf("%q is parsed as (-want +got)\n%s", want, diff)
		}
	}
	for _, sentence := range []string{
		"", "see you on Monday", "the department grants at most P1D at once by itself",
		"granted by the department's self-service: 99999999999999999999 of 2 within 30d",
		"granted by the department's self-service: 01 of 2 within 30d", "the workload does not exist any more\n",
		"x\nthe workload does not exist any more",
	} {
		if got, ok := parseExplanation(sentence); ok {
			t.Errorf("%q is parsed as %+v", sentence, got)
		}
	}
}

// Notices hold codes and figures for the messages of Sluice, and quote those of people.
func TestExplanationNoticeInputs(t *testing.T) {
	tests := map[string]struct {
		objects []client.Object
		kind    v1alpha1.NoticeKind
		change  func(*v1alpha1.ExtensionStatus)
		want    map[string]string
	}{
		"too long": {
			[]client.Object{newJobClock("training"), newExtension("a", withLength("48h"))},
			v1alpha1.NoticeExtensionRequested, nil,
			map[string]string{"cause": "ExtensionTooLong", "maxDuration": "24h"},
		},
		"gone": {
			[]client.Object{newExtension("a")},
			v1alpha1.NoticeExtensionDecided, nil,
			map[string]string{"decision": "Denied", "decidedBy": "", "cause": "WorkloadNotFound", "maxDuration": "24h"},
		},
		"denied by a person with a message of Sluice": {
			[]client.Object{newJobClock("training"), newExtension("a", withLength("48h"))},
			v1alpha1.NoticeExtensionDecided,
			func(s *v1alpha1.ExtensionStatus) {
				s.Decision, s.DecidedBy, s.Message = v1alpha1.ExtensionDenied, "dean", "the workload does not exist any more"
			},
			map[string]string{
				"decision": "Denied", "decidedBy": "dean", "message": "the workload does not exist any more", "maxDuration": "24h",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, tc.objects...)
			w.reconcileAll()
			if tc.change != nil {
				w.updateExtension("a", tc.change)
				w.reconcileAll()
			}
			notices := w.listNotices(tc.kind)
			if len(notices) == 0 {
				t.Fatal("no notice")
			}
			for _, n := range notices {
				got := map[string]string{}
				for _, key := range []string{"cause", "used", "allowed", "maxDuration", "window", "decision", "decidedBy", "message"} {
					if value, ok := n.Spec.Inputs[key]; ok {
						got[key] = value
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("inputs of %s (-want +got)\n%s", n.Name, diff)
				}
			}
		})
	}
}
