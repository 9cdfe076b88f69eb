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

// Workloads end on time: none before its time and none unannounced, as the
// sample university's departments have it. Its parts run one after the other in one
// cluster, since all live in one policy time.
func TestWorkloadTimeLimits(t *testing.T) {
	c := newPolicyTimeCluster(t)
	t.Run("end workloads on time", c.testMaxRuntime)
	t.Run("go on over restarts", c.testClockContinues)
	t.Run("survive a week without lifecycle", c.testLifecycleOutage)
	t.Run("end what is idle", c.testIdleTimeout)
	t.Run("spare what is to be spared", c.testExemptions)
	t.Run("are braked", c.testStopLimiter) // changes how lifecycle is configured
}

// universityLeads are the university's.
var universityLeads = []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute}

// testMaxRuntime shows that students' work ends after two days and research after ten,
// each warned a day, four hours and half an hour before, and that of everybody
// never.
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
		said := c.runKubectl(t, "describe", w.kind, w.GetName(), "-n", ns)
		if n := strings.Count(said, "RuntimeLimitApproaching"); n == 0 || !strings.Contains(said, "after 48h of running time") {
			t.Errorf("%d events on it announce the end of %s:\n%s", n, w.GetName(), said)
		}
	}
	c.assertNotices(t, ns, want...)

	first, last := c.deadlineRange(t, students)
	c.advanceTimeTo(t, first.Add(-5*time.Minute))
	c.assertRunning(t, "five minutes before the end", append(students, research, forever)...)
	if shown := c.runSluice(t, "clocks", "-n", ns); !strings.Contains(shown, "47h5") {
		t.Errorf("sluice clocks shows\n%s", shown)
	}
	if kinds := c.advanceToNextEvent(t); len(kinds) == 0 || kinds[0] != "WorkloadEnd" {
		t.Errorf("what comes next is %v, want an end", kinds)
	}
	c.advanceTimeTo(t, last)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, limit, students...)
	c.assertStoppedOutput(t, ns, students)
	c.eventuallyAfterStep(t, func() error {
		if left := c.listPods(t, ns); len(left) > 0 {
			return unexpectedState("no pod is left", len(left))
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
		t.Errorf("what nothing limits ends %s: %+v", s.Local.Ends, s)
	}
	c.assertNotices(t, "campus-assistant")
}

// assertWarnings steps to each warning of the workloads, until there are none.
func (c *policyTimeCluster) assertWarnings(t *testing.T, workloads []workload, limit time.Duration) {
	t.Helper()
	for left := true; left; {
		kinds, at := c.nextEventsWithTime(t, "--dry-run")
		// A warning that has come due by itself meanwhile is no next one any more.
		if slices.Contains(kinds, "WorkloadEnd") {
			break
		}
		// One that is about to is waited for: what began a little later is warned a
		// little later.
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
				t.Fatalf("%s comes next, want only warnings", kind)
			}
		}
		left = false
		for _, w := range workloads {
			s := c.waitForClock(t, w, "every warning that is due was given", func(s *v1alpha1.WorkloadClockStatus) bool {
				ran, due := c.clockFile.Now().Sub(s.StartedAt.Time), 0
				for _, lead := range universityLeads {
					if ran >= limit-lead {
						due++
					}
				}
				return len(s.Leads) == due
			})
			left = left || len(s.Leads) < len(universityLeads)
		}
	}
}

// expectedWarnings are the warnings that a workload's people are to have, in words.
func expectedWarnings(w workload, began time.Time, limit time.Duration) (list []string) {
	for _, lead := range universityLeads {
		list = append(list, fmt.Sprintf("%s %s: WorkloadEnding due %s, %s before %s", w.kind, w.GetName(),
			began.Add(limit-lead).UTC().Format(time.RFC3339), lead, began.Add(limit).UTC().Format(time.RFC3339)))
	}
	return list
}

// assertNotices compares the warnings about what is in a namespace.
func (c *policyTimeCluster) assertNotices(t *testing.T, ns string, want ...string) {
	t.Helper()
	got := map[string]int{}
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			continue
		}
		text := fmt.Sprintf("%s %s: %s due %s, %s before %s", n.Spec.Subject.Kind, n.Spec.Subject.Name, n.Spec.Kind,
			n.Spec.DueAt.UTC().Format(time.RFC3339), n.Spec.Lead.Length(), n.Spec.Deadline.UTC().Format(time.RFC3339))
		// The outbox may do that, too, where the next one is due before this is sent.
		if n.Status.Phase == v1alpha1.NoticeSuperseded && n.Status.LastError == "" {
			text += ", superseded"
		}
		got[text]++
	}
	once := map[string]int{}
	for _, text := range want {
		once[text] = len(c.projectOwners(t, ns))
	}
	if diff := cmp.Diff(once, got); diff != "" {
		t.Errorf("what people in %s were told differs (-want +got)\n%s", ns, diff)
	}
}

// projectOwners are those of the project of that name.
func (c *policyTimeCluster) projectOwners(t *testing.T, name string) []v1alpha1.Owner {
	t.Helper()
	p := newProject(name)
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	return p.Spec.Owners
}

// waitForDeadlineAnnotations waits until all of the workload's pods say when they end.
func (c *policyTimeCluster) waitForDeadlineAnnotations(t *testing.T, w workload) {
	t.Helper()
	want := c.deadline(t, w).UTC().Format(time.RFC3339)
	c.eventuallyAfterStep(t, func() error {
		for _, p := range c.listPods(t, w.GetNamespace()) {
			if p.Labels["app"] == w.GetName() && p.DeletionTimestamp == nil && p.Annotations[v1alpha1.AnnotationEndsAt] != want {
				return unexpectedState(p.Name+" says that it ends at "+want, p.Annotations[v1alpha1.AnnotationEndsAt])
			}
		}
		return nil
	})
}

// assertRunningOutput checks what people see of workloads that run.
func (c *policyTimeCluster) assertRunningOutput(t *testing.T, ns string) {
	t.Helper()
	for line := range strings.Lines(c.runKubectl(t, "get", "workloadclocks", "-n", ns, "--no-headers")) {
		if !strings.Contains(strings.Join(strings.Fields(line), " "), " 48h Running 0s ") || !strings.Contains(line, "MaxRuntime") {
			t.Errorf("kubectl get workloadclocks shows\n%s", line)
		}
	}
	shown := c.runSluice(t, "clocks", "-n", ns)
	for _, want := range []string{"Pod/notebook", "Job/training", "Deployment/model", "StatefulSet/ring", "47h59m"} {
		if !strings.Contains(shown, want) {
			t.Errorf("sluice clocks does not show %s:\n%s", want, shown)
		}
	}
}

// assertStoppedOutput checks what people see of workloads that were stopped.
func (c *policyTimeCluster) assertStoppedOutput(t *testing.T, ns string, workloads []workload) {
	t.Helper()
	stopped := 0
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			stopped++
		}
	}
	if stopped != len(workloads) {
		t.Errorf("people were told of %d stops, want %d", stopped, len(workloads))
	}
	for _, w := range workloads {
		s := c.clockStatus(t, w)
		until := s.Stopped.At.Add(time.Hour).UTC()
		if got := ptr.Deref(s.Stopped.Until, s.Stopped.At).UTC(); !got.Equal(until) || !strings.HasPrefix(s.Local.Ends, "stopped until ") {
			t.Errorf("%s was stopped until %s (%s), want %s", w.GetName(), got, s.Local.Ends, until)
		}
		if _, bare := w.Object.(*corev1.Pod); bare {
			continue
		}
		if got, want := w.GetAnnotations()[v1alpha1.AnnotationStoppedUntil], until.Format(time.RFC3339); got != want {
			t.Errorf("%s says that it is stopped until %q, want %s", w.GetName(), got, want)
		}
		c.eventuallyAfterStep(t, func() error {
			if said := c.runKubectl(t, "describe", w.kind, w.GetName(), "-n", ns); !strings.Contains(said, "The workload ran for 48h, the limit for type") {
				return unexpectedState("an event says why it was stopped", said)
			}
			return nil
		})
	}
}

// replaceAgent stops a node's agent as it stands, until the test ends, and then
// takes back what was written in its place.
func (c *policyTimeCluster) replaceAgent(t *testing.T, node string) {
	t.Helper()
	c.suspendComponent(t, "gpuagent-"+node)
	t.Cleanup(func() {
		object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		forget := client.RawPatch(types.MergePatchType, []byte(`{"status":{"sampledAt":null,"utilizationSource":null,"pods":null}}`))
		if err := c.adminClient.Status().Patch(context.Background(), object, forget); err != nil {
			t.Error(err)
		}
	})
}

// writeUtilization writes what a node's agent would: when the GPUs of pods were last used,
// as of now. Those that are not named it knows nothing of.
func (c *policyTimeCluster) writeUtilization(t *testing.T, node string, source v1alpha1.UtilizationSource, active map[workload]time.Time) error {
	t.Helper()
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	now := metav1.Now()
	object.Status.SampledAt, object.Status.UtilizationSource, object.Status.Pods = &now, source, nil
	for w, at := range active {
		last := metav1.NewTime(at)
		object.Status.Pods = append(object.Status.Pods, v1alpha1.PodUsage{
			PodReference: v1alpha1.PodReference{UID: w.GetUID(), Namespace: w.GetNamespace(), Name: w.GetName()}, LastActive: &last,
		})
	}
	return c.adminClient.Status().Update(t.Context(), object)
}

// waitForClockWithUtilization is awaitClock while the node's agent samples.
func (c *policyTimeCluster) waitForClockWithUtilization(t *testing.T, active map[workload]time.Time, w workload, want string, is func(*v1alpha1.WorkloadClockStatus) bool) v1alpha1.WorkloadClockStatus {
	t.Helper()
	return c.waitForClock(t, w, want, func(s *v1alpha1.WorkloadClockStatus) bool {
		if err := c.writeUtilization(t, "dgx-2", v1alpha1.UtilizationNVML, active); err != nil {
			t.Log(err) // somebody else wrote the node; it is sampled again
		}
		return is(s)
	})
}

func idleUnknown(s *v1alpha1.WorkloadClockStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionIdleUnknown)
}

// testIdleTimeout shows that an interactive workload whose GPUs are not used ends after two
// hours, warned at half of them, and that one whose use nobody knows runs on.
func (c *policyTimeCluster) testIdleTimeout(t *testing.T) {
	const ns = "idle"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	forgotten := newPodWorkload(ns, "forgotten", migDevice, withWorkloadType(v1alpha1.WorkloadInteractive))
	unseen := newPodWorkload(ns, "unseen", migDevice, withWorkloadType(v1alpha1.WorkloadInteractive))
	c.startWorkloads(t, forgotten, unseen)
	for _, w := range []workload{forgotten, unseen} {
		c.waitForClock(t, w, "nobody knows whether it is used", idleUnknown)
	}
	c.replaceAgent(t, "dgx-2")
	c.advanceTime(t, 3*time.Hour)
	c.assertRunning(t, "while nobody samples", forgotten, unseen)

	used, since := time.Now(), c.clockFile.Now()
	active := map[workload]time.Time{forgotten: used}
	c.waitForClockWithUtilization(t, active, forgotten, "it is known whether it is used", func(s *v1alpha1.WorkloadClockStatus) bool { return !idleUnknown(s) })
	c.advanceTime(t, time.Hour)
	warned := c.waitForClockWithUtilization(t, active, forgotten, "its people were warned that it is idle", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.Reason == v1alpha1.EndIdle && s.Deadline.AnnouncedAt != nil
	})
	if got := warned.Deadline.At.Sub(since); got < 2*time.Hour-2*time.Second || got > 2*time.Hour+10*time.Minute {
		t.Errorf("it ends %s after its GPU was last used, want two hours", got)
	}
	idle := 0
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadIdle && n.Spec.Subject.Name == "forgotten" && n.Spec.Lead.Length() == time.Hour {
			idle++
		} else {
			t.Errorf("somebody was told %s about %s", n.Spec.Kind, n.Spec.Subject.Name)
		}
	}
	if idle != 1 {
		t.Errorf("people were warned %d times that it is idle, want once", idle)
	}
	c.advanceTimeTo(t, warned.Deadline.At.Add(-10*time.Minute))
	c.assertRunning(t, "ten minutes before it has been idle for two hours", forgotten)
	c.advanceTimeTo(t, warned.Deadline.At.Time)
	c.waitForClockWithUtilization(t, active, forgotten, "it is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
	c.assertStopped(t, v1alpha1.EndIdle, 5*time.Hour, forgotten)
	if s := c.clockStatus(t, forgotten); !s.Stopped.Until.Equal(&s.Stopped.At) || s.Stopped.At.Before(&warned.Deadline.At) {
		t.Errorf("it was stopped at %s until %s, want at %s, and that it may start at once", s.Stopped.At, s.Stopped.Until, warned.Deadline.At)
	}

	c.assertRunning(t, "although nobody knows whether it is used", unseen)
	c.eventuallyAfterStep(t, func() error {
		return c.writeUtilization(t, "dgx-2", v1alpha1.UtilizationUnavailable, map[workload]time.Time{unseen: used})
	})
	c.advanceTime(t, 3*time.Hour)
	c.eventuallyAfterStep(t, func() error {
		return c.writeUtilization(t, "dgx-2", v1alpha1.UtilizationUnavailable, map[workload]time.Time{unseen: used})
	})
	// Its next warning is seen, so the samples before it were, too.
	c.advanceTimeTo(t, c.deadline(t, unseen).Add(-universityLeads[0]))
	s := c.waitForClock(t, unseen, "its people were warned of its limit", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
	if !idleUnknown(&s) || s.IdleSince != nil || s.Deadline.Reason != v1alpha1.EndMaxRuntime {
		t.Errorf("where nothing can tell the use it is idle since %s, and ends because of %s", s.IdleSince, s.Deadline.Reason)
	}
	c.assertRunning(t, "although nothing can tell whether it is used", unseen)
}
