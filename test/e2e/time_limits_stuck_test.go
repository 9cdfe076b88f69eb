// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// operator is a controller that may set controller references.
const operator = "system:serviceaccount:kube-system:job-controller"

// testOperatorDown shows that a workload whose operator is down is stopped by evictions after three
// stop actions, and that one whose operator replaces its pods is reported as unstoppable. Guards
// the time limit against stops without effect.
func (c *policyTimeCluster) testOperatorDown(t *testing.T) {
	const ns = "operator-down"
	kind := schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"}
	c.createForTest(t, newCRD(kind.Group, kind.Version, kind.Kind, "pytorchjobs"))
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	c.updateProject(t, ns, func(p *v1alpha1.Project) {
		p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("1h"))}}
	})
	config := c.configureLifecycle(t, map[string]any{"stopping": map[string]any{"retryInterval": "1s"}})

	pods := c.impersonate(t, operator, rest.NoWarnings{})
	down, stubborn := newTrainingJob(ns, "down", kind), newTrainingJob(ns, "stubborn", kind)
	for _, w := range []workload{down, stubborn} {
		c.eventuallyAfterStep(t, func() error { return client.IgnoreAlreadyExists(c.adminClient.Create(t.Context(), w.Object)) })
		c.createPodOf(t, pods, w, 0)
	}
	c.replacePods(t, pods, stubborn)
	for _, w := range []workload{down, stubborn} {
		c.waitForClock(t, w, "runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
	}
	_, last := c.deadlineRange(t, []workload{down, stubborn})
	c.advanceTimeTo(t, last.Add(-20*time.Minute))
	for _, w := range []workload{down, stubborn} {
		c.waitForClock(t, w, "has a warning", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil && s.Deadline.AnnouncedAt != nil })
	}
	_, last = c.deadlineRange(t, []workload{down, stubborn})
	c.advanceTimeTo(t, last)

	t.Run("evicted after three stop actions", func(t *testing.T) {
		c.eventuallyAfterStep(t, func() error {
			for _, p := range c.listPods(t, ns) {
				if !strings.HasPrefix(p.Name, "down-") {
					continue
				}
				for _, condition := range p.Status.Conditions {
					if condition.Type == corev1.DisruptionTarget && condition.Reason == suspend.ReasonStopped && p.DeletionTimestamp != nil {
						return nil
					}
				}
			}
			return unexpectedState("the pod of the workload without operator is evicted", c.clockStatus(t, down).Stopped)
		})
		s := c.waitForClock(t, down, "is stopped for good", func(s *v1alpha1.WorkloadClockStatus) bool {
			return s.State == v1alpha1.ClockStateStopped && s.RunningSince == nil
		})
		if s.Stopped.Retries != 3 || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionUnstoppable) {
			t.Errorf("%d further attempts, conditions %v; want the third to evict its pod", s.Stopped.Retries, s.Conditions)
		}
		c.expectSuspended(t, down)
	})
	t.Run("unstoppable after three evictions", func(t *testing.T) {
		c.waitForClock(t, stubborn, "is unstoppable", func(s *v1alpha1.WorkloadClockStatus) bool {
			return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionUnstoppable) && s.State == v1alpha1.ClockStateRunning &&
				s.Stopped.Retries == 5 && s.Local.Ends == "unstoppable"
		})
		c.expectSuspended(t, stubborn)
		c.eventuallyAfterStep(t, func() error {
			if output := c.mustKubectl(t, "describe", "pytorchjobs.kubeflow.org", "stubborn", "-n", ns); !strings.Contains(output, "The pods run on after 3 attempts") {
				return unexpectedState("an event reports the workload", output)
			}
			return nil
		})
		recipients := map[string]bool{}
		for _, n := range c.listNotices(t, ns) {
			if n.Spec.Kind == v1alpha1.NoticeWorkloadUnstoppable {
				recipients[n.Spec.Subject.Name+" "+string(n.Spec.Recipient.Email)] = true
			}
		}
		if len(recipients) != 1 || !recipients["stubborn kitt@example.org"] {
			t.Errorf("notices to %v, want one to the department's contact", recipients)
		}
		c.eventuallyAfterStep(t, func() error {
			output, err := c.componentMetrics(t, fmt.Sprint(config["metrics"]))
			if err == nil && !strings.Contains(output, `sluice_workload_unstoppable_total{reason="StopWithoutEffect"} 1`) {
				err = unexpectedState("the metric counts one workload", output)
			}
			return err
		})
	})
}

// newTrainingJob returns a PyTorchJob, of which no operator takes notice.
func newTrainingJob(ns, name string, kind schema.GroupVersionKind) workload {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"runPolicy": map[string]any{}}}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(ns)
	object.SetName(name)
	return workload{object, kind.Group, kind.Kind}
}

// createPodOf creates the n-th pod of a workload as its operator does.
func (c *policyTimeCluster) createPodOf(t *testing.T, pods kubernetes.Interface, w workload, n int) {
	t.Helper()
	pod := newPodWorkload(w.GetNamespace(), fmt.Sprint(w.GetName(), "-", n), migDevice).Object.(*corev1.Pod)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w, w.GetObjectKind().GroupVersionKind())}
	if _, err := pods.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil && t.Context().Err() == nil {
		t.Errorf("create %s: %v", pod.Name, err)
	}
}

// replacePods creates a pod of a workload for each one that is deleted, until the test ends.
func (c *policyTimeCluster) replacePods(t *testing.T, pods kubernetes.Interface, w workload) {
	t.Helper()
	changes, err := c.clientset.CoreV1().Pods(w.GetNamespace()).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { changes.Stop(); <-done })
	go func() {
		defer close(done)
		replaced := map[string]bool{}
		for change := range changes.ResultChan() {
			pod, ok := change.Object.(*corev1.Pod)
			if !ok || change.Type == watch.Deleted || pod.DeletionTimestamp == nil || replaced[pod.Name] || !metav1.IsControlledBy(pod, w) {
				continue
			}
			replaced[pod.Name] = true
			c.createPodOf(t, pods, w, len(replaced))
		}
	}()
}

// expectSuspended checks that the stop action suspended the workload.
func (c *policyTimeCluster) expectSuspended(t *testing.T, w workload) {
	t.Helper()
	object := w.Object.(*unstructured.Unstructured)
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "runPolicy", "suspend"); !suspended {
		t.Errorf("%s is not suspended: %v", object.GetName(), object.Object["spec"])
	}
}
