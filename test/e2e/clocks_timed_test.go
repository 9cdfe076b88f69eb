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

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/clustertest"
)

// timed is a cluster whose policy time the tests step.
type timed struct {
	*stack
	time *clock.File
}

// slice is a GPU's slice on the node dgx-2 of the pool dgx-mig.
const slice corev1.ResourceName = "nvidia.com/mig-1g.5gb"

// patienceWithTime covers what follows from a step of policy time, a graceful end
// of pods among it, on a machine that is busy.
const patienceWithTime = 2 * time.Minute

func newTimed(t *testing.T) *timed {
	t.Helper()
	c := &timed{stack: own(t)}
	var err error
	if c.time, err = clock.OpenFile(filepath.Join(c.dir, clock.FileName), nil); err != nil {
		t.Fatal(err)
	}
	// The sample's department has room for one project's interactive work only.
	students := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}}
	c.await(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(students), students); err != nil {
			return err
		}
		students.Spec.NodePools = []v1alpha1.PoolQuota{quota("dgx-mig", "6", "6")}
		return c.admin.Update(t.Context(), students)
	})
	return c
}

// await waits for what follows from a step.
func (c *timed) await(t *testing.T, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, patienceWithTime, condition)
}

func (c *timed) step(t *testing.T, by time.Duration) {
	t.Helper()
	c.wholeSecond(t)
	if err := c.time.Advance(by); err != nil {
		t.Fatal(err)
	}
}

func (c *timed) stepTo(t *testing.T, at time.Time) {
	t.Helper()
	c.wholeSecond(t)
	if err := c.time.AdvanceTo(at); err != nil {
		t.Fatal(err)
	}
}

// wholeSecond waits until the present second of machine time is over: Kubernetes
// keeps instants to the second, and what was before a step is to be seen as before.
func (c *timed) wholeSecond(t *testing.T) {
	t.Helper()
	now := time.Now().Unix()
	c.await(t, func() error {
		if time.Now().Unix() == now {
			return errNotYet("another second has begun", now)
		}
		return nil
	})
}

// run is what Sluice's command line prints.
func (c *timed) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.sluice, append(args, "--dir", c.dir)...).Output()
	if err != nil {
		t.Fatalf("sluice %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// next steps to what comes next, and tells what that is.
func (c *timed) next(t *testing.T) (kinds []string) {
	t.Helper()
	c.wholeSecond(t)
	return c.nextEvents(t)
}

// nextEvents is what comes next; with --dry-run it is not stepped to.
func (c *timed) nextEvents(t *testing.T, flags ...string) (kinds []string) {
	t.Helper()
	kinds, _ = c.eventsAt(t, flags...)
	return kinds
}

// eventsAt is nextEvents, and when that is, in policy time.
func (c *timed) eventsAt(t *testing.T, flags ...string) (kinds []string, at time.Time) {
	t.Helper()
	var said struct {
		Next []struct {
			Kind string
			At   time.Time
		}
	}
	out := c.run(t, append([]string{"clock", "next", "--output", "json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, event := range said.Next {
		kinds, at = append(kinds, event.Kind), event.At
	}
	return kinds, at
}

// kubectl is what it prints.
func (c *timed) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", filepath.Join(c.dir, "kubeconfig")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// restart makes lifecycle begin anew; what happens while it is away happens
// without it.
func (c *timed) restart(t *testing.T, away func()) {
	t.Helper()
	r, err := c.report(t.Context())
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
				c.await(t, func() error { return standsStill(component.PID) })
				away()
			}
		}
		c.await(t, func() error { return c.cameBack(t.Context(), "lifecycle", component.PID) })
		return
	}
	t.Fatal("lifecycle is not in the report")
}

// workload is a workload of the tests.
type workload struct {
	client.Object
	group, kind string
}

// templateOf is a pod's template that has the device for itself, and runs until it is
// ended.
func templateOf(name string, device corev1.ResourceName, change ...func(*corev1.Pod)) corev1.PodTemplateSpec {
	p := podIn("", name, change...)
	p.Labels["app"] = name
	p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30)) // the least that is allowed
	p.Spec.Containers[0].Image = "any/" + name               // no two workloads have the same template
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{device: resource.MustParse("1")}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

func aPod(ns, name string, device corev1.ResourceName, change ...func(*corev1.Pod)) workload {
	of := templateOf(name, device, change...)
	of.Namespace, of.Name = ns, name
	return workload{&corev1.Pod{ObjectMeta: of.ObjectMeta, Spec: of.Spec}, "", "Pod"}
}

func aJob(ns, name string, device corev1.ResourceName, change ...func(*corev1.Pod)) workload {
	of := templateOf(name, device, change...)
	of.Spec.RestartPolicy = corev1.RestartPolicyNever
	return workload{&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: batchv1.JobSpec{Template: of}}, "batch", "Job"}
}

func aDeployment(ns, name string, device corev1.ResourceName) workload {
	of := templateOf(name, device)
	return workload{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of,
	}}, "apps", "Deployment"}
}

func aStatefulSet(ns, name string, device corev1.ResourceName) workload {
	of := templateOf(name, device)
	return workload{&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.StatefulSetSpec{
		ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: of.Labels}, Template: of,
	}}, "apps", "StatefulSet"}
}

// ofType is a change that makes a pod one of a type.
func ofType(kind v1alpha1.WorkloadType) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[v1alpha1.LabelWorkloadType] = string(kind) }
}

// begin makes workloads, and returns when their time runs.
func (c *timed) begin(t *testing.T, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		c.make(t, w.Object)
	}
	for _, w := range workloads {
		c.awaitClock(t, w, "its time runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
	}
}

// clock is the workload's.
func (c *timed) clock(t *testing.T, w workload) (*v1alpha1.WorkloadClock, error) {
	found := &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: w.GetNamespace(), Name: v1alpha1.WorkloadClockName(w.group, w.kind, w.GetName())}
	return found, c.admin.Get(t.Context(), key, found)
}

// status is what the workload's clock says now.
func (c *timed) status(t *testing.T, w workload) v1alpha1.WorkloadClockStatus {
	t.Helper()
	found, err := c.clock(t, w)
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

// awaitClock waits until the workload's clock says what is wanted.
func (c *timed) awaitClock(t *testing.T, w workload, want string, is func(*v1alpha1.WorkloadClockStatus) bool) v1alpha1.WorkloadClockStatus {
	t.Helper()
	var found *v1alpha1.WorkloadClock
	c.await(t, func() (err error) {
		if found, err = c.clock(t, w); err == nil && !is(&found.Status) {
			raw, _ := json.Marshal(found.Status)
			err = errNotYet(fmt.Sprintf("of %s %s %s", w.kind, w.GetName(), want), string(raw))
		}
		return err
	})
	return found.Status
}

// end is when the workload ends, as its clock says.
func (c *timed) end(t *testing.T, w workload) time.Time {
	t.Helper()
	s := c.status(t, w)
	if s.Deadline == nil {
		t.Fatalf("%s %s has no end: %+v", w.kind, w.GetName(), s)
	}
	return s.Deadline.At.Time
}

// first and last are those of the workloads' ends.
func (c *timed) ends(t *testing.T, workloads []workload) (first, last time.Time) {
	t.Helper()
	var ends []time.Time
	for _, w := range workloads {
		ends = append(ends, c.end(t, w))
	}
	return slices.MinFunc(ends, time.Time.Compare), slices.MaxFunc(ends, time.Time.Compare)
}

// stops tells whether the workload was told to stop, by what its object says.
func (c *timed) stops(t *testing.T, w workload) (stops bool) {
	t.Helper()
	err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(w), w.Object)
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

// running fails the test unless the workloads run, and nothing has told them to stop.
func (c *timed) running(t *testing.T, when string, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		if s := c.status(t, w); s.State != v1alpha1.ClockStateRunning || s.Stopped != nil || c.stops(t, w) {
			t.Errorf("%s, %s %s is %s, stopped %+v; want it to run", when, w.kind, w.GetName(), s.State, s.Stopped)
		}
	}
}

// ended waits until the workloads were stopped for a reason, and checks that none
// was before its time.
func (c *timed) ended(t *testing.T, reason v1alpha1.EndReason, after time.Duration, workloads ...workload) {
	t.Helper()
	for _, w := range workloads {
		s := c.awaitClock(t, w, "it is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
		c.await(t, func() error {
			if !c.stops(t, w) {
				return errNotYet("it is told to stop", w.GetName())
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

// told are the notices about what is in a namespace, in words.
func (c *timed) told(t *testing.T, ns string) []v1alpha1.Notice {
	t.Helper()
	var list v1alpha1.NoticeList
	if err := c.admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	about := slices.DeleteFunc(list.Items, func(n v1alpha1.Notice) bool {
		return n.Spec.Subject == nil || n.Spec.Subject.Namespace != ns
	})
	slices.SortFunc(about, func(a, b v1alpha1.Notice) int {
		return cmp.Or(cmp.Compare(a.Spec.Subject.Name, b.Spec.Subject.Name), a.Spec.DueAt.Compare(b.Spec.DueAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return about
}
