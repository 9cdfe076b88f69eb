// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/clustertest"
)

// world is the cluster as one test sees it: a namespace of its own on the shared
// nodes, which it leaves empty.
type world struct {
	t         *testing.T
	cluster   *cluster.Cluster
	client    kubernetes.Interface
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cluster: c, client: client, namespace: clustertest.Namespace(t, c)}
	t.Cleanup(w.clear)
	return w
}

// clear removes the test's pods and waits until the nodes have their devices
// back.
func (w *world) clear() {
	ctx := context.Background()
	if err := w.client.BatchV1().Jobs(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}, metav1.ListOptions{}); err != nil {
		w.t.Error(err)
	}
	clustertest.Eventually(w.t, func() error {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		for _, pod := range pods.Items {
			if len(pod.Finalizers) > 0 {
				pod.Finalizers = nil
				_, _ = w.client.CoreV1().Pods(w.namespace).Update(ctx, &pod, metav1.UpdateOptions{})
			}
			_ = w.client.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		}
		return fmt.Errorf("%d pods are left", len(pods.Items))
	})
	clustertest.Eventually(w.t, func() error {
		for _, node := range []string{whole, cut, empty} {
			if left, _ := processes(w.t, w.cluster.Dir(), node); len(left) > 0 {
				return fmt.Errorf("node %s has the processes %v", node, left)
			}
		}
		return nil
	})
}

// pod is a pod under construction: one container that runs until it is deleted.
type pod struct{ *corev1.Pod }

func newPod(name string) pod {
	return pod{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "main", Image: "pytorch:2.9"}},
		},
	}}
}

func (p pod) with(change func(*corev1.Pod)) pod { change(p.Pod); return p }

// on lets the scheduler choose this node only; bound goes past the scheduler.
func (p pod) on(node string) pod {
	return p.with(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} })
}

func (p pod) bound(node string) pod {
	return p.with(func(p *corev1.Pod) { p.Spec.NodeName = node })
}

func (p pod) asks(name string, quantity string) pod {
	return p.with(func(p *corev1.Pod) {
		resources := &p.Spec.Containers[0].Resources
		if resources.Limits == nil {
			resources.Limits = corev1.ResourceList{}
		}
		resources.Limits[corev1.ResourceName(name)] = resource.MustParse(quantity)
	})
}

func (p pod) gpus(n int) pod { return p.asks("nvidia.com/gpu", strconv.Itoa(n)) }

func (p pod) annotated(key, value string) pod {
	return p.with(func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) })
}

func (p pod) grace(seconds int64) pod {
	return p.with(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds })
}

func (w *world) create(p pod) *corev1.Pod {
	w.t.Helper()
	made, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), p.Pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func (w *world) delete(name string, options metav1.DeleteOptions) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, options); err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until the pod is as wanted, and returns it.
func (w *world) eventually(name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var found *corev1.Pod
	clustertest.Eventually(w.t, func() error {
		var err error
		if found, err = w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !wanted(found) {
			return fmt.Errorf("pod %s is %s %s %q: %+v", name, found.Status.Phase, found.Status.Reason, found.Status.Message, found.Status.Conditions)
		}
		return nil
	})
	return found
}

func (w *world) reaches(name string, phase corev1.PodPhase) *corev1.Pod {
	w.t.Helper()
	return w.eventually(name, func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// goes waits until the pod is gone, for less than a grace period.
func (w *world) goes(name string) {
	w.t.Helper()
	clustertest.EventuallyWithin(w.t, 10*time.Second, func() error {
		found, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("pod %s is still there: %+v", name, found.Status)
	})
}

// runs creates a pod and returns it once it is running.
func (w *world) runs(p pod) *corev1.Pod {
	w.t.Helper()
	return w.reaches(w.create(p).Name, corev1.PodRunning)
}

// holdings returns who holds what on a node, of this test's pods that hold
// something: the IDs by "pod/container", in order.
func (w *world) holdings(node string) map[string][]string {
	w.t.Helper()
	listed, err := listPodResources(w.t.Context(), socketOf(w.cluster.Dir(), node))
	if err != nil {
		w.t.Fatal(err)
	}
	held := map[string][]string{}
	for _, p := range listed {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if p.Namespace == w.namespace {
					held[p.Name+"/"+c.Name] = append(held[p.Name+"/"+c.Name], d.DeviceIds...)
				}
			}
		}
	}
	return held
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return &corev1.PodCondition{}
	}
	return &p.Status.Conditions[i]
}
