// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// A user who requests, withdraws and repeats sends the contacts a mail an hour for each workload, and ten a day, however
// often lifecycle restarts. Other users' requests are not delayed. Guards invariant 10 of the design.
func TestRepeatedRequests(t *testing.T) {
	kim, ben := "kim@example.org", "ben@example.org"
	past := func(user, workload string, ago, mailAgo time.Duration) v1alpha1.ExtensionRequest {
		return v1alpha1.ExtensionRequest{
			UID: types.UID(fmt.Sprint(user, workload, ago)), Requester: v1alpha1.CreatorLabel(user),
			Workload: v1alpha1.WorkloadClockName("batch", "Job", workload), At: *timeAgo(ago), MailAt: *timeAgo(mailAgo),
		}
	}
	// times returns n requests of a user for n workloads within the last day.
	times := func(n int, user string) (all []v1alpha1.ExtensionRequest) {
		for i := range n {
			all = append(all, past(user, fmt.Sprint("job-", i), time.Duration(n-i)*time.Minute, time.Duration(n-i)*time.Minute))
		}
		return all
	}
	var crowd []v1alpha1.ExtensionRequest
	for i := range v1alpha1.MaxExtensionRequests {
		crowd = append(crowd, past(fmt.Sprint("user-", i/10), fmt.Sprint("job-", i), time.Hour, time.Hour))
	}
	const noMail = -1
	tests := map[string]struct {
		before []v1alpha1.ExtensionRequest
		want   time.Duration // until the mail
	}{
		"the first":                            {want: 0},
		"after one for another workload":       {before: []v1alpha1.ExtensionRequest{past(kim, "other", time.Minute, time.Minute)}, want: 0},
		"after another user's":                 {before: []v1alpha1.ExtensionRequest{past(ben, "training", time.Minute, time.Minute)}, want: 0},
		"after a mail ten minutes ago":         {before: []v1alpha1.ExtensionRequest{past(kim, "training", 10*time.Minute, 10*time.Minute)}, want: 50 * time.Minute},
		"after a mail an hour ago":             {before: []v1alpha1.ExtensionRequest{past(kim, "training", time.Hour, time.Hour)}, want: 0},
		"with a mail that is due in a minute":  {before: []v1alpha1.ExtensionRequest{past(kim, "training", time.Hour, 59*time.Minute), past(kim, "training", time.Minute, -time.Minute)}, want: time.Minute},
		"after nine":                           {before: times(9, kim), want: 0},
		"after ten":                            {before: times(10, kim), want: noMail},
		"after ten, the oldest of them old":    {before: append([]v1alpha1.ExtensionRequest{past(kim, "old", 24*time.Hour, 24*time.Hour)}, times(9, kim)...), want: 0},
		"after ten of another user":            {before: times(10, ben), want: 0},
		"after a hundred of many users":        {before: crowd, want: noMail},
		"after a hundred, the first of it old": {before: append([]v1alpha1.ExtensionRequest{past(ben, "old", 24*time.Hour, 24*time.Hour)}, crowd[1:]...), want: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, newJobClock("training"), newExtension("a", withLength("48h")))
			w.updateProjectStatus(func(s *v1alpha1.ProjectStatus) { s.ExtensionRequests = tc.before })
			w.reconcileAll()
			got := w.projectStatus()
			notice := w.listNotices(v1alpha1.NoticeExtensionRequested)["desk@example.org a"]
			condition := meta.FindStatusCondition(w.listExtensions()["a"].Status.Conditions, v1alpha1.ConditionAnnounced)
			if tc.want == noMail {
				if diff := cmp.Diff(tc.before, got.ExtensionRequests); diff != "" || notice != nil || !strings.Contains(condition.Message, "No mail was sent") {
					t.Errorf("notice %v, condition %+v, requests (-want +got):\n%s", notice, condition, diff)
				}
				return
			}
			want := v1alpha1.ExtensionRequest{
				UID: "uid-of-a", Requester: v1alpha1.CreatorLabel(kim), Workload: v1alpha1.WorkloadClockName("batch", "Job", "training"),
				At: metav1.NewTime(testTime), MailAt: metav1.NewTime(testTime.Add(tc.want)),
			}
			if diff := cmp.Diff(want, got.ExtensionRequests[len(got.ExtensionRequests)-1]); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			for _, r := range got.ExtensionRequests {
				if !testTime.Before(r.At.Add(24 * time.Hour)) {
					t.Errorf("a request of %s is kept", r.At)
				}
			}
			if !notice.Spec.DueAt.Equal(&want.MailAt) || (notice.Spec.Digest != "") != (tc.want > 0) {
				t.Errorf("notice %+v", notice.Spec)
			}
		})
	}
}

// Requests that wait for the next mail are in one mail for each contact; a restart records none twice.
func TestRequestsShareOneMail(t *testing.T) {
	w := newFixture(t, newJobClock("training"), newExtension("a", withLength("48h")), newExtension("b", withLength("49h")), newExtension("c", withLength("50h")))
	w.reconcileAll()
	for _, e := range w.listExtensions() {
		w.updateExtension(e.Name, func(s *v1alpha1.ExtensionStatus) { s.Conditions = nil })
	}
	w.reconcileAll()
	got := map[string]string{}
	for key, n := range w.listNotices(v1alpha1.NoticeExtensionRequested) {
		got[key] = n.Spec.Digest
	}
	desk, dean := got["desk@example.org b"], got["dean@example.org b"]
	want := map[string]string{
		"desk@example.org a": "", "desk@example.org b": desk, "desk@example.org c": desk,
		"dean@example.org a": "", "dean@example.org b": dean, "dean@example.org c": dean,
	}
	if diff := cmp.Diff(want, got); diff != "" || desk == dean || !strings.HasPrefix(desk, "bundle-") {
		t.Errorf("mails (-want +got):\n%s", diff)
	}
	if n := len(w.projectStatus().ExtensionRequests); n != 3 {
		t.Errorf("%d requests are recorded, want 3", n)
	}
}

func (w *fixture) projectStatus() *v1alpha1.ProjectStatus {
	w.t.Helper()
	project := &v1alpha1.Project{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: testNamespace}, project); err != nil {
		w.t.Fatal(err)
	}
	return &project.Status
}
