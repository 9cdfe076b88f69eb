// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Workloads are stopped on time, never early and never unannounced, with the limits of the
// sample's departments. The subtests run one after the other, since one cluster has one
// policy time.
func TestWorkloadTimeLimits(t *testing.T) {
	c := newPolicyTimeCluster(t)
	t.Run("limits stop workloads on time", c.testMaxRuntime)
	t.Run("clocks continue across restarts", c.testClockContinues)
	t.Run("limits hold after a week without lifecycle", c.testLifecycleOutage)
	t.Run("measured idle time", c.testMeasuredIdleTime) // before the test that replaces an agent
	t.Run("idle workloads are stopped", c.testIdleTimeout)
	t.Run("exempt workloads keep running", c.testExemptions)
	t.Run("service accounts reset no clock", c.testServiceAccounts)
	t.Run("workloads whose operator is down are stopped", c.testOperatorDown) // changes the configuration of lifecycle
	t.Run("the stop limiter prevents mass stops", c.testStopLimiter)          // changes the configuration of lifecycle
}

// universityLeads are the leads of the sample's departments.
var universityLeads = []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute}

// testMaxRuntime shows that students' workloads are stopped after two days, research after
// ten, with warnings a day, four hours and half an hour before, and that workloads without a
// limit keep running.
func (c *policyTimeCluster) testMaxRuntime(t *testing.T) {
	const ns, limit = "on-time", 48 * time.Hour
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	students := []workload{
		newPodWorkload(ns, "notebook", migDevice, withWorkloadType(v1alpha1.WorkloadInteractive)),
		newJobWorkload(ns, "training", migDevice), newDeploymentWorkload(ns, "model", migDevice), newStatefulSetWorkload(ns, "ring", migDevice),
	}
	research, forever := newJobWorkload("protein-folding", "folding", v1alpha1.ResourceNVIDIAGPU), newDeploymentWorkload("campus-assistant", "assistant", v1alpha1.ResourceNVIDIAGPU)
	c.startWorkloads(t, append(students, research, forever)...)
	c.assertRunningOutput(t, ns)

	c.assertWarnings(t, students, limit)
	var want []string
	for _, w := range students {
		want = append(want, expectedWarnings(w, c.clockStatus(t, w).StartedAt.Time, limit)...)
		c.waitForDeadlineAnnotations(t, w)
		output := c.mustKubectl(t, "describe", w.kind, w.GetName(), "-n", ns)
		if n := strings.Count(output, "RuntimeLimitApproaching"); n == 0 || !strings.Contains(output, "after 48h of running time") {
			t.Errorf("%d events announce the deadline of %s:\n%s", n, w.GetName(), output)
		}
	}
	c.assertNotices(t, ns, want...)

	first, last := c.deadlineRange(t, students)
	c.advanceTimeTo(t, first.Add(-5*time.Minute))
	c.assertRunning(t, "five minutes before the end", append(students, research, forever)...)
	if output := c.runSluice(t, "clocks", "-n", ns); !strings.Contains(output, "47h5") {
		t.Errorf("sluice clocks prints\n%s", output)
	}
	if kinds := c.advanceToNextEvent(t); len(kinds) == 0 || kinds[0] != "WorkloadEnd" {
		t.Errorf("the next events are %v, want a stop", kinds)
	}
	c.advanceTimeTo(t, last)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, limit, students...)
	c.assertStoppedOutput(t, ns, students)
	c.eventuallyAfterStep(t, func() error {
		if remaining := c.listPods(t, ns); len(remaining) > 0 {
			return unexpectedState("no pod exists", len(remaining))
		}
		return nil
	})
	c.assertRunning(t, "after two days", research, forever)

	c.assertWarnings(t, []workload{research}, 240*time.Hour)
	c.assertNotices(t, "protein-folding", expectedWarnings(research, c.clockStatus(t, research).StartedAt.Time, 240*time.Hour)...)
	c.advanceTimeTo(t, c.deadline(t, research).Add(-5*time.Minute))
	c.assertRunning(t, "five minutes before the end", research)
	c.advanceTimeTo(t, c.deadline(t, research))
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 240*time.Hour, research)

	c.advanceTime(t, 30*24*time.Hour)
	c.assertRunning(t, "after forty days", forever)
	if s := c.clockStatus(t, forever); s.Limit != nil || s.Deadline != nil || s.Local.Ends != "never" {
		t.Errorf("the workload without a limit ends %s: %+v", s.Local.Ends, s)
	}
	c.assertNotices(t, "campus-assistant")
}

// assertWarnings advances to each warning of the workloads until all are sent.
func (c *policyTimeCluster) assertWarnings(t *testing.T, workloads []workload, limit time.Duration) {
	t.Helper()
	for remaining := true; remaining; {
		kinds, at := c.nextEventsWithTime(t, "--dry-run")
		// A warning that became due in the meantime is no longer a next event.
		if slices.Contains(kinds, "WorkloadEnd") {
			break
		}
		// Wait for a warning that is almost due, because the clocks of the workloads differ
		// slightly.
		if at.Sub(c.clockFile.Now()) < 5*time.Second {
			c.eventuallyAfterStep(t, func() error {
				if now := c.clockFile.Now(); now.Before(at) {
					return unexpectedState("the next warning is due", now)
				}
				return nil
			})
		} else {
			kinds = c.advanceToNextEvent(t)
		}
		for _, kind := range kinds {
			if kind != "WorkloadWarning" {
				t.Fatalf("the next event is %s, want only warnings", kind)
			}
		}
		remaining = false
		for _, w := range workloads {
			s := c.waitForClock(t, w, "has every due warning", func(s *v1alpha1.WorkloadClockStatus) bool {
				ran, due := c.clockFile.Now().Sub(s.StartedAt.Time), 0
				for _, lead := range universityLeads {
					if ran >= limit-lead {
						due++
					}
				}
				return len(s.Leads) == due
			})
			remaining = remaining || len(s.Leads) < len(universityLeads)
		}
	}
}

// expectedWarnings describes the warnings that the workload's owners get.
func expectedWarnings(w workload, startedAt time.Time, limit time.Duration) (list []string) {
	for _, lead := range universityLeads {
		list = append(list, fmt.Sprintf("%s %s: WorkloadEnding due %s, %s before %s", w.kind, w.GetName(),
			startedAt.Add(limit-lead).UTC().Format(time.RFC3339), lead, startedAt.Add(limit).UTC().Format(time.RFC3339)))
	}
	return list
}

// assertNotices compares the warnings about objects in a namespace.
func (c *policyTimeCluster) assertNotices(t *testing.T, ns string, want ...string) {
	t.Helper()
	got := map[string]int{}
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			continue
		}
		text := fmt.Sprintf("%s %s: %s due %s, %s before %s", n.Spec.Subject.Kind, n.Spec.Subject.Name, n.Spec.Kind,
			n.Spec.DueAt.UTC().Format(time.RFC3339), n.Spec.Lead.Length(), n.Spec.Deadline.UTC().Format(time.RFC3339))
		// The outbox supersedes it as well if the next warning is due before this one is
		// sent.
		if n.Status.Phase == v1alpha1.NoticeSuperseded && n.Status.LastError == "" {
			text += ", superseded"
		}
		got[text]++
	}
	expected := map[string]int{}
	for _, text := range want {
		expected[text] = len(c.projectOwners(t, ns))
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("notices about %s (-want +got)\n%s", ns, diff)
	}
}

// projectOwners returns the owners of the project.
func (c *policyTimeCluster) projectOwners(t *testing.T, name string) []v1alpha1.Owner {
	t.Helper()
	p := newProject(name)
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	return p.Spec.Owners
}

// waitForDeadlineAnnotations waits until the annotations of all pods of the workload have
// its deadline.
func (c *policyTimeCluster) waitForDeadlineAnnotations(t *testing.T, w workload) {
	t.Helper()
	want := c.deadline(t, w).UTC().Format(time.RFC3339)
	c.eventuallyAfterStep(t, func() error {
		for _, p := range c.listPods(t, w.GetNamespace()) {
			if p.Labels["app"] == w.GetName() && p.DeletionTimestamp == nil && p.Annotations[v1alpha1.AnnotationEndsAt] != want {
				return unexpectedState(p.Name+" has the deadline "+want, p.Annotations[v1alpha1.AnnotationEndsAt])
			}
		}
		return nil
	})
}

// assertRunningOutput checks what kubectl and sluice print about running workloads.
func (c *policyTimeCluster) assertRunningOutput(t *testing.T, ns string) {
	t.Helper()
	for line := range strings.Lines(c.mustKubectl(t, "get", "workloadclocks", "-n", ns, "--no-headers")) {
		if !strings.Contains(strings.Join(strings.Fields(line), " "), " 48h Running 0s ") || !strings.Contains(line, "MaxRuntime") {
			t.Errorf("kubectl get workloadclocks prints\n%s", line)
		}
	}
	output := c.runSluice(t, "clocks", "-n", ns)
	for _, want := range []string{"Pod/notebook", "Job/training", "Deployment/model", "StatefulSet/ring", "47h59m"} {
		if !strings.Contains(output, want) {
			t.Errorf("sluice clocks does not print %s:\n%s", want, output)
		}
	}
}

// assertStoppedOutput checks what Notices, annotations and events contain about stopped
// workloads.
func (c *policyTimeCluster) assertStoppedOutput(t *testing.T, ns string, workloads []workload) {
	t.Helper()
	stopped := 0
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			stopped++
		}
	}
	if stopped != len(workloads) {
		t.Errorf("%d notices of stops, want %d", stopped, len(workloads))
	}
	for _, w := range workloads {
		s := c.clockStatus(t, w)
		until := s.Stopped.At.Add(time.Hour).UTC()
		if got := ptr.Deref(s.Stopped.Until, s.Stopped.At).UTC(); !got.Equal(until) || !strings.HasPrefix(s.Local.Ends, "stopped until ") {
			t.Errorf("%s was stopped until %s (%s), want %s", w.GetName(), got, s.Local.Ends, until)
		}
		if _, isPod := w.Object.(*corev1.Pod); isPod {
			continue
		}
		if got, want := w.GetAnnotations()[v1alpha1.AnnotationStoppedUntil], until.Format(time.RFC3339); got != want {
			t.Errorf("%s has the annotation stopped-until %q, want %s", w.GetName(), got, want)
		}
		c.eventuallyAfterStep(t, func() error {
			if output := c.mustKubectl(t, "describe", w.kind, w.GetName(), "-n", ns); !strings.Contains(output, "The workload ran for 48h, the limit for type") {
				return unexpectedState("an event contains the reason of the stop", output)
			}
			return nil
		})
	}
}

// replaceAgent suspends a node's agent until the test ends, and then removes what the test
// wrote in its place.
func (c *policyTimeCluster) replaceAgent(t *testing.T, node string) {
	t.Helper()
	c.suspendComponent(t, "gpuagent-"+node)
	t.Cleanup(func() {
		object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		reset := client.RawPatch(types.MergePatchType, []byte(`{"status":{"sampledAt":null,"pods":null}}`))
		if err := c.adminClient.Status().Patch(context.Background(), object, reset); err != nil {
			t.Error(err)
		}
	})
}

// writeUtilization writes what a node's agent would: when the GPUs of pods were last used.
// Pods that are not in the map have no data, and the use of one with a zero time is unknown.
func (c *policyTimeCluster) writeUtilization(t *testing.T, node string, active map[workload]time.Time) error {
	t.Helper()
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	now := metav1.Now()
	object.Status.SampledAt, object.Status.Pods = &now, nil
	for w, at := range active {
		use := v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: w.GetUID(), Namespace: w.GetNamespace(), Name: w.GetName()}}
		if !at.IsZero() {
			use.LastActive = &metav1.Time{Time: at}
		}
		object.Status.Pods = append(object.Status.Pods, use)
	}
	return c.adminClient.Status().Update(t.Context(), object)
}

// waitForClockWithUtilization waits like waitForClock and writes utilization samples
// meanwhile.
func (c *policyTimeCluster) waitForClockWithUtilization(t *testing.T, active map[workload]time.Time, w workload, description string, condition func(*v1alpha1.WorkloadClockStatus) bool) v1alpha1.WorkloadClockStatus {
	t.Helper()
	return c.waitForClock(t, w, description, func(s *v1alpha1.WorkloadClockStatus) bool {
		if err := c.writeUtilization(t, "dgx-2", active); err != nil {
			t.Log(err) // a conflict with another writer; the next attempt samples again
		}
		return condition(s)
	})
}

func idleUnknown(s *v1alpha1.WorkloadClockStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionIdleUnknown)
}

// testIdleTimeout shows that an interactive workload with idle GPUs is stopped after two
// hours, with a warning at half of them, and that a workload with unknown utilization keeps
// running.
func (c *policyTimeCluster) testIdleTimeout(t *testing.T) {
	const ns = "idle"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	idlePod := newPodWorkload(ns, "forgotten", migDevice, withWorkloadType(v1alpha1.WorkloadInteractive))
	unknownPod := newPodWorkload(ns, "unseen", migDevice, withWorkloadType(v1alpha1.WorkloadInteractive))
	c.startWorkloads(t, idlePod, unknownPod)
	for _, w := range []workload{idlePod, unknownPod} {
		c.waitForClock(t, w, "has unknown utilization", idleUnknown)
	}
	c.replaceAgent(t, "dgx-2")
	c.advanceTime(t, 3*time.Hour)
	c.assertRunning(t, "without samples", idlePod, unknownPod)

	lastUsed, since := time.Now(), c.clockFile.Now()
	active := map[workload]time.Time{idlePod: lastUsed}
	c.waitForClockWithUtilization(t, active, idlePod, "has known utilization", func(s *v1alpha1.WorkloadClockStatus) bool { return !idleUnknown(s) })
	c.advanceTime(t, time.Hour)
	warned := c.waitForClockWithUtilization(t, active, idlePod, "has an idle warning", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.Reason == v1alpha1.EndIdle && s.Deadline.AnnouncedAt != nil
	})
	if got := warned.Deadline.At.Sub(since); got < 2*time.Hour-2*time.Second || got > 2*time.Hour+10*time.Minute {
		t.Errorf("the deadline is %s after the last use of the GPU, want two hours", got)
	}
	warnings := 0
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadIdle && n.Spec.Subject.Name == "forgotten" && n.Spec.Lead.Length() == time.Hour {
			warnings++
		} else {
			t.Errorf("unexpected notice %s about %s", n.Spec.Kind, n.Spec.Subject.Name)
		}
	}
	if warnings != 1 {
		t.Errorf("%d idle warnings, want 1", warnings)
	}
	c.advanceTimeTo(t, warned.Deadline.At.Add(-10*time.Minute))
	c.assertRunning(t, "ten minutes before the idle timeout", idlePod)
	c.advanceTimeTo(t, warned.Deadline.At.Time)
	c.waitForClockWithUtilization(t, active, idlePod, "is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
	c.assertStopped(t, v1alpha1.EndIdle, 5*time.Hour, idlePod)
	if s := c.clockStatus(t, idlePod); !s.Stopped.Until.Equal(&s.Stopped.At) || s.Stopped.At.Before(&warned.Deadline.At) {
		t.Errorf("stopped at %s until %s, want at %s and an immediate restart allowed", s.Stopped.At, s.Stopped.Until, warned.Deadline.At)
	}

	c.assertRunning(t, "with unknown utilization", unknownPod)
	c.eventuallyAfterStep(t, func() error {
		return c.writeUtilization(t, "dgx-2", map[workload]time.Time{unknownPod: {}})
	})
	c.advanceTime(t, 3*time.Hour)
	c.eventuallyAfterStep(t, func() error {
		return c.writeUtilization(t, "dgx-2", map[workload]time.Time{unknownPod: {}})
	})
	// The next warning shows that lifecycle has processed the samples before it.
	c.advanceTimeTo(t, c.deadline(t, unknownPod).Add(-universityLeads[0]))
	s := c.waitForClock(t, unknownPod, "has a warning of its limit", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
	if !idleUnknown(&s) || s.IdleSince != nil || s.Deadline.Reason != v1alpha1.EndMaxRuntime {
		t.Errorf("with unavailable utilization the workload is idle since %s and ends because of %s", s.IdleSince, s.Deadline.Reason)
	}
	c.assertRunning(t, "with unavailable utilization", unknownPod)
}
