// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// clientLabels are the labels of NVIDIA's GPU clients on migNode before the test.
var clientLabels = map[string]string{
	"nvidia.com/gpu.deploy.dcgm": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true", "nvidia.com/gpu.deploy.client": "true",
	"nvidia.com/gpu.deploy.nvsm": "false", "nvidia.com/gpu.deploy.gpu-feature-discovery": "disabled",
}

// createDCGM labels migNode and creates DCGM as the GPU operator does: a DaemonSet that selects nodes by a label.
func (g *migCluster) createDCGM(t *testing.T) {
	t.Helper()
	g.patchNode(t, func(node *corev1.Node) { maps.Copy(node.Labels, clientLabels) })
	labels := map[string]string{"app": "nvidia-dcgm"}
	dcgm := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "nvidia-dcgm"}}
	dcgm.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	dcgm.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"nvidia.com/gpu.deploy.dcgm": "true"},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: "nv-hostengine", Image: "dcgm"}},
		},
	}
	if err := g.adminClient.Create(t.Context(), dcgm); err != nil {
		t.Fatal(err)
	}
}

func (g *migCluster) patchNode(t *testing.T, change func(*corev1.Node)) {
	t.Helper()
	node := g.getNode(t)
	before := client.MergeFrom(node.DeepCopy())
	change(node)
	if err := g.adminClient.Patch(t.Context(), node, before); err != nil {
		t.Fatal(err)
	}
}

func (g *migCluster) getNode(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := g.adminClient.Get(t.Context(), client.ObjectKey{Name: migNode}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// requireDCGM waits until DCGM runs on migNode.
func (g *migCluster) requireDCGM(t *testing.T) {
	t.Helper()
	g.eventuallyAfterRepartition(t, func() error {
		pods, err := g.clientset.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app=nvidia-dcgm"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || pods.Items[0].DeletionTimestamp != nil {
			return unexpectedState("DCGM runs", len(pods.Items))
		}
		return nil
	})
}

// revision is the revision of the cluster's state at which something happened; 0 before.
type revision struct {
	mu sync.Mutex
	at uint64
}

// first records the first revision at which an event of a watch matches.
func (r *revision) first(t *testing.T, events watch.Interface, matches func(watch.Event) bool) {
	t.Cleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			if !ok || !matches(event) {
				continue
			}
			r.mu.Lock()
			r.at, _ = strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			r.mu.Unlock()
			return
		}
	}()
}

func (r *revision) get() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// NVIDIA's GPU clients end before GPUs leave MIG mode and start again afterwards, although lifecycle is
// killed in between; the labels are then as before. Guards invariant 8 of the design.
func TestGPUClientsArePausedForModeChanges(t *testing.T) {
	g := newMIGCluster(t)
	g.createDCGM(t)
	g.requireDCGM(t)
	var ended, written revision
	pods, err := g.clientset.CoreV1().Pods(metav1.NamespaceSystem).Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=nvidia-dcgm"})
	if err != nil {
		t.Fatal(err)
	}
	ended.first(t, pods, func(event watch.Event) bool { return event.Type == watch.Deleted })
	watching, err := client.NewWithWatch(g.config, client.Options{Scheme: g.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := watching.Watch(t.Context(), &v1alpha1.GPUNodeList{})
	if err != nil {
		t.Fatal(err)
	}
	written.first(t, nodes, func(event watch.Event) bool {
		node, ok := event.Object.(*v1alpha1.GPUNode)
		return ok && node.Name == migNode && len(node.Spec.GPUs) > 0 && !node.Spec.GPUs[0].MIGEnabled
	})

	pool := newNodePool("dgx-mig")
	if err := g.adminClient.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Fatal(err)
	}
	before := client.MergeFrom(pool.DeepCopy())
	pool.Spec.MIG = &v1alpha1.MIGSpec{
		Planning: v1alpha1.MIGPlanningStatic, Resets: v1alpha1.MIGResetsWhenIdle, Pause: true,
		Layout: []v1alpha1.MIGLayout{{MIGEnabled: ptr.To(false)}},
	}
	if err := g.adminClient.Patch(t.Context(), pool, before); err != nil {
		t.Fatal(err)
	}
	g.eventuallyAfterRepartition(t, func() error {
		labels := g.getNode(t).Labels
		if labels["nvidia.com/gpu.deploy.dcgm"] != v1alpha1.GPUClientPaused {
			return unexpectedState("DCGM is paused", fmt.Sprint(labels, g.plannerStatus(t)))
		}
		for key, want := range clientLabels {
			if want != "true" || key == "nvidia.com/gpu.deploy.client" {
				if labels[key] != want {
					t.Errorf("label %s is %q during the pause, and was %q", key, labels[key], want)
				}
			}
		}
		return nil
	})
	g.killAndAwaitRestart(t, "lifecycle")
	g.eventuallyAfterRepartition(t, func() error {
		for _, gpu := range g.getGPUNode(t).Status.GPUs {
			if gpu.MIG.Current != v1alpha1.MIGModeDisabled {
				return unexpectedState("all GPUs have left MIG mode", g.plannerStatus(t))
			}
		}
		return nil
	})
	g.waitForStableNode(t)
	g.requireDCGM(t)
	for key, want := range clientLabels {
		if got := g.getNode(t).Labels[key]; got != want {
			t.Errorf("label %s is %q, and was %q", key, got, want)
		}
	}
	if ended.get() == 0 || written.get() == 0 || ended.get() > written.get() {
		t.Errorf("DCGM ended at revision %d, and the change was written at %d", ended.get(), written.get())
	}
}
