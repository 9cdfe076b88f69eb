// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// seed puts the clocks there that the fleet's jobs have, as the controller writes
// them: it would take them for its own, and writes each that is not as it should be.
func (w *world) seed(tb testing.TB) {
	tb.Helper()
	for root := range w.fleet.Roots {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.clock(root))
		check(tb, err)
		check(tb, w.server.Put(tree))
	}
}

// clock is that of a job.
func (w *world) clock(root int) *v1alpha1.WorkloadClock {
	const people = "2006-01-02 15:04 MST"
	name, began := w.fleet.RootName(root), metav1.NewTime(w.fleet.StartedAt(root).UTC())
	ends := metav1.NewTime(began.Add(limit))
	runs := period.MustParseDuration("24h")
	return &v1alpha1.WorkloadClock{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkloadClock"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.fleet.Namespace(root), Name: v1alpha1.WorkloadClockName("batch", "Job", name), CreationTimestamp: metav1.NewTime(time.Now()),
		},
		Spec: v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status: v1alpha1.WorkloadClockStatus{
			RootUID: w.fleet.RootUID(root), State: v1alpha1.ClockStateRunning, WorkloadType: v1alpha1.WorkloadTrain, CreatedBy: "anna.mueller@example.org",
			BeganAt: &began, RunningSince: &began,
			Limit:    &v1alpha1.ClockLimit{Configured: runs, InForce: runs},
			Deadline: &v1alpha1.ClockDeadline{At: ends, Reason: v1alpha1.EndMaxRuntime, LimitSeconds: int64(limit / time.Second)},
			Local:    &v1alpha1.ClockLocal{Accumulated: "0s", RunningSince: began.Format(people), Ends: ends.Format(people)},
		},
	}
}
