// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// newRun returns a Job that a CronJob created.
func newRun(name, cronJob string) *batchv1.Job {
	run := newJob(name)
	run.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: cronJob, UID: "cron-uid", Controller: ptr.To(true),
	}}
	return run
}

// A run of a CronJob that reaches its limit fails instead of being suspended, which would hold
// all later runs of the CronJob, and its Notice names the CronJob.
func TestCronJobRunFailsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newRun("nightly-1", "nightly"))
		waitForWholeSecond()
		c.startPod("nightly-1", "-1")
		c.advance(48*time.Hour + time.Minute)
		run := c.getJob("nightly-1")
		if run.Spec.Suspend != nil || ptr.Deref(run.Spec.ActiveDeadlineSeconds, 0) != 1 {
			t.Errorf("the run is suspended (%v) or has the deadline %v", run.Spec.Suspend, run.Spec.ActiveDeadlineSeconds)
		}
		if s := c.clockOf("nightly-1").Status; s.State != v1alpha1.ClockStateStopped || s.Stopped.Until.Sub(s.Stopped.At.Time) != time.Hour {
			t.Errorf("its clock is %s, stopped %+v", s.State, s.Stopped)
		}
		var notices v1alpha1.NoticeList
		if err := c.client.List(t.Context(), &notices); err != nil {
			t.Fatal(err)
		}
		for _, n := range notices.Items {
			if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped && n.Spec.Inputs[mail.InputCronJob] != "nightly" {
				t.Errorf("the Notice of the stop has the inputs %v", n.Spec.Inputs)
			}
		}
	})
}
