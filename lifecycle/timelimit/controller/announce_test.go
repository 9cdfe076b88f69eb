// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// The creator of a workload receives its mail; the project's owner receives it for a creator without
// an address, such as a ServiceAccount, and with copyOwners. The event names what the department
// grants.
func TestNoticesGoToCreator(t *testing.T) {
	const kim, anna = "kim@example.org", "anna@example.org"
	for name, tc := range map[string]struct {
		creator string
		copies  bool
		want    []string
	}{
		"user":                 {kim, false, []string{kim}},
		"user, with copies":    {kim, true, []string{anna, kim}},
		"service account":      {"system:serviceaccount:lab:ci", false, []string{anna}},
		"unknown":              {"", false, []string{anna}},
		"forged second header": {kim + "\r\nBcc: x@example.org", false, []string{anna}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := newJob("train")
				if tc.creator != "" {
					job.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: tc.creator}
				}
				c := newFakeCluster(t, job)
				var department v1alpha1.Department
				if err := c.rawClient.Get(t.Context(), client.ObjectKey{Name: "students"}, &department); err != nil {
					t.Fatal(err)
				}
				step := period.MustParseDuration("12h")
				department.Spec.Notices.CopyOwners, department.Spec.Extensions.MaxDuration = tc.copies, &step
				if err := c.rawClient.Update(t.Context(), &department); err != nil {
					t.Fatal(err)
				}
				waitForWholeSecond()
				c.startPod("train", "-1")
				c.advance(25 * time.Hour)
				var notices v1alpha1.NoticeList
				if err := c.rawClient.List(t.Context(), &notices); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, n := range notices.Items {
					got = append(got, string(n.Spec.Recipient.Email))
					if n.Spec.Inputs["maxDuration"] != "12h" {
						t.Errorf("inputs %v", n.Spec.Inputs)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if event := <-c.reconciler.Events.(*events.FakeRecorder).Events; !strings.Contains(event, "--by 12h ") {
					t.Error(event)
				}
			})
		})
	}
}
