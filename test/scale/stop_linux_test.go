// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/test/scale/stubapi"
)

// afterLateWarning is when workloads are stopped whose last warning came with a step to ten
// minutes before their deadline: a late warning moves the deadline by the shortest lead, half
// an hour.
const afterLateWarning = 21 * time.Minute

// The behavior that the benchmark measures, on a small fleet: a start in a consistent cluster
// changes nothing, workloads with passed deadlines are stopped, each once, and no others.
func TestWorkloadsStopped(t *testing.T) {
	fleet, away, many, end := newStaggeredFleet(100, 2*time.Second)
	w := newBenchmarkCluster(t, fleet)
	mustSucceed(t, fleet.FillWork(w.server))
	p := startLifecycle(t, w.kubeconfig, w.clockFile, stopLimiterPercent)
	w.waitUntilSettled(t, p, fleet.Roots)
	limited := 0
	for _, c := range w.listClocks(t) {
		if d := c.Status.Deadline; d != nil && !d.At.Time.Before(end) {
			limited++
		}
	}
	if limited != fleet.Roots {
		t.Fatalf("%d of %d workloads have a clock with a deadline", limited, fleet.Roots)
	}

	p.stop(t)
	before, projects := w.effectiveWrites(), w.projectStatuses(t)
	p = startLifecycle(t, w.kubeconfig, w.clockFile, stopLimiterPercent)
	w.waitUntilSettled(t, p, fleet.Roots)
	if diff := cmp.Diff(writes{}, w.effectiveWrites().minus(before)); diff != "" {
		t.Errorf("writes of a start in a consistent cluster (-want +got):\n%s%s", diff, cmp.Diff(projects, w.projectStatuses(t)))
	}

	for _, at := range []time.Duration{-3 * time.Hour, -10 * time.Minute} {
		w.advanceTimeTo(t, end.Add(at))
		w.waitUntilSettled(t, p, fleet.Roots)
	}
	p.stop(t)
	w.advanceTimeTo(t, end.Add(afterLateWarning))
	p = startLifecycle(t, w.kubeconfig, w.clockFile, stopLimiterPercent)
	w.waitUntilSettled(t, p, fleet.Roots)
	w.assertStopped(t, away)

	for _, at := range []time.Duration{-10 * time.Minute, afterLateWarning} {
		w.advanceTimeTo(t, end.Add(2*time.Hour+at))
		w.waitUntilSettled(t, p, fleet.Roots)
	}
	w.assertStopped(t, away+many)
}

// projectStatuses returns the status of each project.
func (w *benchmarkCluster) projectStatuses(tb testing.TB) map[string]v1alpha1.ProjectStatus {
	tb.Helper()
	var projects v1alpha1.ProjectList
	mustSucceed(tb, w.client.List(tb.Context(), &projects))
	statuses := map[string]v1alpha1.ProjectStatus{}
	for i := range projects.Items {
		statuses[projects.Items[i].Name] = projects.Items[i].Status
	}
	return statuses
}

// assertStopped checks that the first jobs were stopped, each once, and no others.
func (w *benchmarkCluster) assertStopped(tb testing.TB, first int) {
	tb.Helper()
	want := map[string]bool{}
	for root := range first {
		want[w.fleet.Namespace(root)+"/"+w.fleet.RootName(root)] = true
	}
	got := map[string]bool{}
	for job := range w.suspendedJobs() {
		got[job] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("stopped jobs (-want +got):\n%s", diff)
	}
	if w.suspensions != first {
		tb.Errorf("jobs were stopped %d times, want %d", w.suspensions, first)
	}
}

// If a shortened limit would end very many workloads at once, none is stopped and nothing is
// written repeatedly. They are stopped when an administrator releases the stop limiter.
func TestStopLimiterBlocksMassStop(t *testing.T) {
	fleet, _, _, _ := newStaggeredFleet(100, 2*time.Second)
	fleet.After = nil
	w := newBenchmarkCluster(t, fleet)
	mustSucceed(t, fleet.FillWork(w.server))
	p := startLifecycle(t, w.kubeconfig, w.clockFile, stopLimiterPercent)
	w.waitUntilSettled(t, p, fleet.Roots)
	var department v1alpha1.Department
	mustSucceed(t, w.client.Get(t.Context(), client.ObjectKey{Name: stubapi.Department}, &department))
	limit := period.MustParseDuration("14h") // the workloads have run for 13 h, and request 24 h
	department.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.AnyWorkload: {MaxRuntime: &limit}}
	department.Spec.Notices.WorkloadEnd = []period.Duration{period.MustParseDuration("4h"), period.MustParseDuration("30m")}
	mustSucceed(t, w.client.Update(t.Context(), &department))
	var end time.Time
	waitFor(t, "all end earlier", func() bool {
		shortened := 0
		for _, c := range w.listClocks(t) {
			if c.Status.Limit != nil && c.Status.Limit.ShortenedFrom != nil && c.Status.Deadline != nil {
				shortened++
				if at := c.Status.Deadline.At.Time; at.After(end) {
					end = at
				}
			}
		}
		return shortened == fleet.Roots
	})
	for _, at := range []time.Duration{-35 * time.Minute, -10 * time.Minute, afterLateWarning} {
		w.advanceTimeTo(t, end.Add(at))
		w.waitUntilSettled(t, p, fleet.Roots)
	}
	if n := len(w.suspendedJobs()); n != 0 {
		t.Fatalf("%d workloads were stopped although the stop limiter should defer all stops", n)
	}
	var state corev1.ConfigMap
	mustSucceed(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: controller.StopLimiterConfigMapName}, &state))
	got := controller.ParseStopLimiterState(&state, stubapi.Department)
	if !got.IsEngaged() || got.Due != fleet.Roots || got.Running != fleet.Roots {
		t.Errorf("the state of the stop limiter is %+v, want it engaged for all %d", got, fleet.Roots)
	}
	got.ReleasedUntil = end.Add(2 * time.Hour).UTC()
	got.Store(&state, stubapi.Department)
	mustSucceed(t, w.client.Update(t.Context(), &state))
	w.advanceTimeTo(t, end.Add(afterLateWarning+time.Minute))
	waitFor(t, "all stopped", func() bool { return len(w.suspendedJobs()) == fleet.Roots })
}
