// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// setPhase sets the project's phase; Suspended also closes the project.
func (c *fakeCluster) setPhase(phase v1alpha1.ProjectPhase, change ...func(*v1alpha1.ProjectStatus)) {
	c.t.Helper()
	project := &v1alpha1.Project{}
	if err := c.rawClient.Get(c.t.Context(), client.ObjectKey{Name: testNamespace}, project); err != nil {
		c.t.Fatal(err)
	}
	project.Status.Phase, project.Status.ClosedAt = phase, nil
	if phase != v1alpha1.ProjectActive {
		project.Status.ClosedAt = ptr.To(metav1.Now())
	}
	for _, f := range change {
		f(&project.Status)
	}
	if err := c.rawClient.Update(c.t.Context(), project); err != nil {
		c.t.Fatal(err)
	}
}

// All GPU work of a suspended project is stopped by the verb of its kind, pods that are not bound included, although the
// project is held. Creators get a Notice, unless they own the project: owners get one about it. After the renewal the
// stops are released, nothing starts by itself, and events say how to start it. Guards invariants 6 and 11.
func TestSuspendedProjectStopsItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJobOf("train", "kim@example.org"), newJobOf("own", "anna@example.org"), newJobOf("queued", "lea"))
		recorder := events.NewFakeRecorder(1000)
		c.reconciler.Events = recorder
		c.reconciler.StopLimiter.MaxShare, c.reconciler.StopLimiter.MaxCount = 0, 0
		start := waitForWholeSecond()
		for _, job := range []string{"train", "own", "queued"} {
			c.startPod(job, "-1")
		}
		c.pods["queued-1"].Node, c.pods["queued-1"].Running = "", false
		c.advance(time.Hour)
		c.setPhase(v1alpha1.ProjectSuspended)
		c.advance(time.Second)
		for _, name := range []string{"train", "own", "queued"} {
			job := c.getJob(name)
			if _, marked := job.Annotations[v1alpha1.AnnotationStoppedUntil]; !ptr.Deref(job.Spec.Suspend, false) || !marked {
				t.Errorf("%s runs on, or is not marked", name)
			}
		}
		c.advance(48 * time.Hour)
		for _, clock := range c.listClocks() {
			s := clock.Status
			if s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndProjectSuspended || s.State != v1alpha1.ClockStateStopped || s.Local.Ends != "stopped" {
				t.Errorf("clock %s: %s, stopped %+v, ends %s", clock.Name, s.State, s.Stopped, s.Local.Ends)
			}
		}
		if diff := cmp.Diff([]string{"WorkloadStopped 1h0m0s"}, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
		calls := c.calls
		c.advance(48 * time.Hour)
		if c.calls != calls {
			t.Errorf("%d writes in two days of a suspended project", c.calls-calls)
		}
		c.setPhase(v1alpha1.ProjectActive)
		c.advance(time.Minute)
		for _, name := range []string{"train", "own", "queued"} {
			job := c.getJob(name)
			if _, marked := job.Annotations[v1alpha1.AnnotationStoppedUntil]; !ptr.Deref(job.Spec.Suspend, false) || marked {
				t.Errorf("%s started by itself, or is still marked", name)
			}
			if s := c.clockOf(name).Status; s.Stopped != nil {
				t.Errorf("clock of %s: %+v", name, s.Stopped)
			}
		}
		released := 0
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; strings.Contains(e, "was renewed. To start the workload again: kubectl patch jobs.batch/") {
				released++
			}
		}
		if released != 3 {
			t.Errorf("%d events say how to start the workloads, want 3", released)
		}
	})
}

// A suspension is counted by the stop limiter only if changed terms brought it forward: a semester's projects that
// expire on one day are meant. What it defers runs on with its own limits. Guards invariant 12.
func TestStopLimiterCountsSuspensionsBroughtForward(t *testing.T) {
	for name, tc := range map[string]struct {
		shortened time.Duration
		deferred  bool
	}{
		"by unchanged terms":                       {0, false},
		"shortened, and due by now in any case":    {-time.Hour, false},
		"shortened by terms that would come later": {240 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t, newJob("a"), newJob("b"), newJob("c"))
				c.reconciler.StopLimiter.MaxShare, c.reconciler.StopLimiter.MaxCount = 0.5, 2
				waitForWholeSecond()
				for _, job := range []string{"a", "b", "c"} {
					c.startPod(job, "-1")
				}
				c.advance(time.Hour)
				c.setPhase(v1alpha1.ProjectSuspended, func(s *v1alpha1.ProjectStatus) {
					if tc.shortened != 0 {
						s.Expiry = &v1alpha1.ProjectExpiry{ShortenedFrom: ptr.To(metav1.NewTime(time.Now().Add(tc.shortened)))}
					}
				})
				c.advance(time.Hour)
				want := v1alpha1.ClockStateStopped
				if tc.deferred {
					want = v1alpha1.ClockStateRunning
				}
				for _, clock := range c.listClocks() {
					if clock.Status.State != want {
						t.Errorf("%s is %s, want %s", clock.Name, clock.Status.State, want)
					}
				}
				if !tc.deferred {
					return
				}
				c.releaseStopLimiter(testDepartment, time.Now().Add(2*time.Hour))
				c.advance(time.Minute)
				if s := c.clockOf("a").Status; s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndProjectSuspended {
					t.Errorf("after the release: %s, %+v", s.State, s.Stopped)
				}
			})
		})
	}
}

// The projects whose suspension comes within the hour count, too: the limiter engages before the first stop.
func TestIsSuspendedEarly(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	later := &v1alpha1.ProjectExpiry{ShortenedFrom: ptr.To(at(24 * time.Hour))}
	for name, tc := range map[string]struct {
		status v1alpha1.ProjectStatus
		want   bool
	}{
		"suspended": {v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectSuspended, Expiry: later}, true},
		"suspended within the hour": {v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectExpired, Expiry: later, Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectSuspended, At: at(time.Minute)},
		}, true},
		"suspended tomorrow": {v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectExpired, Expiry: later, Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectSuspended, At: at(24 * time.Hour)},
		}, false},
		"expires within the hour": {v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectActive, Expiry: later, Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectExpired, At: at(time.Minute)},
		}, false},
		"never shortened": {v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectSuspended, Expiry: &v1alpha1.ProjectExpiry{}}, false},
	} {
		if got := IsSuspendedEarly(&v1alpha1.Project{Status: tc.status}, now); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A workload whose suspension the stop limiter defers is stopped at its own limit.
func TestDeferredSuspensionKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("a"))
		c.reconciler.StopLimiter.MaxShare, c.reconciler.StopLimiter.MaxCount = 0, 0
		waitForWholeSecond()
		c.startPod("a", "-1")
		c.advance(time.Hour)
		c.setPhase(v1alpha1.ProjectSuspended, func(s *v1alpha1.ProjectStatus) {
			s.Expiry = &v1alpha1.ProjectExpiry{ShortenedFrom: ptr.To(metav1.NewTime(time.Now().Add(1000 * time.Hour)))}
		})
		c.advance(46 * time.Hour)
		if s := c.clockOf("a").Status; s.State != v1alpha1.ClockStateRunning || s.Deadline == nil {
			t.Fatalf("before its limit: %s, deadline %+v", s.State, s.Deadline)
		}
		c.advance(90 * time.Minute)
		if s := c.clockOf("a").Status; s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndMaxRuntime {
			t.Errorf("at its limit: %s, %+v", s.State, s.Stopped)
		}
	})
}
