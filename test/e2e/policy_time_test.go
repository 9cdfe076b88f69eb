// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// policyTimeCluster is a cluster whose policy time the tests advance.
type policyTimeCluster struct {
	*sluiceCluster
	clockFile *policytime.File
}

// migDevice is a MIG device on node dgx-2 in node pool dgx-mig.
const migDevice corev1.ResourceName = "nvidia.com/mig-1g.5gb"

// timeStepTimeout covers the effects of a step of policy time, including the graceful
// termination of pods, on a busy machine.
const timeStepTimeout = 4 * time.Minute

func newPolicyTimeCluster(t *testing.T, flags ...string) *policyTimeCluster {
	t.Helper()
	c := &policyTimeCluster{sluiceCluster: newDedicatedCluster(t, flags...)}
	var err error
	if c.clockFile, err = policytime.OpenFile(filepath.Join(c.dir, policytime.FileName), nil); err != nil {
		t.Fatal(err)
	}
	if len(flags) > 0 {
		return c // another sample
	}
	// The department of the sample only has quota for the interactive work of one project.
	students := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}}
	c.eventuallyAfterStep(t, func() error {
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(students), students); err != nil {
			return err
		}
		students.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "6", "6")}
		return c.adminClient.Update(t.Context(), students)
	})
	return c
}

// eventuallyAfterStep waits for an effect of a step of policy time.
func (c *policyTimeCluster) eventuallyAfterStep(t *testing.T, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, timeStepTimeout, condition)
}

func (c *policyTimeCluster) advanceTime(t *testing.T, by time.Duration) {
	t.Helper()
	c.waitForNextSecond(t)
	if err := c.clockFile.Advance(by); err != nil {
		t.Fatal(err)
	}
}

func (c *policyTimeCluster) advanceTimeTo(t *testing.T, at time.Time) {
	t.Helper()
	c.waitForNextSecond(t)
	if err := c.clockFile.AdvanceTo(at); err != nil {
		t.Fatal(err)
	}
}

// waitForNextSecond waits until the next second of machine time, because Kubernetes stores
// times in seconds and the tests distinguish times before and after a step.
func (c *policyTimeCluster) waitForNextSecond(t *testing.T) {
	t.Helper()
	now := time.Now().Unix()
	c.eventuallyAfterStep(t, func() error {
		if time.Now().Unix() == now {
			return unexpectedState("the next second has begun", now)
		}
		return nil
	})
}

// runSluice runs the command line of Sluice and returns its output.
func (c *policyTimeCluster) runSluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.binary, append(args, "--dir", c.dir)...).Output()
	if err != nil {
		t.Fatalf("sluice %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// advanceToNextEvent advances to the next event and returns the kinds of what happens then.
func (c *policyTimeCluster) advanceToNextEvent(t *testing.T) (kinds []string) {
	t.Helper()
	c.waitForNextSecond(t)
	return c.nextEventKinds(t)
}

// nextEventKinds runs `sluice time next` and returns the kinds of the next events. With
// --dry-run the time does not advance.
func (c *policyTimeCluster) nextEventKinds(t *testing.T, flags ...string) (kinds []string) {
	t.Helper()
	kinds, _ = c.nextEventsWithTime(t, flags...)
	return kinds
}

// nextEventsWithTime also returns when the events happen in policy time.
func (c *policyTimeCluster) nextEventsWithTime(t *testing.T, flags ...string) (kinds []string, at time.Time) {
	t.Helper()
	var result struct {
		Events []struct {
			Kind string
			At   time.Time
		}
	}
	out := c.runSluice(t, append([]string{"time", "next", "--output", "json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, event := range result.Events {
		kinds, at = append(kinds, event.Kind), event.At
	}
	return kinds, at
}

// restartLifecycle restarts lifecycle. It calls the function while lifecycle is suspended.
func (c *policyTimeCluster) restartLifecycle(t *testing.T, duringOutage func()) {
	t.Helper()
	r, err := c.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range r.Components {
		if component.Name != "lifecycle" {
			continue
		}
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			if err := syscall.Kill(component.PID, signal); err != nil {
				t.Fatal(err)
			}
			if signal == syscall.SIGSTOP {
				c.eventuallyAfterStep(t, func() error { return processStopped(component.PID) })
				duringOutage()
			}
		}
		c.eventuallyAfterStep(t, func() error { return c.restarted(t.Context(), "lifecycle", component.PID) })
		return
	}
	t.Fatal("lifecycle is not in the report")
}

// workload is an object with its group and kind.
type workload struct {
	client.Object
	group, kind string
}

// podTemplateFor returns the template of a pod with one device that runs until it is
// stopped.
func podTemplateFor(name string, device corev1.ResourceName, change ...func(*corev1.Pod)) corev1.PodTemplateSpec {
	p := newPod("", name, change...)
	p.Labels["app"] = name
	p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30)) // the minimum
	p.Spec.Containers[0].Image = "any/" + name               // no two workloads have the same template
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{device: resource.MustParse("1")}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

func newPodWorkload(ns, name string, device corev1.ResourceName, change ...func(*corev1.Pod)) workload {
	template := podTemplateFor(name, device, change...)
	template.Namespace, template.Name = ns, name
	return workload{&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, "", "Pod"}
}

func newJobWorkload(ns, name string, device corev1.ResourceName, change ...func(*corev1.Pod)) workload {
	template := podTemplateFor(name, device, change...)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return workload{&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: batchv1.JobSpec{Template: template}}, "batch", "Job"}
}

func newDeploymentWorkload(ns, name string, device corev1.ResourceName, change ...func(*corev1.Pod)) workload {
	template := podTemplateFor(name, device, change...)
	return workload{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
	}}, "apps", "Deployment"}
}

func newStatefulSetWorkload(ns, name string, device corev1.ResourceName) workload {
	template := podTemplateFor(name, device)
	return workload{&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.StatefulSetSpec{
		ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
	}}, "apps", "StatefulSet"}
}

// withWorkloadType returns a function that sets the workload type of a pod.
func withWorkloadType(kind v1alpha1.WorkloadType) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[v1alpha1.LabelWorkloadType] = string(kind) }
}

// startWorkloads creates the workloads and waits until their clocks run.
func (c *policyTimeCluster) startWorkloads(t *testing.T, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		c.createForTest(t, w.Object)
	}
	for _, w := range workloads {
		c.waitForClock(t, w, "runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
	}
}

// getClock returns the WorkloadClock of the workload.
func (c *policyTimeCluster) getClock(t *testing.T, w workload) (*v1alpha1.WorkloadClock, error) {
	found := &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: w.GetNamespace(), Name: v1alpha1.WorkloadClockName(w.group, w.kind, w.GetName())}
	return found, c.adminClient.Get(t.Context(), key, found)
}

// clockStatus returns the status of the workload's clock.
func (c *policyTimeCluster) clockStatus(t *testing.T, w workload) v1alpha1.WorkloadClockStatus {
	t.Helper()
	found, err := c.getClock(t, w)
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

// waitForClock waits until the status of the workload's clock meets the condition.
func (c *policyTimeCluster) waitForClock(t *testing.T, w workload, description string, condition func(*v1alpha1.WorkloadClockStatus) bool) v1alpha1.WorkloadClockStatus {
	t.Helper()
	var found *v1alpha1.WorkloadClock
	c.eventuallyAfterStep(t, func() (err error) {
		if found, err = c.getClock(t, w); err == nil && !condition(&found.Status) {
			raw, _ := json.Marshal(found.Status)
			err = unexpectedState(fmt.Sprintf("the clock of %s %s %s", w.kind, w.GetName(), description), string(raw))
		}
		return err
	})
	return found.Status
}

// deadline returns the deadline of the workload from its clock.
func (c *policyTimeCluster) deadline(t *testing.T, w workload) time.Time {
	t.Helper()
	s := c.clockStatus(t, w)
	if s.Deadline == nil {
		t.Fatalf("%s %s has no deadline: %+v", w.kind, w.GetName(), s)
	}
	return s.Deadline.At.Time
}

// deadlineRange returns the first and the last deadline of the workloads.
func (c *policyTimeCluster) deadlineRange(t *testing.T, workloads []workload) (first, last time.Time) {
	t.Helper()
	var deadlines []time.Time
	for _, w := range workloads {
		deadlines = append(deadlines, c.deadline(t, w))
	}
	return slices.MinFunc(deadlines, time.Time.Compare), slices.MaxFunc(deadlines, time.Time.Compare)
}

// isStopped reports whether the spec of the workload's object stops it.
func (c *policyTimeCluster) isStopped(t *testing.T, w workload) (stopped bool) {
	t.Helper()
	err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(w), w.Object)
	if pod, ok := w.Object.(*corev1.Pod); ok && (apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	switch o := w.Object.(type) {
	case *batchv1.Job:
		return ptr.Deref(o.Spec.Suspend, false)
	case *appsv1.Deployment:
		return ptr.Deref(o.Spec.Replicas, 1) == 0
	case *appsv1.StatefulSet:
		return ptr.Deref(o.Spec.Replicas, 1) == 0
	}
	return false
}

// assertRunning fails the test unless the workloads run and their specs do not stop them.
func (c *policyTimeCluster) assertRunning(t *testing.T, when string, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		if s := c.clockStatus(t, w); s.State != v1alpha1.ClockStateRunning || s.Stopped != nil || c.isStopped(t, w) {
			t.Errorf("%s, %s %s is %s, stopped %+v; want it to run", when, w.kind, w.GetName(), s.State, s.Stopped)
		}
	}
}

// assertStopped waits until the workloads are stopped, and checks the reason and that none
// stopped too early.
func (c *policyTimeCluster) assertStopped(t *testing.T, reason v1alpha1.EndReason, after time.Duration, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		s := c.waitForClock(t, w, "is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
		c.eventuallyAfterStep(t, func() error {
			if !c.isStopped(t, w) {
				return unexpectedState("the spec stops the workload", w.GetName())
			}
			return nil
		})
		if s.Stopped.Reason != reason {
			t.Errorf("%s %s was stopped because of %s, want %s", w.kind, w.GetName(), s.Stopped.Reason, reason)
		}
		if ran := s.Stopped.At.Sub(s.RunningSince.Time) + time.Duration(s.AccumulatedSeconds)*time.Second; ran < after {
			t.Errorf("%s %s was stopped after %s, want %s", w.kind, w.GetName(), ran, after)
		}
	}
}

// listNotices returns the Notices about objects in a namespace, ordered by object and due
// time.
func (c *policyTimeCluster) listNotices(t *testing.T, ns string) []v1alpha1.Notice {
	t.Helper()
	var list v1alpha1.NoticeList
	if err := c.adminClient.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	notices := slices.DeleteFunc(list.Items, func(n v1alpha1.Notice) bool {
		return n.Spec.Subject == nil || n.Spec.Subject.Namespace != ns
	})
	slices.SortFunc(notices, func(a, b v1alpha1.Notice) int {
		return cmp.Or(cmp.Compare(a.Spec.Subject.Name, b.Spec.Subject.Name), a.Spec.DueAt.Compare(b.Spec.DueAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return notices
}
