// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/message"
)

// What is written into a status is read back as it was.
func TestReasonsAreReadBack(t *testing.T) {
	day, month := period.MustParseDuration("24h"), period.MustParseDuration("30d")
	for _, want := range []because{
		{code: message.BecauseNothingGranted},
		{code: message.BecauseTooLong, each: day},
		{code: message.BecauseLimitReached, used: 3, allowed: 2, window: month},
		{code: message.BecauseWorkloadGone},
		{code: message.BecauseExtendedTooOften, used: 64},
		{code: selfService, used: 1, allowed: 2, window: month},
	} {
		got, ok := becauseOf(want.String())
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(because{})); diff != "" || !ok {
			t.Errorf("%q is read as (-want +got)\n%s", want, diff)
		}
	}
	for _, sentence := range []string{
		"", "see you on Monday", "the department grants at most P1D at once by itself",
		"granted by the department's self-service: 99999999999999999999 of 2 within 30d",
		"granted by the department's self-service: 01 of 2 within 30d", "there is no such workload any more\n",
		"x\nthere is no such workload any more",
	} {
		if got, ok := becauseOf(sentence); ok {
			t.Errorf("%q is read as %+v", sentence, got)
		}
	}
}

// Notices have codes and figures of what Sluice says, and the very words of people.
func TestNoticesSayWhyInCodes(t *testing.T) {
	tests := map[string]struct {
		objects []client.Object
		kind    v1alpha1.NoticeKind
		change  func(*v1alpha1.ExtensionStatus)
		want    map[string]string
	}{
		"too long": {
			[]client.Object{clockOfJob("training"), asking("a", by("48h"))},
			v1alpha1.NoticeExtensionRequested, nil,
			map[string]string{"because": "TooLong", "each": "24h"},
		},
		"gone": {
			[]client.Object{asking("a")},
			v1alpha1.NoticeExtensionDecided, nil,
			map[string]string{"decision": "Refused", "decidedBy": "", "because": "WorkloadGone"},
		},
		"refused by a person in Sluice's words": {
			[]client.Object{clockOfJob("training"), asking("a", by("48h"))},
			v1alpha1.NoticeExtensionDecided,
			func(s *v1alpha1.ExtensionStatus) {
				s.Decision, s.DecidedBy, s.Message = v1alpha1.ExtensionRefused, "dean", "there is no such workload any more"
			},
			map[string]string{"decision": "Refused", "decidedBy": "dean", "message": "there is no such workload any more"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.settle()
			if tc.change != nil {
				w.change("a", tc.change)
				w.settle()
			}
			told := w.notices(tc.kind)
			if len(told) == 0 {
				t.Fatal("nobody is told")
			}
			for _, n := range told {
				got := map[string]string{}
				for _, key := range []string{"because", "used", "allowed", "each", "window", "decision", "decidedBy", "message"} {
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
