// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// missingTest is a cluster whose components are away one after the other, with work that must not notice.
type missingTest struct {
	*policyTimeCluster
	g *migCluster
	// forever has no limit, training and the notebook that is never used have one of four days.
	forever, training, notebook workload
}

const missingNamespace = "missing"

// inMIGPool selects the pool with MIG, of the two pools of the project.
func inMIGPool(p *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationNodePools, "dgx-mig")
}

// While an agent, lifecycle or the webhook is away, work that runs is not ended, evicted, moved or relabeled, and no GPU in use is
// repartitioned. The idle clock stands still without samples, no workload ends without its notice, and `sluice doctor` reports
// what is away. Guards invariants 2, 5 and 7 of the design.
func TestMissingComponents(t *testing.T) {
	c := newPolicyTimeCluster(t, "--nodes", "2", "--lifecycle-replicas", "2")
	m := &missingTest{policyTimeCluster: c, g: &migCluster{sluiceCluster: c.sluiceCluster, ns: missingNamespace}}
	m.waitForReplicas(t, "lifecycle", 2)
	m.startWork(t)
	// Each part continues the time of the one before.
	_ = t.Run("agents", m.testAgentsAway) && t.Run("lifecycle", m.testLifecycleAway) && t.Run("webhook", m.testWebhookAway)
}

// startWork starts the workloads.
func (m *missingTest) startWork(t *testing.T) {
	t.Helper()
	quotas := []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "2"), newPoolQuota("dgx-mig", "2", "2")}
	limit := ptr.To(period.MustParseDuration("96h"))
	m.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: missingNamespace},
		Spec: v1alpha1.DepartmentSpec{NodePools: quotas, Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
			v1alpha1.WorkloadInteractive: {IdleTimeout: ptr.To(period.MustParseDuration("2h")), MaxRuntime: limit},
			v1alpha1.WorkloadTrain:       {MaxRuntime: limit},
		}},
	})
	m.createGovernedProject(t, missingNamespace, missingNamespace, quotas...)
	m.forever = newDeploymentWorkload(missingNamespace, "forever", migDevice, inMIGPool, withWorkloadType(v1alpha1.WorkloadInference))
	m.training = newJobWorkload(missingNamespace, "training", migDevice, inMIGPool)
	m.notebook = newPodWorkload(missingNamespace, "notebook", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadInteractive), withUtilization("0"))
	m.startWorkloads(t, m.forever, m.training, m.notebook)
	m.g.waitForPlacements(t, 2)
}

// runningWork describes the pods that run, with their labels and MIG devices, and the labels of the nodes without those of their
// GPUs, which change with the slices for pods that wait.
func (m *missingTest) runningWork(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	devices := m.g.devicePlacements(t)
	for _, p := range m.listPods(t, missingNamespace) {
		if p.Status.Phase == corev1.PodRunning {
			state["pod "+p.Name] = fmt.Sprint(p.UID, p.DeletionTimestamp, p.Spec.NodeName, p.Labels, devices[p.Name])
		}
	}
	nodes, err := m.clientset.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		labels := nodes.Items[i].Labels
		maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, "nvidia.com/") })
		state["node "+nodes.Items[i].Name] = fmt.Sprint(labels)
	}
	return state
}

// assertUntouched fails the test unless all that ran runs as before.
func (m *missingTest) assertUntouched(t *testing.T, when string, before map[string]string) {
	t.Helper()
	after := m.runningWork(t)
	maps.DeleteFunc(after, func(key, _ string) bool { return before[key] == "" }) // what has started meanwhile
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s, what ran has changed (-before +after):\n%s", when, diff)
	}
}

// waitForFinding waits until the doctor reports what is away, and nothing that is not about it.
func (m *missingTest) waitForFinding(t *testing.T, b breakage) {
	t.Helper()
	m.eventuallyAfterStep(t, func() error {
		report, status, err := m.doctor(t.Context())
		if err != nil {
			return err
		}
		return b.check(&report, status)
	})
}

// scale sets the number of pods of a Deployment, and waits for their processes.
func (m *missingTest) scale(t *testing.T, name string, replicas int) {
	t.Helper()
	m.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", name, "--replicas", strconv.Itoa(replicas))
	m.waitForReplicas(t, name, replicas)
}

func (m *missingTest) waitForReplicas(t *testing.T, name string, replicas int) {
	t.Helper()
	m.eventuallyAfterStep(t, func() error {
		report, err := m.readReport(t.Context())
		if err != nil {
			return err
		}
		running := 0
		for _, component := range report.Components {
			if (component.Name == name || strings.HasPrefix(component.Name, name+"-")) && component.State == "Running" {
				running++
			}
		}
		if running != replicas {
			return unexpectedState(fmt.Sprintf("%d processes of %s run", replicas, name), report.Components)
		}
		return nil
	})
}

// newSlicePod creates a pod that needs a device that no node offers.
func (m *missingTest) newSlicePod(t *testing.T, name, profile string) {
	t.Helper()
	m.createForTest(t, newPodWorkload(missingNamespace, name, v1alpha1.ResourceMIG(v1alpha1.MIGProfile(profile)), inMIGPool).Object)
}

func (m *missingTest) assertPending(t *testing.T, when, name string) {
	t.Helper()
	pod, err := m.clientset.CoreV1().Pods(missingNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "" {
		t.Errorf("%s, %s is %s on node %q: %v; want it pending", when, name, pod.Status.Phase, pod.Spec.NodeName, err)
	}
}

// testAgentsAway: both agents are away for more than three minutes, in which a day of policy time passes.
func (m *missingTest) testAgentsAway(t *testing.T) {
	m.advanceTime(t, 40*time.Minute)
	idle := m.waitForClock(t, m.notebook, "is idle", func(s *v1alpha1.WorkloadClockStatus) bool { return s.IdleSince != nil })
	before := m.runningWork(t)
	agents := []string{"gpuagent-dgx-1", migAgent}
	for _, agent := range agents {
		pid := m.componentPID(t, agent)
		m.signalComponent(t, agent, syscall.SIGSTOP)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		m.eventuallyAfterStep(t, func() error { return processStopped(pid) })
	}
	m.newSlicePod(t, "later", "2g.10gb")
	m.waitForFinding(t, breakage{
		want: map[string]string{"agents": "Error"}, may: []string{"node-pools", "gpus", "node-capacity"},
		message: "GPUNode dgx-1: its agent has not reported for 3m",
	})
	// The first warning of the limit shows that lifecycle has evaluated the clocks after this step.
	m.advanceTime(t, 72*time.Hour)
	for _, w := range []workload{m.notebook, m.training} {
		m.waitForClock(t, w, "has its first warning", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
	}
	s := m.waitForClock(t, m.notebook, "has unknown utilization", idleUnknown)
	if !s.IdleSince.Equal(idle.IdleSince) || s.Deadline == nil || s.Deadline.Reason != v1alpha1.EndMaxRuntime {
		t.Errorf("without samples the notebook is idle since %s (before: %s), and ends %+v; want no end because of idleness", s.IdleSince, idle.IdleSince, s.Deadline)
	}
	m.assertRunning(t, "three days without agents", m.forever, m.training, m.notebook)
	m.assertUntouched(t, "without agents", before)
	m.assertPending(t, "without agents", "later")

	for _, agent := range agents {
		m.signalComponent(t, agent, syscall.SIGCONT)
	}
	m.waitForHealth(t)
	m.g.waitForRunningPod(t, "later")
	s = m.waitForClock(t, m.notebook, "has known utilization", func(s *v1alpha1.WorkloadClockStatus) bool { return !idleUnknown(s) })
	if s.Deadline == nil || s.Deadline.Reason != v1alpha1.EndMaxRuntime {
		t.Errorf("the time without samples counts as idle: %+v", s.Deadline)
	}
	for _, n := range m.listNotices(t, missingNamespace) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadIdle {
			t.Errorf("a notice about %s, which ends %s, because of idleness that nobody has seen", n.Spec.Subject.Name, n.Spec.Deadline)
		}
	}
	m.assertRunning(t, "when the agents are back", m.forever, m.training, m.notebook)
	m.assertUntouched(t, "when the agents are back", before)
	for _, name := range []string{"later", "notebook"} {
		m.mustKubectl(t, "delete", "pod", name, "-n", missingNamespace, "--grace-period=1")
	}
}

// testLifecycleAway: lifecycle is scaled to 0 for a time in which a limit passes. The agents alone change no layout.
func (m *missingTest) testLifecycleAway(t *testing.T) {
	m.g.waitForStableNode(t)
	before := m.runningWork(t)
	layout := m.g.getGPUNode(t).Spec
	m.scale(t, "lifecycle", 0)
	m.waitForFinding(t, breakage{
		want: map[string]string{"lifecycle": "Error"}, may: []string{"node-pools", "projects", "policies", "notices", "mail"},
		message: "Deployment sluice-system/lifecycle: it is scaled to 0 replicas",
	})
	m.newSlicePod(t, "unplanned", "3g.20gb")
	m.advanceTime(t, 40*time.Hour) // beyond the limit of four days
	sampled := policytime.MachineNow()
	m.eventuallyAfterStep(t, func() error {
		if at := m.g.getGPUNode(t).Status.SampledAt; at == nil || at.Time.Before(sampled) {
			return unexpectedState("the agent reports without lifecycle", at)
		}
		return nil
	})
	if diff := cmp.Diff(layout, m.g.getGPUNode(t).Spec); diff != "" {
		t.Errorf("the layout has changed without lifecycle (-before +after):\n%s", diff)
	}
	m.assertUntouched(t, "without lifecycle", before)
	m.assertPending(t, "without lifecycle", "unplanned")
	if m.isStopped(t, m.training) {
		t.Error("the training was stopped without lifecycle")
	}

	m.scale(t, "lifecycle", 2)
	s := m.waitForClock(t, m.training, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	if left := s.Deadline.At.Sub(s.Deadline.AnnouncedAt.Time); left < 30*time.Minute {
		t.Errorf("the training ends %s after the announcement, want half an hour", left)
	}
	m.waitForHealth(t)
	m.g.waitForRunningPod(t, "unplanned")
	m.assertRunning(t, "when lifecycle is back", m.forever, m.training)
	m.assertUntouched(t, "when lifecycle is back", before)
	m.mustKubectl(t, "delete", "pod", "unplanned", "-n", missingNamespace, "--grace-period=1")
}

// testWebhookAway: the webhook is scaled to 0 while the announced end of a workload passes, and the limit of another.
func (m *missingTest) testWebhookAway(t *testing.T) {
	late := newJobWorkload(missingNamespace, "late", migDevice, inMIGPool)
	m.startWorkloads(t, late)
	m.g.waitForPlacements(t, 3)
	before := m.runningWork(t)
	m.scale(t, "webhook", 0)
	m.waitForFinding(t, breakage{
		want: map[string]string{"webhook-reachable": "Error", "webhook-replicas": "Error"}, may: []string{"policies", "versions"},
		message: "Deployment sluice-system/webhook: it is scaled to 0 replicas",
	})
	m.assertUntouched(t, "without the webhook", before)
	if err := m.adminClient.Create(t.Context(), newPod(missingNamespace, "refused"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a pod of a governed namespace is admitted without the webhook: %v", err)
	}
	m.advanceTimeTo(t, m.deadline(t, m.training))
	m.assertStopped(t, v1alpha1.EndMaxRuntime, 96*time.Hour, m.training)
	m.assertNoticeBefore(t, m.training)

	m.assertWarnings(t, []workload{late}, 96*time.Hour)
	m.advanceTimeTo(t, m.deadline(t, late).Add(-5*time.Minute))
	m.assertRunning(t, "five minutes before its end", late, m.forever)
	m.advanceTimeTo(t, m.deadline(t, late))
	m.assertStopped(t, v1alpha1.EndMaxRuntime, 96*time.Hour, late)
	m.assertNoticeBefore(t, late)
	for _, stopped := range []workload{m.training, late} {
		for key := range before {
			if strings.HasPrefix(key, "pod "+stopped.GetName()+"-") {
				delete(before, key)
			}
		}
	}
	m.assertUntouched(t, "without the webhook, after two ends", before)
	m.assertRunning(t, "without the webhook, after two ends", m.forever)

	m.scale(t, "webhook", 1)
	m.waitForHealth(t)
	m.assertUntouched(t, "when the webhook is back", before)
	m.assertRunning(t, "when the webhook is back", m.forever)
}

// assertNoticeBefore fails the test unless a notice of the end of a stopped workload was recorded at least the shortest lead before.
func (m *missingTest) assertNoticeBefore(t *testing.T, w workload) {
	t.Helper()
	s := m.clockStatus(t, w)
	for _, n := range m.listNotices(t, missingNamespace) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadEnding && n.Spec.Subject.Name == w.GetName() && !n.Spec.Deadline.After(s.Stopped.At.Time) &&
			s.Stopped.At.Sub(n.Spec.DueAt.Time) >= 30*time.Minute {
			return
		}
	}
	t.Errorf("%s was stopped at %s without a notice half an hour before: %v", w.GetName(), s.Stopped.At, m.listNotices(t, missingNamespace))
}
