// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// An agent can write only the status of its own node's GPUNode: not another node's, not the spec or
// labels, and nothing with a token without a node.
func TestAgentPermissions(t *testing.T) {
	w := newTestNode(t)
	other := newTestNode(t)
	own, err := w.cluster.NodeBoundKubeconfig(t.Context(), v1alpha1.AgentNamespace, "gpuagent", w.name)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := w.cluster.ServiceAccountKubeconfig(t.Context(), v1alpha1.AgentNamespace, "gpuagent")
	if err != nil {
		t.Fatal(err)
	}
	version := func(c client.Client, node *v1alpha1.GPUNode) error {
		changed := node.DeepCopy()
		changed.Status.DriverVersion = t.Name()
		return c.Status().Patch(t.Context(), changed, client.MergeFrom(node))
	}
	agent, without := w.clientAs(own), w.clientAs(nobody)
	// Policies take effect a moment after they are created.
	clustertest.Eventually(t, func() error {
		err := version(agent, other.getGPUNode()) // nil if it was written
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "its own node only") && strings.Contains(err.Error(), w.name) {
			return nil
		}
		return fmt.Errorf("another node's status is not refused as it shall be: %s", fmt.Sprint(err))
	})
	if err := version(without, w.getGPUNode()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "of no node") {
		t.Errorf("a token of no node: %v", err)
	}
	if err := version(agent, w.getGPUNode()); err != nil {
		t.Errorf("its own: %v", err)
	}
	node := w.getGPUNode()
	if got := node.Status.DriverVersion; got != t.Name() {
		t.Errorf("written: %q", got)
	}
	for name, try := range map[string]func() error{
		"the spec": func() error {
			changed := node.DeepCopy()
			changed.Spec.NodePool = "mine"
			return agent.Patch(t.Context(), changed, client.MergeFrom(node))
		},
		"a label, by the status": func() error {
			changed := node.DeepCopy()
			changed.Labels = map[string]string{"a": "b"}
			if err := agent.Status().Patch(t.Context(), changed, client.MergeFrom(node)); err != nil {
				return err
			}
			if w.getGPUNode().Labels != nil {
				return nil
			}
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("gpunodes").GroupResource(), w.name, nil) // left out
		},
		"a GPUNode": func() error {
			return agent.Create(t.Context(), &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "made-by-an-agent"}})
		},
		"its end": func() error { return agent.Delete(t.Context(), node.DeepCopy()) },
		"the Node": func() error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
			return agent.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		},
		"pods": func() error {
			return agent.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default"))
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// clientAs returns a client with a kubeconfig.
func (w *testNode) clientAs(kubeconfig string) client.Client {
	w.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: w.admin.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	return c
}
