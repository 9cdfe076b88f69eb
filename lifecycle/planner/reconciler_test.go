// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
)

// ground is a cluster in memory, what is written there, and a clock.
type ground struct {
	*Reconciler
	testing.TB
	client client.Client
	wrote  []string
	said   *events.FakeRecorder
	time   time.Time
}

func newGround(t *testing.T, objects ...client.Object) *ground {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{TB: t, said: events.NewFakeRecorder(100), time: start}
	note := func(verb string, object client.Object) {
		g.wrote = append(g.wrote, fmt.Sprintf("%s %T %s", verb, object, object.GetName()))
	}
	g.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.NodePool{}, &v1alpha1.GPUNode{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }). //nolint:forcetypeassert // of pods
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", o)
				return c.Patch(ctx, o, patch, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				note("update "+sub, o)
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		}).Build()
	g.Reconciler = &Reconciler{Client: g.client, Live: g.client, Events: g.said, now: func() time.Time { return g.time }}
	g.begin()
	g.pending = &pending{logger: logr.Discard(), byUID: map[types.UID]*waiting{}, synced: make(chan struct{}), wake: func() {}}
	return g
}

// pass is one pass later, and what it wrote.
func (g *ground) pass(later time.Duration) []string {
	g.Helper()
	g.time = g.time.Add(later)
	g.wrote = nil
	if _, err := g.Reconcile(g.Context(), thePlan); err != nil {
		g.Fatal(err)
	}
	slices.Sort(g.wrote)
	return g.wrote
}

func (g *ground) expect(what string, got []string, want ...string) {
	g.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		g.Errorf("%s: -want +got\n%s", what, diff)
	}
}

func cutPool() *v1alpha1.NodePool {
	return &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "cut"},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"cut": "yes"}, Sharing: v1alpha1.SharingMIG},
	}
}

func cutNode(change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", Labels: map[string]string{"cut": "yes"}}}
	node.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	for _, c := range change {
		c(node)
	}
	return node
}

func repartitioning(value string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: v1alpha1.TaintRepartitioning, Value: value, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: start},
		})
	}
}

func (g *ground) waits(profile string) {
	g.Helper()
	pod := wantsPod(func(p *corev1.Pod) {
		asking(&p.Spec.Containers[0], corev1.ResourceName("nvidia.com/mig-"+profile), 1)
		p.Status.Conditions[0].Message = ""
		p.Spec.Tolerations = []corev1.Toleration{{Key: "theirs", Operator: corev1.TolerationOpExists}}
	})
	if err := g.pending.Add(pod); err != nil {
		g.Fatal(err)
	}
}

func (g *ground) get(into client.Object, name string) {
	g.Helper()
	if err := g.client.Get(g.Context(), types.NamespacedName{Name: name}, into); err != nil {
		g.Fatal(err)
	}
}

// The whole way of a change, each write once, and nothing else of the node is touched.
func TestAChangeFromBeginningToEnd(t *testing.T) {
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1}}
	gpuNode.Status.ObservedGeneration = 1
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{observed(t, "n1", 0, "a100:")}
	g := newGround(t, cutPool(), cutNode(), gpuNode)
	const status = "update status *v1alpha1.NodePool cut"
	g.expect("nobody waits", g.pass(0), status)
	g.expect("still", g.pass(time.Second))
	g.waits("3g.20gb")
	g.expect("somebody waits", g.pass(ripe+resolution), "patch *v1.Node n1", status)
	g.expect("it settles", g.pass(time.Second))
	g.expect("it has settled", g.pass(settle+resolution), "patch *v1alpha1.GPUNode n1")
	g.get(gpuNode, "n1")
	want := []v1alpha1.DesiredGPU{{UUID: uuid("n1", 0), MIGEnabled: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 4}}}}
	if diff := cmp.Diff(want, gpuNode.Spec.GPUs); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	gpuNode.Generation = 2 // an API server counts
	if err := g.client.Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	g.expect("the agent is at work", g.pass(time.Second))
	g.get(gpuNode, "n1")
	gpuNode.Status.ObservedGeneration = 2
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{observed(t, "n1", 0, "a100: 3g.20gb@4")}
	if err := g.client.Status().Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	g.expect("the plugin is at work", g.pass(time.Second))
	node := &corev1.Node{}
	g.get(node, "n1")
	node.Status.Allocatable = corev1.ResourceList{"nvidia.com/mig-3g.20gb": resource.MustParse("1")}
	if err := g.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	g.expect("all is done", g.pass(time.Second), "patch *v1.Node n1")
	g.expect("and said", g.pass(time.Second), status)
	g.expect("the pod's scheduler has its turn", g.pass(time.Second))
	g.get(node, "n1")
	if diff := cmp.Diff(cutNode().Spec.Taints, node.Spec.Taints); diff != "" {
		t.Errorf("taints: -want +got\n%s", diff)
	}
	close(g.said.Events)
	var said []string
	for text := range g.said.Events {
		said = append(said, text)
	}
	want2 := []string{
		"Normal Repartitioning its GPUs are to be cut anew; no new pods until then", "Normal Repartitioning its GPUs are to be cut anew; no new pods until then",
		"Normal CuttingGPU 3g.20gb is being made on node n1",
		"Normal Repartitioned its GPUs are cut as planned, after 9s", "Normal Repartitioned its GPUs are cut as planned, after 9s",
	}
	if diff := cmp.Diff(want2, said); diff != "" {
		t.Errorf("events: -want +got\n%s", diff)
	}
}

// A taint goes where nobody changes the node any more, and a pool that is not cut says
// nothing of plans.
func TestWhatIsLeftBehindGoes(t *testing.T) {
	pool := cutPool()
	pool.Spec.Sharing = v1alpha1.SharingNone
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlanned}, {Type: v1alpha1.ConditionReady}}
	g := newGround(t, pool, cutNode(repartitioning("1")))
	g.expect("left behind", g.pass(0), "patch *v1.Node n1", "update status *v1alpha1.NodePool cut")
	g.get(pool, "cut")
	if meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionPlanned) != nil || len(pool.Status.Conditions) != 1 {
		t.Errorf("conditions: %v", pool.Status.Conditions)
	}
	g.expect("and nothing more", g.pass(time.Second))
}

// What a cache says of a GPUNode that is further by now brings no taint off.
func TestATaintStaysWhereTheCacheIsBehind(t *testing.T) {
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1}}
	gpuNode.Status.ObservedGeneration = 1
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{observed(t, "n1", 0, "a100:")}
	g := newGround(t, cutPool(), cutNode(repartitioning("1")), gpuNode)
	further := gpuNode.DeepCopy()
	further.Generation = 2
	g.Live = interceptor.NewClient(g.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake has it
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if object, ok := into.(*v1alpha1.GPUNode); ok {
				further.DeepCopyInto(object)
				return nil
			}
			return c.Get(ctx, key, into, opts...)
		},
	})
	g.expect("a cache that is behind", g.pass(time.Second))
	g.Live = g.client
	g.expect("one that is not", g.pass(time.Second), "patch *v1.Node n1", "update status *v1alpha1.NodePool cut")
}
