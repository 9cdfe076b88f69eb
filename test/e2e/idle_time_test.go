// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// withUtilization makes a pod's processes use their GPUs by so many percent.
func withUtilization(percent string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationSimUtilization, percent)
	}
}

// podUse returns what the agent reports about a pod, and the time of its sample.
func (c *policyTimeCluster) podUse(t *testing.T, node string, pod workload) (*v1alpha1.PodUsage, *metav1.Time) {
	t.Helper()
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	for i := range object.Status.Pods {
		if object.Status.Pods[i].UID == pod.GetUID() {
			return &object.Status.Pods[i], object.Status.SampledAt
		}
	}
	return nil, object.Status.SampledAt
}

// testMeasuredIdleTime shows with the agents' own samples that a notebook without use is stopped after
// its only warning, that one that computes is not, and neither is one on a GPU that cannot be measured:
// an A100 in MIG mode. An active clock counts only the time in which the GPUs are used.
func (c *policyTimeCluster) testMeasuredIdleTime(t *testing.T) {
	const ns, timeout = "measured-idle", 2 * time.Hour
	whole, mig := newPoolQuota("dgx", "3", "3"), newPoolQuota("dgx-mig", "1", "1")
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{whole, mig},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
				v1alpha1.WorkloadInteractive: {IdleTimeout: ptr.To(period.MustParseDuration("2h"))},
				v1alpha1.WorkloadTrain:       {MaxRuntime: ptr.To(period.MustParseDuration("10h")), Clock: v1alpha1.ClockActive},
			},
		},
	})
	c.createGovernedProject(t, ns, ns, whole, mig)
	// A department with a higher threshold: what is use in the other one is none there.
	const strict = "measured-strict"
	one := newPoolQuota("dgx", "1", "1")
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: strict},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{one},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.WorkloadInteractive: {IdleTimeout: ptr.To(period.MustParseDuration("2h"))}},
			Activity:  v1alpha1.ActivityTerms{Percent: 20, Window: ptr.To(period.MustParseDuration("30s"))},
		},
	})
	c.createGovernedProject(t, strict, strict, one)
	interactive := withWorkloadType(v1alpha1.WorkloadInteractive)
	trickling := newPodWorkload(strict, "trickling", v1alpha1.ResourceNVIDIAGPU, interactive, withUtilization("6"))
	forgotten := newPodWorkload(ns, "forgotten", v1alpha1.ResourceNVIDIAGPU, interactive, withUtilization("0"))
	computing := newPodWorkload(ns, "computing", v1alpha1.ResourceNVIDIAGPU, interactive, withUtilization("6"))
	unmeasured := newPodWorkload(ns, "unmeasured", migDevice, interactive, withUtilization("0"), func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationNodePools, "dgx-mig")
	})
	stalled := newPodWorkload(ns, "stalled", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain), withUtilization("0"))
	c.startWorkloads(t, forgotten, computing, unmeasured, stalled, trickling)
	c.waitForClock(t, unmeasured, "has unknown utilization", idleUnknown)
	c.eventuallyAfterStep(t, func() error {
		for _, w := range []workload{forgotten, stalled, trickling} {
			if use, sampled := c.podUse(t, "dgx-1", w); use == nil || use.LastActive == nil || sampled.Sub(use.LastActive.Time) < 2*time.Second {
				return unexpectedState("the agent reports that the pod is idle", use)
			}
		}
		use, sampled := c.podUse(t, "dgx-1", computing)
		if use == nil || use.LastActive == nil || !use.LastActive.Equal(sampled) || ptr.Deref(use.MemoryMiB, 0) == 0 {
			return unexpectedState("the agent reports use and memory", use)
		}
		return nil
	})
	c.eventuallyAfterStep(t, func() error {
		use, _ := c.podUse(t, "dgx-2", unmeasured)
		if use == nil || use.LastActive != nil || ptr.Deref(use.MemoryMiB, 0) == 0 {
			return unexpectedState("the agent reports the memory of the pod whose use cannot be measured", use)
		}
		return nil
	})

	c.assertTop(t, ns)

	c.advanceTime(t, timeout/2)
	isWarned := func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.Reason == v1alpha1.EndIdle && s.Deadline.AnnouncedAt != nil
	}
	warned := c.waitForClock(t, forgotten, "has an idle warning", isWarned)
	late := c.waitForClock(t, trickling, "has an idle warning", isWarned).Deadline.At.Time
	c.waitForClock(t, stalled, "is paused", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince == nil && s.PausedSince != nil })
	c.advanceTimeTo(t, warned.Deadline.At.Add(-10*time.Minute))
	c.assertRunning(t, "ten minutes before the idle timeout", forgotten, computing, unmeasured)
	c.advanceTimeTo(t, warned.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndIdle, timeout, forgotten)
	if late.After(warned.Deadline.At.Time) {
		c.advanceTimeTo(t, late)
	}
	c.assertStopped(t, v1alpha1.EndIdle, timeout, trickling)
	c.advanceTime(t, 12*time.Hour)
	// The sample after the step shows the use of the whole time.
	since := time.Now()
	c.eventuallyAfterStep(t, func() error {
		if _, sampled := c.podUse(t, "dgx-1", computing); sampled.Time.Before(since) {
			return unexpectedState("there is a sample after the step", sampled)
		}
		return nil
	})
	c.assertRunning(t, "after twelve more hours", computing, unmeasured)
	if s := c.clockStatus(t, computing); s.IdleSince != nil || s.Deadline != nil {
		t.Errorf("the notebook that computes is idle since %s and ends %+v", s.IdleSince, s.Deadline)
	}
	if s := c.clockStatus(t, stalled); s.AccumulatedSeconds > 60 || s.Stopped != nil {
		t.Errorf("training that never used its GPU ran for %d s: %+v", s.AccumulatedSeconds, s.Stopped)
	}
	c.assertMeasuredUsage(t, ns)
	var idle []string
	for _, n := range c.listNotices(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadIdle {
			idle = append(idle, n.Spec.Subject.Name)
		}
	}
	if len(idle) != 1 || idle[0] != "forgotten" {
		t.Errorf("idle warnings of %v, want one of the forgotten notebook", idle)
	}
}

// topMember is a member of one project who may not list GPUNodes.
const topMember = "top-member"

// assertTop shows that an administrator sees the pods and devices of all nodes, and that a member sees the
// workloads and GPU hours of the own project only, from its clocks.
func (c *policyTimeCluster) assertTop(t *testing.T, project string) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: project}}
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Spec.Members = []v1alpha1.Member{newMember(topMember, v1alpha1.RoleL1Researcher)}
		return c.adminClient.Update(t.Context(), p)
	})
	type topRow struct{ Namespace, Kind, Name, Node, Use string }
	top := func(output string) (source string, rows map[string]topRow, err error) {
		var document struct {
			Source string
			Pods   []topRow
		}
		err = json.Unmarshal([]byte(output), &document)
		rows = map[string]topRow{}
		for _, row := range document.Pods {
			rows[row.Namespace+"/"+row.Name] = row
		}
		return document.Source, rows, err
	}
	c.eventuallyAfterStep(t, func() error {
		source, rows, err := top(c.runSluice(t, "top", "-o", "json"))
		if err != nil {
			return err
		}
		idle, busy, unknown := rows[project+"/forgotten"], rows[project+"/computing"], rows[project+"/unmeasured"]
		if source != "GPUNode" || idle.Use != "Idle" || busy.Use != "Busy" || unknown.Use != "Unknown" || idle.Node != "dgx-1" {
			return unexpectedState("an administrator sees the use of all pods", rows)
		}
		return nil
	})
	if output := c.runSluice(t, "top", "devices", "--node", "dgx-1"); !strings.Contains(output, "NVML") || strings.Contains(output, "dgx-2") {
		t.Errorf("the devices of a node are\n%s", output)
	}
	c.eventuallyAfterStep(t, func() error {
		output, err := c.sluiceAs(t, topMember, "top", "--project", project, "-o", "json", "--dir", c.dir)
		if err != nil {
			return err
		}
		source, rows, err := top(output)
		if err != nil {
			return err
		}
		for name, row := range rows {
			if !strings.HasPrefix(name, project+"/") || row.Node != "" {
				t.Errorf("a member sees %+v", row)
			}
		}
		if idle := rows[project+"/forgotten"]; source != "WorkloadClock" || len(rows) != 4 || idle.Kind != "Pod" {
			return unexpectedState("a member sees the workloads of the project", rows)
		}
		return nil
	})
	for _, args := range [][]string{{"top", "-n", "protein-folding"}, {"top", "devices", "--project", project}, {"usage", "-A"}} {
		if output, err := c.sluiceAs(t, topMember, append(args, "--dir", c.dir)...); err == nil {
			t.Errorf("a member may %v:\n%s", args, output)
		}
	}
	// Its creator is the administrator.
	if output := c.runSluice(t, "usage", "--project", project); !strings.Contains(output, "Pod/forgotten") || !strings.Contains(output, "30 days") {
		t.Errorf("sluice usage prints\n%s", output)
	}
	if output, err := c.sluiceAs(t, topMember, "usage", "--project", project, "--dir", c.dir); err != nil || !strings.Contains(output, "No GPU time of "+topMember) {
		t.Errorf("sluice usage of a member prints %v\n%s", err, output)
	}
}

// assertMeasuredUsage shows that the project's usage has its used and idle parts.
func (c *policyTimeCluster) assertMeasuredUsage(t *testing.T, project string) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error {
		records := &v1alpha1.UsageRecordList{}
		if err := c.adminClient.List(t.Context(), records); err != nil {
			return err
		}
		sums := map[v1alpha1.WorkloadType]v1alpha1.UsageEntry{}
		for i := range records.Items {
			for _, e := range records.Items[i].Status.Entries {
				if records.Items[i].Spec.Project == project {
					s := sums[e.WorkloadType]
					s.GPUMilliSeconds, s.UsedGPUMilliSeconds = s.GPUMilliSeconds+e.GPUMilliSeconds, s.UsedGPUMilliSeconds+e.UsedGPUMilliSeconds
					s.IdleGPUMilliSeconds += e.IdleGPUMilliSeconds
					sums[e.WorkloadType] = s
				}
			}
		}
		// Notebooks: one used its GPU for fourteen hours, one did not for two, and one was not measured.
		const hour = 3600 * 1000
		notebooks, train := sums[v1alpha1.WorkloadInteractive], sums[v1alpha1.WorkloadTrain]
		if notebooks.UsedGPUMilliSeconds < 13*hour || notebooks.IdleGPUMilliSeconds < hour || train.IdleGPUMilliSeconds < 13*hour ||
			train.UsedGPUMilliSeconds > hour/10 || notebooks.UsedGPUMilliSeconds+notebooks.IdleGPUMilliSeconds >= notebooks.GPUMilliSeconds {
			return unexpectedState("the usage was measured", sums)
		}
		return nil
	})
	output := c.runSluice(t, "report", "--by", "type", "--project", project, "--efficiency")
	if !strings.Contains(output, "EFFICIENCY") || !strings.Contains(output, "0%") {
		t.Errorf("sluice report prints\n%s", output)
	}
}
