// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/controller"
)

// elapsed is how long a workload has run by now.
func (c *policyTimeCluster) elapsed(s v1alpha1.WorkloadClockStatus) time.Duration {
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += c.clockFile.Now().Sub(s.RunningSince.Time)
	}
	return ran
}

// assertClockKept checks that the workload's time began when it did, and that it has run for
// at least so long, and little more.
func (c *policyTimeCluster) assertClockKept(t *testing.T, when string, w workload, began *metav1.Time, atLeast time.Duration) {
	t.Helper()
	s := c.clockStatus(t, w)
	if ran := c.elapsed(s); !s.StartedAt.Equal(began) || ran < atLeast-5*time.Minute || ran > atLeast+10*time.Minute {
		t.Errorf("%s, %s %s has run for %s since %s; want %s since %s", when, w.kind, w.GetName(), ran, s.StartedAt, atLeast, began)
	}
}

// waitForPodReplacement waits until all pods of the workload that ran before are gone, and
// another runs.
func (c *policyTimeCluster) waitForPodReplacement(t *testing.T, w workload, before []types.UID) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error {
		now := c.listWorkloadPods(t, w)
		for i := range now {
			if slices.Contains(before, now[i].UID) {
				return unexpectedState(now[i].Name+" is gone", now[i].Status.Phase)
			}
		}
		if len(now) == 0 || now[0].Status.Phase != corev1.PodRunning {
			return unexpectedState("another pod of "+w.GetName()+" runs", len(now))
		}
		return nil
	})
}

// listWorkloadPods are those of the workload.
func (c *policyTimeCluster) listWorkloadPods(t *testing.T, w workload) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.listPods(t, w.GetNamespace()), func(p corev1.Pod) bool { return p.Labels["app"] != w.GetName() })
}

// testClockContinues shows that a workload's time goes on over restarts of its pods, evictions
// and restarts of lifecycle, that it stands still while the workload is suspended,
// and that waiting does not count.
func (c *policyTimeCluster) testClockContinues(t *testing.T) {
	const ns = "kept"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job, web, bare := newJobWorkload(ns, "train", migDevice), newDeploymentWorkload(ns, "web", migDevice), newPodWorkload(ns, "later", migDevice, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	})
	c.createForTest(t, bare.Object)
	c.startWorkloads(t, job, web)
	began := map[string]*metav1.Time{"train": c.clockStatus(t, job).StartedAt, "web": c.clockStatus(t, web).StartedAt}

	uids := func(w workload) (uids []types.UID) {
		for _, p := range c.listWorkloadPods(t, w) {
			uids = append(uids, p.UID)
		}
		return uids
	}
	pods := c.clientset.CoreV1().Pods(ns)
	at := 10 * time.Hour
	c.advanceTime(t, at)
	t.Run("a pod is deleted", func(t *testing.T) {
		before := uids(job)
		if err := pods.Delete(t.Context(), c.listWorkloadPods(t, job)[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		c.waitForPodReplacement(t, job, before)
		c.waitForClock(t, job, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.assertClockKept(t, "after its pod was deleted", job, began["train"], at)
	})
	t.Run("a pod is evicted", func(t *testing.T) {
		before := uids(web)
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: c.listWorkloadPods(t, web)[0].Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))},
		}
		if err := pods.EvictV1(t.Context(), eviction); err != nil {
			t.Fatal(err)
		}
		c.waitForPodReplacement(t, web, before)
		c.waitForClock(t, web, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.assertClockKept(t, "after its pod was evicted", web, began["web"], at)
	})
	t.Run("it is suspended for half an hour", func(t *testing.T) {
		c.runKubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":true}}`)
		paused := c.waitForClock(t, job, "its time stands still", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStatePaused })
		c.advanceTime(t, 30*time.Minute)
		c.runKubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":false}}`)
		again := c.waitForClock(t, job, "its time runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		if again.AccumulatedSeconds != paused.AccumulatedSeconds || paused.Deadline != nil {
			t.Errorf("it had run for %d s, and then for %d s; while it stood still it ended at %v", paused.AccumulatedSeconds, again.AccumulatedSeconds, paused.Deadline)
		}
		c.assertClockKept(t, "after it was suspended", job, began["train"], at)
	})
	t.Run("it waits", func(t *testing.T) {
		if found, err := c.getClock(t, bare); !apierrors.IsNotFound(err) {
			t.Errorf("what has not run has a clock: %+v, %v", found.Status, err)
		}
		c.runKubectl(t, "patch", "pod", "later", "-n", ns, "--type=merge", "-p", `{"spec":{"schedulingGates":null}}`)
		s := c.waitForClock(t, bare, "its time runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		c.assertClockKept(t, "after it waited for ten hours", bare, s.StartedAt, 0)
	})
	t.Run("lifecycle is killed", func(t *testing.T) {
		before, err := c.getClock(t, web)
		if err != nil {
			t.Fatal(err)
		}
		c.restartLifecycle(t, func() {})
		c.advanceTime(t, time.Hour)
		c.assertClockKept(t, "after lifecycle began anew", job, began["train"], at+time.Hour)
		c.assertClockKept(t, "after lifecycle began anew", web, began["web"], at+90*time.Minute)
		// That it looks at them again is seen by what it says next.
		c.advanceTimeTo(t, c.deadline(t, web).Add(-universityLeads[0]))
		after := c.waitForClock(t, web, "its people were warned", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
		if now, err := c.getClock(t, web); err != nil || now.UID != before.UID || after.AccumulatedSeconds != before.Status.AccumulatedSeconds {
			t.Errorf("the clock is another one: %+v, %v; it was %+v", after, err, before.Status)
		}
	})
	t.Run("it is rolled after its end was announced", func(t *testing.T) {
		before := uids(web)
		c.runKubectl(t, "rollout", "restart", "deployment/web", "-n", ns)
		c.waitForPodReplacement(t, web, before)
		c.waitForDeadlineAnnotations(t, web)
		c.assertClockKept(t, "after it was rolled", web, began["web"], 24*time.Hour)
	})
	t.Run("all of it together is as long as it may run", func(t *testing.T) {
		// The Job was suspended for half an hour, and so ends that much later.
		for _, w := range []workload{web, job} {
			c.advanceTimeTo(t, c.deadline(t, w).Add(-20*time.Minute))
			c.waitForClock(t, w, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
			c.advanceTimeTo(t, c.deadline(t, w).Add(-5*time.Minute))
			c.assertRunning(t, "five minutes before the end", w, job)
			c.advanceTimeTo(t, c.deadline(t, w))
			c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, w)
		}
	})
}

// testLifecycleOutage shows that nothing ends unannounced: where lifecycle was away
// when people should have been warned, they are warned when it is back, and
// have the shortest lead.
func (c *policyTimeCluster) testLifecycleOutage(t *testing.T) {
	const ns = "away"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job := newJobWorkload(ns, "long", migDevice)
	c.startWorkloads(t, job)
	c.restartLifecycle(t, func() { c.advanceTime(t, 7*24*time.Hour) })
	s := c.waitForClock(t, job, "its people were warned", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	announced := s.Deadline.AnnouncedAt.Time
	if got := s.Deadline.At.Sub(announced); got != 30*time.Minute || announced.Sub(s.StartedAt.Time) < 7*24*time.Hour {
		t.Errorf("%s after it began it was announced that it ends %s later; want half an hour", announced.Sub(s.StartedAt.Time), got)
	}
	var got []string
	for _, n := range c.listNotices(t, ns) {
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
	c.advanceTimeTo(t, s.Deadline.At.Add(-5*time.Minute))
	c.assertRunning(t, "25 minutes after it was announced", job)
	c.advanceTimeTo(t, s.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 7*24*time.Hour, job)
	if stopped := c.clockStatus(t, job).Stopped.At; stopped.Sub(announced) < 30*time.Minute {
		t.Errorf("it was stopped %s after it was announced", stopped.Sub(announced))
	}
}

// testExemptions shows that nothing ends where a department only looks, and where a project
// is exempt or held; and that work whose project is no longer held has the longest
// lead left.
func (c *policyTimeCluster) testExemptions(t *testing.T) {
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "looking"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "1")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {
				MaxRuntime: ptr.To(period.MustParseDuration("48h")), DryRun: ptr.To(true),
			}},
		},
	})
	c.createGovernedProject(t, "looking", "looked-at", newPoolQuota("dgx", "0", "1"))
	c.createGovernedProject(t, "h2-students", "held", newPoolQuota("dgx-mig", "500m", "1"))
	c.createGovernedProject(t, "h2-students", "exempt", newPoolQuota("dgx-mig", "500m", "1"))
	except := &v1alpha1.Exception{Reason: "the defense is next week"}
	c.updateProject(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = except })
	c.updateProject(t, "exempt", func(p *v1alpha1.Project) { p.Spec.Exempt = except })
	seen, held, exempt := newJobWorkload("looked-at", "seen", v1alpha1.ResourceNVIDIAGPU), newJobWorkload("held", "held", migDevice), newJobWorkload("exempt", "exempt", migDevice)
	all := []workload{seen, held, exempt}
	c.startWorkloads(t, all...)

	c.advanceTime(t, 50*time.Hour)
	would := func(s *v1alpha1.WorkloadClockStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDryRun)
	}
	c.waitForClock(t, seen, "it would be stopped", would)
	c.assertRunning(t, "after its limit", all...)
	c.advanceTime(t, 7*24*time.Hour)
	c.assertRunning(t, "a week after its limit", all...)
	for _, w := range all {
		if s := c.clockStatus(t, w); s.Deadline != nil || s.Local.Ends != "never" || len(c.listNotices(t, w.GetNamespace())) > 0 {
			t.Errorf("%s ends %s, and its people were told of %v", w.GetName(), s.Local.Ends, c.listNotices(t, w.GetNamespace()))
		}
	}

	c.updateProject(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = nil })
	s := c.waitForClock(t, held, "it ends", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil })
	if left := s.Deadline.At.Sub(s.Deadline.AnnouncedAt.Time); left != universityLeads[0] {
		t.Errorf("what is held no longer has %s left, want %s", left, universityLeads[0])
	}
	c.assertRunning(t, "when it is held no longer", all...)
	c.advanceTimeTo(t, s.Deadline.At.Add(-20*time.Minute))
	c.waitForClock(t, held, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	c.advanceTimeTo(t, s.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, held)
	c.assertRunning(t, "when another one ended", seen, exempt)
}

// updateProject changes a project, and waits until its quota is counted again.
func (c *policyTimeCluster) updateProject(t *testing.T, name string, how func(*v1alpha1.Project)) {
	t.Helper()
	p := newProject(name)
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		how(p)
		return c.adminClient.Update(t.Context(), p)
	})
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		counted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied)
		if counted == nil || counted.Status != metav1.ConditionTrue || counted.ObservedGeneration != p.Generation {
			return unexpectedState("its quota is counted", counted)
		}
		return nil
	})
}

// testStopLimiter shows that none of very many workloads is stopped until an administrator
// says so; very many are two here.
func (c *policyTimeCluster) testStopLimiter(t *testing.T) {
	const ns = "braked"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	file := filepath.Join(c.dir, "components", "lifecycle", "config.yaml")
	c.restartLifecycle(t, func() {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := yaml.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		config["stopping"] = map[string]any{"brake": map[string]any{"percent": 0, "workloads": 1}}
		if raw, err = yaml.Marshal(config); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	both := []workload{newJobWorkload(ns, "one", migDevice), newJobWorkload(ns, "two", migDevice)}
	c.startWorkloads(t, both...)
	_, last := c.deadlineRange(t, both)
	c.advanceTimeTo(t, last.Add(-20*time.Minute))
	for _, w := range both {
		c.waitForClock(t, w, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	}
	_, last = c.deadlineRange(t, both)
	c.advanceTimeTo(t, last)
	state := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: controller.StopLimiterConfigMapName}}
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(state), state)
		if err == nil && state.Data[controller.StopLimiterDue] != "2" {
			err = unexpectedState("two workloads were to be stopped", state.Data)
		}
		return err
	})
	c.assertRunning(t, "while the brake is engaged", both...)
	c.advanceTime(t, 5*time.Hour)
	c.assertRunning(t, "five hours later", both...)

	if shown := c.runSluice(t, "brake", "show"); !strings.Contains(shown, "The stop limiter is engaged since ") {
		t.Errorf("sluice brake show prints %s", shown)
	}
	c.runSluice(t, "brake", "release", "--for", "2h")
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 53*time.Hour, both...)
}
