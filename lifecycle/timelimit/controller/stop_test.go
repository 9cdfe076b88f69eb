// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/timelimit/suspend"
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

// recordingStopper records the attempts to stop, in seconds of the bubble since start.
type recordingStopper struct {
	Stopper
	start time.Time
	// stopErr is the error of the stop action; nil performs it.
	stopErr   error
	evict     func(pod types.UID)
	attempts  []string
	evictions int
}

func (s *recordingStopper) Stop(ctx context.Context, target suspend.Target, until time.Time, why string) error {
	s.attempts = append(s.attempts, "stop "+time.Since(s.start).Truncate(time.Second).String())
	if s.stopErr != nil {
		return s.stopErr
	}
	return s.Stopper.Stop(ctx, target, until, why)
}

func (s *recordingStopper) EvictPod(_ context.Context, pod suspend.Target, gracePeriod *int64, _ string) error {
	text := "evict " + time.Since(s.start).Truncate(time.Second).String()
	if gracePeriod != nil {
		text += " with a shorter grace period"
	}
	s.attempts, s.evictions = append(s.attempts, text), s.evictions+1
	if s.evict != nil {
		s.evict(pod.UID)
	}
	return nil
}

// newStuckCluster returns a cluster in which the Job train reached its limit although its
// controller is down.
func newStuckCluster(t *testing.T) (*fakeCluster, *recordingStopper) {
	t.Helper()
	c := newFakeCluster(t, newJob("train"))
	c.jobControllerDown = true
	start := waitForWholeSecond()
	c.startPod("train", "-1")
	s := &recordingStopper{Stopper: c.reconciler.Stopper, start: start.Add(48 * time.Hour)}
	c.reconciler.Stopper = s
	c.advance(48*time.Hour - time.Second)
	return c, s
}

func (c *fakeCluster) unstoppable(job string) *metav1.Condition {
	c.t.Helper()
	return meta.FindStatusCondition(c.clockOf(job).Status.Conditions, v1alpha1.ConditionUnstoppable)
}

// Invariants 5 and 11: a stop without effect is tried three times, then the pods are evicted
// three times, then the contacts hear of it once, and the clock says that the workload runs.
func TestStopWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStuckCluster(t)
		counted := testutil.ToFloat64(unstoppableWorkloads.WithLabelValues(reasonNoEffect))
		c.advance(16 * time.Minute)
		want := []string{
			"stop 0s", "stop 30s", "stop 1m30s", "stop 3m30s", "evict 3m30s", "stop 7m30s", "evict 7m30s", "stop 15m30s", "evict 15m30s",
		}
		if diff := cmp.Diff(want, s.attempts); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		if c.unstoppable("train") != nil {
			t.Error("it is reported before the last eviction had time to take effect")
		}
		c.advance(5 * time.Hour)
		condition, status := c.unstoppable("train"), c.clockOf("train").Status
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != reasonNoEffect ||
			!strings.Contains(condition.Message, "train-1") {
			t.Errorf("the condition is %+v", condition)
		}
		if status.State != v1alpha1.ClockStateRunning || status.Local.Ends != "unstoppable" {
			t.Errorf("the clock says %s, %s", status.State, status.Local.Ends)
		}
		if s.evictions != maxEvictions {
			t.Errorf("%d evictions, want %d", s.evictions, maxEvictions)
		}
		if got := testutil.ToFloat64(unstoppableWorkloads.WithLabelValues(reasonNoEffect)) - counted; got != 1 {
			t.Errorf("the metric counts %v workloads", got)
		}
		var notices v1alpha1.NoticeList
		if err := c.client.List(t.Context(), &notices); err != nil {
			t.Fatal(err)
		}
		var recipients []string
		for _, n := range notices.Items {
			if n.Spec.Kind == v1alpha1.NoticeWorkloadUnstoppable {
				recipients = append(recipients, string(n.Spec.Recipient.Email))
			}
		}
		if !slices.Equal(recipients, []string{testContact}) {
			t.Errorf("Notices to %q, want one to %s", recipients, testContact)
		}

		c.jobControllerDown = false
		c.advance(time.Minute)
		if condition, status := c.unstoppable("train"), c.clockOf("train").Status; condition.Status != metav1.ConditionFalse ||
			status.State == v1alpha1.ClockStateRunning {
			t.Errorf("after it ended: %s, %+v", status.State, condition)
		}
	})
}

// A restart of the controller repeats no eviction, and a stop action that fails counts as a try.
func TestEvictionsAreCountedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStuckCluster(t)
		s.stopErr = errors.New("failed calling webhook: connection refused")
		c.stopErrorsAllowed = true
		for range 30 {
			c.advance(2 * time.Minute)
			c.restart()
			c.reconciler.Stopper = s
		}
		c.advance(time.Hour)
		if s.evictions != maxEvictions {
			t.Errorf("%d evictions, want %d", s.evictions, maxEvictions)
		}
		if condition := c.unstoppable("train"); condition == nil || !strings.Contains(condition.Message, "connection refused") {
			t.Errorf("the condition is %+v", condition)
		}
	})
}

// Controllers ignore the stop action on a deleted object that a finalizer holds, so its pods are
// evicted at once, at most three times, and then it is reported. A restart between evictions adds
// none. Guards the time limit.
func TestDeletedWorkloadHeldByFinalizer(t *testing.T) {
	for name, tc := range map[string]struct {
		evictionEnds bool
		want         []string
	}{
		"its pods end":  {true, []string{"stop 0s", "evict 0s"}},
		"its pods stay": {false, []string{"stop 0s", "evict 0s", "stop 30s", "evict 30s", "stop 1m30s", "evict 1m30s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := newJob("train")
				held.Finalizers = []string{"example.org/hold"}
				c := newFakeCluster(t, held)
				start := waitForWholeSecond()
				c.startPod("train", "-1")
				s := &recordingStopper{Stopper: c.reconciler.Stopper, start: start.Add(48 * time.Hour)}
				c.reconciler.Stopper = s
				if tc.evictionEnds {
					s.evict = func(pod types.UID) { delete(c.pods, pod) }
				}
				c.advance(47 * time.Hour)
				if err := c.rawClient.Delete(t.Context(), c.getJob("train")); err != nil {
					t.Fatal(err)
				}
				c.advance(time.Hour + 2*time.Minute)
				c.restart()
				c.reconciler.Stopper = s
				c.advance(time.Minute)
				attempts := slices.DeleteFunc(s.attempts, func(attempt string) bool { return strings.HasPrefix(attempt, "stop 2m") })
				if diff := cmp.Diff(tc.want, attempts); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
				c.advance(time.Hour)
				if got := c.unstoppable("train") != nil; got == tc.evictionEnds {
					t.Errorf("reported as unstoppable: %v", got)
				}
			})
		})
	}
}

// What a deleted object controls is stopped, too: its controllers would replace evicted pods.
// Guards the time limit.
func TestOwnersBelowDeletedWorkloadAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		rayJobKind := rayClusterKind.GroupVersion().WithKind("RayJob")
		c.mapper.Add(rayJobKind, meta.RESTScopeNamespace)
		job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		job.SetGroupVersionKind(rayJobKind)
		job.SetNamespace(testNamespace)
		job.SetName("ray")
		job.SetUID("ray-uid")
		job.SetFinalizers([]string{"example.org/hold"})
		if err := c.rawClient.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		c.create(rayClusterKind, "ray-cluster", alice, func(object *unstructured.Unstructured) {
			object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job, rayJobKind)})
		})
		c.advance(47 * time.Hour)
		if err := c.rawClient.Delete(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		c.reconciler.Stopper = &recordingStopper{Stopper: c.reconciler.Stopper, evict: func(pod types.UID) { delete(c.pods, pod) }}
		c.advance(time.Hour + time.Minute)
		cluster := c.getObject(rayClusterKind, "ray-cluster")
		if suspended, _, _ := unstructured.NestedBool(cluster.Object, "spec", "suspend"); !suspended || len(c.pods) > 0 {
			t.Errorf("the RayCluster of the deleted RayJob has spec %v and %d pods", cluster.Object["spec"], len(c.pods))
		}
	})
}

// brokenReader fails for Jobs, as when their API is down.
type brokenReader struct{ client.Reader }

func (r brokenReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if into.GetObjectKind().GroupVersionKind().Kind == "Job" {
		return apierrors.NewInternalError(errors.New("conversion webhook failed"))
	}
	return r.Reader.Get(ctx, key, into, options...)
}

// The pods of a workload whose API is down are evicted, too. Guards the time limit.
func TestPodsOfUnreadableWorkloadAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStuckCluster(t)
		c.reconciler.Live, c.stopErrorsAllowed = brokenReader{c.reconciler.Live}, true
		s.stopErr = errors.New("conversion webhook failed")
		c.advance(time.Hour)
		if s.evictions != maxEvictions || c.unstoppable("train") == nil {
			t.Errorf("%d evictions, condition %+v", s.evictions, c.unstoppable("train"))
		}
	})
}

// An eviction that ends the pods ends the stop.
func TestEvictionEndsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStuckCluster(t)
		s.evict = func(pod types.UID) { delete(c.pods, pod) }
		c.advance(time.Hour)
		if s.evictions != 1 || c.unstoppable("train") != nil {
			t.Errorf("%d evictions, condition %+v", s.evictions, c.unstoppable("train"))
		}
	})
}

// Pods that terminate within their grace period are not evicted, unless that takes more than
// an hour: users choose it. An eviction shortens it to an hour.
func TestStopWaitsForTerminatingPods(t *testing.T) {
	for _, tc := range []struct {
		grace     time.Duration
		evictions int
	}{{50 * time.Minute, 0}, {365 * 24 * time.Hour, 1}} {
		synctest.Test(t, func(t *testing.T) {
			c, s := newStuckCluster(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "train-1", Finalizers: []string{"example.org/hold"}}}
			if err := c.rawClient.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			c.terminating = map[string]time.Time{"train-1": s.start.Add(tc.grace)}
			c.pods["train-1"].Deleting, c.pods["train-1"].GraceEndsAt = true, s.start.Add(tc.grace)
			s.evict = func(types.UID) { c.terminating["train-1"] = time.Now().Add(maxTerminationGrace) }
			c.advance(45 * time.Minute)
			if s.evictions != tc.evictions {
				t.Errorf("with %s left: %d evictions (%q), want %d", tc.grace, s.evictions, s.attempts, tc.evictions)
			}
			for _, attempt := range s.attempts {
				if strings.HasPrefix(attempt, "evict") && !strings.HasSuffix(attempt, "with a shorter grace period") {
					t.Errorf("%s keeps the grace period", attempt)
				}
			}
		})
	}
}
