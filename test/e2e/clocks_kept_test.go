// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// ran is how long a workload has run by now.
func (c *timed) ran(s v1alpha1.WorkloadClockStatus) time.Duration {
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += c.time.Now().Sub(s.RunningSince.Time)
	}
	return ran
}

// kept checks that the workload's time began when it did, and that it has run for
// at least so long, and little more.
func (c *timed) kept(t *testing.T, when string, w workload, began *metav1.Time, atLeast time.Duration) {
	t.Helper()
	s := c.status(t, w)
	if ran := c.ran(s); !s.BeganAt.Equal(began) || ran < atLeast-5*time.Minute || ran > atLeast+10*time.Minute {
		t.Errorf("%s, %s %s has run for %s since %s; want %s since %s", when, w.kind, w.GetName(), ran, s.BeganAt, atLeast, began)
	}
}

// replaced waits until all pods of the workload that ran before are gone, and
// another runs.
func (c *timed) replaced(t *testing.T, w workload, before []types.UID) {
	t.Helper()
	c.await(t, func() error {
		now := c.pods(t, w)
		for i := range now {
			if slices.Contains(before, now[i].UID) {
				return errNotYet(now[i].Name+" is gone", now[i].Status.Phase)
			}
		}
		if len(now) == 0 || now[0].Status.Phase != corev1.PodRunning {
			return errNotYet("another pod of "+w.GetName()+" runs", len(now))
		}
		return nil
	})
}

// pods are those of the workload.
func (c *timed) pods(t *testing.T, w workload) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.podsOf(t, w.GetNamespace()), func(p corev1.Pod) bool { return p.Labels["app"] != w.GetName() })
}

// goOn shows that a workload's time goes on over restarts of its pods, evictions
// and restarts of lifecycle, that it stands still while the workload is suspended,
// and that waiting does not count.
func (c *timed) goOn(t *testing.T) {
	const ns = "kept"
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	job, web, bare := aJob(ns, "train", slice), aDeployment(ns, "web", slice), aPod(ns, "later", slice, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	})
	c.make(t, bare.Object)
	c.begin(t, job, web)
	began := map[string]*metav1.Time{"train": c.status(t, job).BeganAt, "web": c.status(t, web).BeganAt}

	uids := func(w workload) (uids []types.UID) {
		for _, p := range c.pods(t, w) {
			uids = append(uids, p.UID)
		}
		return uids
	}
	pods := c.native.CoreV1().Pods(ns)
	at := 10 * time.Hour
	c.step(t, at)
	t.Run("a pod is deleted", func(t *testing.T) {
		before := uids(job)
		if err := pods.Delete(t.Context(), c.pods(t, job)[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		c.replaced(t, job, before)
		c.awaitClock(t, job, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.kept(t, "after its pod was deleted", job, began["train"], at)
	})
	t.Run("a pod is evicted", func(t *testing.T) {
		before := uids(web)
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: c.pods(t, web)[0].Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))},
		}
		if err := pods.EvictV1(t.Context(), eviction); err != nil {
			t.Fatal(err)
		}
		c.replaced(t, web, before)
		c.awaitClock(t, web, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.kept(t, "after its pod was evicted", web, began["web"], at)
	})
	t.Run("it is suspended for half an hour", func(t *testing.T) {
		c.kubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":true}}`)
		paused := c.awaitClock(t, job, "its time stands still", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStatePaused })
		c.step(t, 30*time.Minute)
		c.kubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":false}}`)
		again := c.awaitClock(t, job, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		if again.AccumulatedSeconds != paused.AccumulatedSeconds || paused.Deadline != nil {
			t.Errorf("it had run for %d s, and then for %d s; while it stood still it ended at %v", paused.AccumulatedSeconds, again.AccumulatedSeconds, paused.Deadline)
		}
		c.kept(t, "after it was suspended", job, began["train"], at)
	})
	t.Run("it waits", func(t *testing.T) {
		if found, err := c.clock(t, bare); !apierrors.IsNotFound(err) {
			t.Errorf("what has not run has a clock: %+v, %v", found.Status, err)
		}
		c.kubectl(t, "patch", "pod", "later", "-n", ns, "--type=merge", "-p", `{"spec":{"schedulingGates":null}}`)
		s := c.awaitClock(t, bare, "its time runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		c.kept(t, "after it waited for ten hours", bare, s.BeganAt, 0)
	})
	t.Run("lifecycle is killed", func(t *testing.T) {
		before, err := c.clock(t, web)
		if err != nil {
			t.Fatal(err)
		}
		c.restart(t, func() {})
		c.step(t, time.Hour)
		c.kept(t, "after lifecycle began anew", job, began["train"], at+time.Hour)
		c.kept(t, "after lifecycle began anew", web, began["web"], at+90*time.Minute)
		// That it looks at them again is seen by what it says next.
		c.stepTo(t, c.end(t, web).Add(-leads[0]))
		after := c.awaitClock(t, web, "its people were warned", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
		if now, err := c.clock(t, web); err != nil || now.UID != before.UID || after.AccumulatedSeconds != before.Status.AccumulatedSeconds {
			t.Errorf("the clock is another one: %+v, %v; it was %+v", after, err, before.Status)
		}
	})
	t.Run("it is rolled after its end was announced", func(t *testing.T) {
		before := uids(web)
		c.kubectl(t, "rollout", "restart", "deployment/web", "-n", ns)
		c.replaced(t, web, before)
		c.awaitMarked(t, web)
		c.kept(t, "after it was rolled", web, began["web"], 24*time.Hour)
	})
	t.Run("all of it together is as long as it may run", func(t *testing.T) {
		// The Job was suspended for half an hour, and so ends that much later.
		for _, w := range []workload{web, job} {
			c.stepTo(t, c.end(t, w).Add(-20*time.Minute))
			c.awaitClock(t, w, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(leads) })
			c.stepTo(t, c.end(t, w).Add(-5*time.Minute))
			c.running(t, "five minutes before the end", w, job)
			c.stepTo(t, c.end(t, w))
			c.ended(t, v1alpha1.EndMaxRuntime, 48*time.Hour, w)
		}
	})
}

// surviveAnAbsence shows that nothing ends unannounced: where lifecycle was away
// when people should have been warned, they are warned when it is back, and
// have the shortest lead.
func (c *timed) surviveAnAbsence(t *testing.T) {
	const ns = "away"
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	job := aJob(ns, "long", slice)
	c.begin(t, job)
	c.restart(t, func() { c.step(t, 7*24*time.Hour) })
	s := c.awaitClock(t, job, "its people were warned", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(leads) })
	announced := s.Deadline.AnnouncedAt.Time
	if got := s.Deadline.At.Sub(announced); got != 30*time.Minute || announced.Sub(s.BeganAt.Time) < 7*24*time.Hour {
		t.Errorf("%s after it began it was announced that it ends %s later; want half an hour", announced.Sub(s.BeganAt.Time), got)
	}
	var got []string
	for _, n := range c.told(t, ns) {
		word := "told"
		if n.Status.Phase == v1alpha1.NoticeSuperseded {
			word = "superseded"
		}
		got = append(got, fmt.Sprintf("%s %s", n.Spec.Lead.Length(), word))
		if !n.Spec.Deadline.Time.Equal(s.Deadline.At.Time) {
			t.Errorf("a notice says that it ends at %s, want %s", n.Spec.Deadline, s.Deadline.At)
		}
	}
	if want := "24h0m0s superseded, 4h0m0s superseded, 30m0s told"; strings.Join(got, ", ") != want {
		t.Errorf("notices are %q, want %q", strings.Join(got, ", "), want)
	}
	c.stepTo(t, s.Deadline.At.Add(-5*time.Minute))
	c.running(t, "25 minutes after it was announced", job)
	c.stepTo(t, s.Deadline.At.Time)
	c.ended(t, v1alpha1.EndMaxRuntime, 7*24*time.Hour, job)
	if stopped := c.status(t, job).Stopped.At; stopped.Sub(announced) < 30*time.Minute {
		t.Errorf("it was stopped %s after it was announced", stopped.Sub(announced))
	}
}
