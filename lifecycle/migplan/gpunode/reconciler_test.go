// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
)

// fakeCluster is a cluster, and how often something was written there.
type fakeCluster struct {
	*Reconciler
	writes int
}

func newFakeCluster(t *testing.T, objects ...client.Object) *fakeCluster {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeCluster{}
	c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			g.writes++
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			g.writes++
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			g.writes++
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	g.Reconciler = &Reconciler{Client: c}
	return g
}

// reconcile reconciles until nothing is written, and gives the GPUNode; nil for none.
func (g *fakeCluster) reconcile(t *testing.T) *v1alpha1.GPUNode {
	t.Helper()
	for range 4 {
		before := g.writes
		if _, err := g.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "dgx-1"}}); err != nil {
			t.Fatal(err)
		}
		if g.writes == before {
			break
		}
	}
	var found v1alpha1.GPUNode
	err := g.Client.Get(t.Context(), types.NamespacedName{Name: "dgx-1"}, &found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &found
}

func newNode(labels map[string]string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", UID: uid, Labels: labels}}
}

func newNodePool(name, label string) *v1alpha1.NodePool {
	return &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{NodeSelector: map[string]string{label: "yes"}}}
}

var (
	labelsPoolA   = map[string]string{"a": "yes"}
	labelsPoolsAB = map[string]string{"a": "yes", "b": "yes"}
)

func withLabel(labels map[string]string, key, value string) map[string]string {
	all := maps.Clone(labels)
	all[key] = value
	return all
}

func TestDesiredGPUNode(t *testing.T) {
	plugged := newNode(labelsPoolA, "1")
	plugged.Status.Capacity = corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("7")}
	zero := newNode(labelsPoolA, "1")
	zero.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}
	going := newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "8"), "1")
	going.DeletionTimestamp = &metav1.Time{}
	for name, tt := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"labeled by feature discovery": {newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "8"), "1"), "a"},
		"labeled by the operator":      {newNode(withLabel(labelsPoolA, "nvidia.com/gpu.present", "true"), "1"), "a"},
		"by its device plugin":         {plugged, "a"},
		"without GPUs":                 {newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "0"), "1"), ""},
		"whose plugin has none":        {zero, ""},
		"of no pool":                   {newNode(map[string]string{v1alpha1.LabelGPUCount: "8"}, "1"), ""},
		"of two":                       {newNode(withLabel(labelsPoolsAB, v1alpha1.LabelGPUCount, "8"), "1"), ""},
		"that goes":                    {going, ""},
	} {
		got := ""
		if want := DesiredGPUNode(tt.node, []v1alpha1.NodePool{*newNodePool("a", "a"), *newNodePool("b", "b")}); want != nil {
			got = want.Spec.NodePool
		}
		if got != tt.want {
			t.Errorf("a node %s: pool %q, want %q", name, got, tt.want)
		}
	}
}

// A GPUNode is made once, follows its node to another pool with all that was planned,
// goes when the node has none, and is another's where the node is another.
func TestGPUNodeLifecycle(t *testing.T) {
	node := newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "8"), "1")
	g := newFakeCluster(t, node, newNodePool("a", "a"), newNodePool("b", "b"))
	made := g.reconcile(t)
	if made == nil || g.writes != 1 {
		t.Fatalf("%v after %d writes", made, g.writes)
	}
	no := false
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "dgx-1", UID: "1", Controller: &no, BlockOwnerDeletion: &no}}
	if diff := cmp.Diff(want, made.OwnerReferences); diff != "" {
		t.Errorf("owners: -want +got\n%s", diff)
	}

	made.Spec.GPUs = []v1alpha1.DesiredGPU{{UUID: "GPU-00000000-0000-0000-0000-000000000000", MIGEnabled: true}}
	requireNoError(t, g.Client.Update(t.Context(), made))
	node.Labels = map[string]string{"b": "yes", v1alpha1.LabelGPUCount: "8"}
	requireNoError(t, g.Client.Update(t.Context(), node))
	if moved := g.reconcile(t); moved == nil || moved.Spec.NodePool != "b" || len(moved.Spec.GPUs) != 1 {
		t.Fatalf("after the move: %+v", moved)
	}

	// A restart of the node takes the labels of feature discovery away for a while.
	node.Labels = map[string]string{"b": "yes"}
	requireNoError(t, g.Client.Update(t.Context(), node))
	if g.reconcile(t) == nil {
		t.Fatal("it went with the labels of feature discovery")
	}

	requireNoError(t, g.Client.Delete(t.Context(), node))
	requireNoError(t, g.Client.Create(t.Context(), newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "8"), "2")))
	if other := g.reconcile(t); other == nil || other.OwnerReferences[0].UID != "2" || len(other.Spec.GPUs) != 0 {
		t.Fatalf("of the node made anew: %+v", other)
	}
	requireNoError(t, g.Client.Delete(t.Context(), newNodePool("a", "a")))
	if left := g.reconcile(t); left != nil {
		t.Fatalf("without a pool: %+v", left)
	}
}

func TestUnmanagedGPUNodesAreIgnored(t *testing.T) {
	theirs := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}, Spec: v1alpha1.GPUNodeSpec{NodePool: "theirs"}}
	node := newNode(withLabel(labelsPoolA, v1alpha1.LabelGPUCount, "8"), "1")
	g := newFakeCluster(t, theirs, node, newNodePool("a", "a"))
	g.reconcile(t)
	requireNoError(t, g.Client.Delete(t.Context(), node))
	if left := g.reconcile(t); left == nil || left.Spec.NodePool != "theirs" || g.writes != 1 { // the node's deletion
		t.Errorf("%+v after %d writes", left, g.writes)
	}
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
