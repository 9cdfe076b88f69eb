// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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

// elapsed returns how long the workload has run until now.
func (c *policyTimeCluster) elapsed(s v1alpha1.WorkloadClockStatus) time.Duration {
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += c.clockFile.Now().Sub(s.RunningSince.Time)
	}
	return ran
}

// assertClockKept checks that the workload's clock started at that time and has run for
// about that long. The time of the test itself, which counts too, may be long on a busy machine.
func (c *policyTimeCluster) assertClockKept(t *testing.T, when string, w workload, startedAt *metav1.Time, atLeast time.Duration) {
	t.Helper()
	s := c.clockStatus(t, w)
	if ran := c.elapsed(s); !s.StartedAt.Equal(startedAt) || ran < atLeast-5*time.Minute || ran > atLeast+25*time.Minute {
		t.Errorf("%s, %s %s has run for %s since %s; want %s since %s", when, w.kind, w.GetName(), ran, s.StartedAt, atLeast, startedAt)
	}
}

// waitForPodReplacement waits until the previous pods of the workload no longer exist and
// another runs.
func (c *policyTimeCluster) waitForPodReplacement(t *testing.T, w workload, before []types.UID) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error {
		pods := c.listWorkloadPods(t, w)
		for i := range pods {
			if slices.Contains(before, pods[i].UID) {
				return unexpectedState(pods[i].Name+" is deleted", pods[i].Status.Phase)
			}
		}
		if len(pods) == 0 || pods[0].Status.Phase != corev1.PodRunning {
			return unexpectedState("another pod of "+w.GetName()+" runs", len(pods))
		}
		return nil
	})
}

// listWorkloadPods returns the pods of the workload.
func (c *policyTimeCluster) listWorkloadPods(t *testing.T, w workload) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.listPods(t, w.GetNamespace()), func(p corev1.Pod) bool { return p.Labels["app"] != w.GetName() })
}

// testClockContinues shows that a workload's clock continues across restarts of its pods,
// evictions and restarts of lifecycle, that it pauses while the workload is suspended, and
// that pending time does not count.
func (c *policyTimeCluster) testClockContinues(t *testing.T) {
	const ns = "kept"
	c.allowGate(t, "example.org/later")
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job, web, gatedPod := newJobWorkload(ns, "train", migDevice), newDeploymentWorkload(ns, "web", migDevice), newPodWorkload(ns, "later", migDevice, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	})
	// With the program of the job it would continue the job's clock while that is suspended.
	web.Object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args = []string{"serve"} //nolint:forcetypeassert // as created
	eventually(t, func() error {
		return c.adminClient.Create(t.Context(), gatedPod.DeepCopyObject().(client.Object), client.DryRunAll)
	})
	c.createForTest(t, gatedPod.Object)
	c.startWorkloads(t, job, web)
	startedAt := map[string]*metav1.Time{"train": c.clockStatus(t, job).StartedAt, "web": c.clockStatus(t, web).StartedAt}

	uids := func(w workload) (uids []types.UID) {
		for _, p := range c.listWorkloadPods(t, w) {
			uids = append(uids, p.UID)
		}
		return uids
	}
	pods := c.clientset.CoreV1().Pods(ns)
	elapsed := 10 * time.Hour
	c.advanceTime(t, elapsed)
	t.Run("a pod is deleted", func(t *testing.T) {
		before := uids(job)
		if err := pods.Delete(t.Context(), c.listWorkloadPods(t, job)[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		c.waitForPodReplacement(t, job, before)
		c.waitForClock(t, job, "runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.assertClockKept(t, "after its pod was deleted", job, startedAt["train"], elapsed)
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
		c.waitForClock(t, web, "runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
		c.assertClockKept(t, "after its pod was evicted", web, startedAt["web"], elapsed)
	})
	t.Run("the Job is suspended for half an hour", func(t *testing.T) {
		c.mustKubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":true}}`)
		paused := c.waitForClock(t, job, "is paused", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStatePaused })
		c.advanceTime(t, 30*time.Minute)
		c.mustKubectl(t, "patch", "job", "train", "-n", ns, "--type=merge", "-p", `{"spec":{"suspend":false}}`)
		resumed := c.waitForClock(t, job, "runs again", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		if resumed.AccumulatedSeconds != paused.AccumulatedSeconds || paused.Deadline != nil {
			t.Errorf("the clock had %d s before and %d s after the pause; while paused its deadline was %v", paused.AccumulatedSeconds, resumed.AccumulatedSeconds, paused.Deadline)
		}
		c.assertClockKept(t, "after it was suspended", job, startedAt["train"], elapsed)
	})
	t.Run("a pending pod", func(t *testing.T) {
		if found, err := c.getClock(t, gatedPod); !apierrors.IsNotFound(err) {
			t.Errorf("a workload that has not run has a clock: %+v, %v", found.Status, err)
		}
		c.mustKubectl(t, "patch", "pod", "later", "-n", ns, "--type=merge", "-p", `{"spec":{"schedulingGates":null}}`)
		s := c.waitForClock(t, gatedPod, "runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		c.assertClockKept(t, "after it was pending for ten hours", gatedPod, s.StartedAt, 0)
	})
	t.Run("lifecycle is killed", func(t *testing.T) {
		before, err := c.getClock(t, web)
		if err != nil {
			t.Fatal(err)
		}
		c.restartLifecycle(t, func() {})
		c.advanceTime(t, time.Hour)
		c.assertClockKept(t, "after lifecycle restarted", job, startedAt["train"], elapsed+time.Hour)
		c.assertClockKept(t, "after lifecycle restarted", web, startedAt["web"], elapsed+90*time.Minute)
		// The next warning shows that lifecycle evaluates the clocks again.
		c.advanceTimeTo(t, c.deadline(t, web).Add(-universityLeads[0]))
		after := c.waitForClock(t, web, "has its first warning", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
		if now, err := c.getClock(t, web); err != nil || now.UID != before.UID || after.AccumulatedSeconds != before.Status.AccumulatedSeconds {
			t.Errorf("the clock was replaced: %+v, %v; before: %+v", after, err, before.Status)
		}
	})
	t.Run("a rollout after the deadline was announced", func(t *testing.T) {
		before := uids(web)
		c.mustKubectl(t, "rollout", "restart", "deployment/web", "-n", ns)
		c.waitForPodReplacement(t, web, before)
		c.waitForDeadlineAnnotations(t, web)
		c.assertClockKept(t, "after the rollout", web, startedAt["web"], 24*time.Hour)
	})
	t.Run("the total time equals the limit", func(t *testing.T) {
		// The Job was suspended for half an hour, so its deadline is half an hour later.
		for _, w := range []workload{web, job} {
			c.advanceTimeTo(t, c.deadline(t, w).Add(-20*time.Minute))
			c.waitForClock(t, w, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
			c.advanceTimeTo(t, c.deadline(t, w).Add(-5*time.Minute))
			c.assertRunning(t, "five minutes before the end", w, job)
			c.advanceTimeTo(t, c.deadline(t, w))
			c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, w)
		}
	})
}

// testLifecycleOutage shows that no workload is stopped unannounced: if lifecycle was down
// when warnings were due, it sends them when it is back, and the workload keeps the shortest
// lead.
func (c *policyTimeCluster) testLifecycleOutage(t *testing.T) {
	const ns = "away"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job := newJobWorkload(ns, "long", migDevice)
	c.startWorkloads(t, job)
	c.restartLifecycle(t, func() { c.advanceTime(t, 7*24*time.Hour) })
	s := c.waitForClock(t, job, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	announced := s.Deadline.AnnouncedAt.Time
	if got := s.Deadline.At.Sub(announced); got != 30*time.Minute || announced.Sub(s.StartedAt.Time) < 7*24*time.Hour {
		t.Errorf("the deadline was announced %s after the start and is %s later; want half an hour", announced.Sub(s.StartedAt.Time), got)
	}
	var got []string
	for _, n := range c.listNotices(t, ns) {
		state := "sent"
		if n.Status.Phase == v1alpha1.NoticeSuperseded {
			state = "superseded"
		}
		got = append(got, fmt.Sprintf("%s %s", n.Spec.Lead.Length(), state))
		if !n.Spec.Deadline.Time.Equal(s.Deadline.At.Time) {
			t.Errorf("a notice has the deadline %s, want %s", n.Spec.Deadline, s.Deadline.At)
		}
	}
	if want := "24h0m0s superseded, 4h0m0s superseded, 30m0s sent"; strings.Join(got, ", ") != want {
		t.Errorf("notices are %q, want %q", strings.Join(got, ", "), want)
	}
	c.advanceTimeTo(t, s.Deadline.At.Add(-5*time.Minute))
	c.assertRunning(t, "25 minutes after it was announced", job)
	c.advanceTimeTo(t, s.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 7*24*time.Hour, job)
	if stopped := c.clockStatus(t, job).Stopped.At; stopped.Sub(announced) < 30*time.Minute {
		t.Errorf("the workload was stopped %s after the announcement", stopped.Sub(announced))
	}
}

// testExemptions shows that no workload is stopped in a department with a dry run, or in a
// project that is exempt or on hold. After a hold ends, workloads have the longest lead.
func (c *policyTimeCluster) testExemptions(t *testing.T) {
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "dry-run"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "1")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {
				MaxRuntime: ptr.To(period.MustParseDuration("48h")), DryRun: ptr.To(true),
			}},
		},
	})
	c.createGovernedProject(t, "dry-run", "dry-run-project", newPoolQuota("dgx", "0", "1"))
	c.createGovernedProject(t, "h2-students", "held", newPoolQuota("dgx-mig", "500m", "1"))
	c.createGovernedProject(t, "h2-students", "exempt", newPoolQuota("dgx-mig", "500m", "1"))
	exception := &v1alpha1.Exception{Reason: "the defense is next week"}
	c.updateProject(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = exception })
	c.updateProject(t, "exempt", func(p *v1alpha1.Project) { p.Spec.Exempt = exception })
	dryRun, held, exempt := newJobWorkload("dry-run-project", "seen", v1alpha1.ResourceNVIDIAGPU), newJobWorkload("held", "held", migDevice), newJobWorkload("exempt", "exempt", migDevice)
	all := []workload{dryRun, held, exempt}
	c.startWorkloads(t, all...)

	c.advanceTime(t, 50*time.Hour)
	wouldStop := func(s *v1alpha1.WorkloadClockStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDryRun)
	}
	c.waitForClock(t, dryRun, "would be stopped", wouldStop)
	c.assertRunning(t, "after its limit", all...)
	c.advanceTime(t, 7*24*time.Hour)
	c.assertRunning(t, "a week after its limit", all...)
	for _, w := range all {
		if s := c.clockStatus(t, w); s.Deadline != nil || s.Local.Ends != "never" || len(c.listNotices(t, w.GetNamespace())) > 0 {
			t.Errorf("%s ends %s and has the notices %v", w.GetName(), s.Local.Ends, c.listNotices(t, w.GetNamespace()))
		}
	}

	c.updateProject(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = nil })
	s := c.waitForClock(t, held, "has a deadline", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil })
	if left := s.Deadline.At.Sub(s.Deadline.AnnouncedAt.Time); left != universityLeads[0] {
		t.Errorf("the workload has %s left after the hold, want %s", left, universityLeads[0])
	}
	c.assertRunning(t, "after the hold ended", all...)
	c.advanceTimeTo(t, s.Deadline.At.Add(-20*time.Minute))
	// A warning that is late, as after this step, moves the deadline by the shortest lead.
	s = c.waitForClock(t, held, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	c.advanceTimeTo(t, s.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, held)
	c.assertRunning(t, "after another workload was stopped", dryRun, exempt)
}

// updateProject changes a project and waits until its quota is counted again.
func (c *policyTimeCluster) updateProject(t *testing.T, name string, change func(*v1alpha1.Project)) {
	t.Helper()
	p := newProject(name)
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		change(p)
		return c.adminClient.Update(t.Context(), p)
	})
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		counted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied)
		if counted == nil || counted.Status != metav1.ConditionTrue || counted.ObservedGeneration != p.Generation {
			return unexpectedState("the quota is counted", counted)
		}
		return nil
	})
}

// testStopLimiter shows that a shortened limit stops no workload without an administrator's
// release if too many are due at once in the department. The limit is one workload in this
// test. Workloads that request the same time themselves are stopped.
func (c *policyTimeCluster) testStopLimiter(t *testing.T) {
	const ns = "stop-limiter"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	c.configureLifecycle(t, map[string]any{"stopping": map[string]any{"stopLimiter": map[string]any{"percent": 0, "workloads": 1}}})
	both := []workload{newJobWorkload(ns, "one", migDevice), newJobWorkload(ns, "two", migDevice)}
	c.startWorkloads(t, both...)
	before, _ := c.deadlineRange(t, both)
	c.updateProject(t, ns, func(p *v1alpha1.Project) {
		p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("30h"))}}
	})
	for _, w := range both {
		c.waitForClock(t, w, "has an earlier end", func(s *v1alpha1.WorkloadClockStatus) bool {
			return s.Deadline != nil && s.Deadline.At.Time.Before(before.Add(-10*time.Hour))
		})
	}
	_, last := c.deadlineRange(t, both)
	c.advanceTimeTo(t, last.Add(-20*time.Minute))
	for _, w := range both {
		c.waitForClock(t, w, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	}
	_, last = c.deadlineRange(t, both)
	c.advanceTimeTo(t, last)
	state := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: controller.StopLimiterConfigMapName}}
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(state), state)
		if err == nil && controller.ParseStopLimiterState(state, "h2-students").Due != 2 {
			err = unexpectedState("two workloads are due", state.Data)
		}
		return err
	})
	c.assertRunning(t, "while the stop limiter is engaged", both...)
	c.advanceTime(t, 5*time.Hour)
	c.assertRunning(t, "five hours later", both...)

	if output := c.runSluice(t, "brake", "show"); !strings.Contains(output, "The stop limiter is engaged in department h2-students since ") {
		t.Errorf("sluice brake show prints %s", output)
	}
	c.runSluice(t, "brake", "release", "h2-students", "--for", "2h")
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 35*time.Hour, both...)
}

// configureLifecycle restarts lifecycle with changed settings and returns the configuration of its process.
func (c *policyTimeCluster) configureLifecycle(t *testing.T, settings map[string]any) (config map[string]any) {
	t.Helper()
	const name, key = "lifecycle", "lifecycle.yaml"
	configMaps := c.clientset.CoreV1().ConfigMaps(v1alpha1.SystemNamespace)
	parse := func(raw string) (parsed map[string]any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(raw), &parsed); err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	c.restartLifecycle(t, func() {
		configMap, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		changed := parse(configMap.Data[key])
		maps.Copy(changed, settings)
		raw, err := yaml.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		configMap.Data[key] = string(raw)
		if _, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		// The launcher writes the file, with the addresses of the process.
		c.eventuallyAfterStep(t, func() error {
			raw, err := os.ReadFile(c.configurationFile(name))
			if err != nil {
				return err
			}
			config = parse(string(raw))
			for setting := range settings {
				if !reflect.DeepEqual(config[setting], parse(configMap.Data[key])[setting]) {
					return fmt.Errorf("%s is %v in the file", setting, config[setting])
				}
			}
			return nil
		})
	})
	return config
}
