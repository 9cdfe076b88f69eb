// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpunodes

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

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
)

// ground is a cluster, and how often something was written there.
type ground struct {
	*Reconciler
	writes int
}

func newGround(t *testing.T, objects ...client.Object) *ground {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{}
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

// pass reconciles until nothing is written, and gives the GPUNode; nil for none.
func (g *ground) pass(t *testing.T) *v1alpha1.GPUNode {
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

func dgx(labels map[string]string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", UID: uid, Labels: labels}}
}

func pool(name, label string) *v1alpha1.NodePool {
	return &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{NodeSelector: map[string]string{label: "yes"}}}
}

var (
	inA  = map[string]string{"a": "yes"}
	inAB = map[string]string{"a": "yes", "b": "yes"}
)

func with(labels map[string]string, key, value string) map[string]string {
	all := maps.Clone(labels)
	all[key] = value
	return all
}

func TestWhoHasAGPUNode(t *testing.T) {
	plugged := dgx(inA, "1")
	plugged.Status.Capacity = corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("7")}
	zero := dgx(inA, "1")
	zero.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}
	going := dgx(with(inA, v1alpha1.LabelGPUCount, "8"), "1")
	going.DeletionTimestamp = &metav1.Time{}
	for name, tt := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"labelled by feature discovery": {dgx(with(inA, v1alpha1.LabelGPUCount, "8"), "1"), "a"},
		"labelled by the operator":      {dgx(with(inA, "nvidia.com/gpu.present", "true"), "1"), "a"},
		"by its device plugin":          {plugged, "a"},
		"without GPUs":                  {dgx(with(inA, v1alpha1.LabelGPUCount, "0"), "1"), ""},
		"whose plugin has none":         {zero, ""},
		"of no pool":                    {dgx(map[string]string{v1alpha1.LabelGPUCount: "8"}, "1"), ""},
		"of two":                        {dgx(with(inAB, v1alpha1.LabelGPUCount, "8"), "1"), ""},
		"that goes":                     {going, ""},
	} {
		got := ""
		if want := Want(tt.node, []v1alpha1.NodePool{*pool("a", "a"), *pool("b", "b")}); want != nil {
			got = want.Spec.NodePool
		}
		if got != tt.want {
			t.Errorf("a node %s: pool %q, want %q", name, got, tt.want)
		}
	}
}

// A GPUNode is made once, follows its node to another pool with all that was planned,
// goes when the node has none, and is another's where the node is another.
func TestALife(t *testing.T) {
	node := dgx(with(inA, v1alpha1.LabelGPUCount, "8"), "1")
	g := newGround(t, node, pool("a", "a"), pool("b", "b"))
	made := g.pass(t)
	if made == nil || g.writes != 1 {
		t.Fatalf("%v after %d writes", made, g.writes)
	}
	no := false
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "dgx-1", UID: "1", Controller: &no, BlockOwnerDeletion: &no}}
	if diff := cmp.Diff(want, made.OwnerReferences); diff != "" {
		t.Errorf("owners: -want +got\n%s", diff)
	}

	made.Spec.GPUs = []v1alpha1.DesiredGPU{{UUID: "GPU-00000000-0000-0000-0000-000000000000", MIGEnabled: true}}
	must(t, g.Client.Update(t.Context(), made))
	node.Labels = map[string]string{"b": "yes", v1alpha1.LabelGPUCount: "8"}
	must(t, g.Client.Update(t.Context(), node))
	if moved := g.pass(t); moved == nil || moved.Spec.NodePool != "b" || len(moved.Spec.GPUs) != 1 {
		t.Fatalf("after the move: %+v", moved)
	}

	// A restart of the node takes the labels of feature discovery away for a while.
	node.Labels = map[string]string{"b": "yes"}
	must(t, g.Client.Update(t.Context(), node))
	if g.pass(t) == nil {
		t.Fatal("it went with the labels of feature discovery")
	}

	must(t, g.Client.Delete(t.Context(), node))
	must(t, g.Client.Create(t.Context(), dgx(with(inA, v1alpha1.LabelGPUCount, "8"), "2")))
	if other := g.pass(t); other == nil || other.OwnerReferences[0].UID != "2" || len(other.Spec.GPUs) != 0 {
		t.Fatalf("of the node made anew: %+v", other)
	}
	must(t, g.Client.Delete(t.Context(), pool("a", "a")))
	if left := g.pass(t); left != nil {
		t.Fatalf("without a pool: %+v", left)
	}
}

func TestOthersGPUNodesAreLeftAlone(t *testing.T) {
	theirs := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}, Spec: v1alpha1.GPUNodeSpec{NodePool: "theirs"}}
	node := dgx(with(inA, v1alpha1.LabelGPUCount, "8"), "1")
	g := newGround(t, theirs, node, pool("a", "a"))
	g.pass(t)
	must(t, g.Client.Delete(t.Context(), node))
	if left := g.pass(t); left == nil || left.Spec.NodePool != "theirs" || g.writes != 1 { // the node's deletion
		t.Errorf("%+v after %d writes", left, g.writes)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
