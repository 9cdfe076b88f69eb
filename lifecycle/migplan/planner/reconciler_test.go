// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// fakeCluster is a cluster in memory that records writes, with a clock.
type fakeCluster struct {
	*Reconciler
	testing.TB
	client  client.Client
	pending *fakePendingPods
	wrote   []string
	events  *events.FakeRecorder
	time    time.Time
}

func newFakeCluster(t *testing.T, objects ...client.Object) *fakeCluster {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeCluster{TB: t, events: events.NewFakeRecorder(100), time: startTime}
	note := func(verb string, object client.Object) {
		g.wrote = append(g.wrote, fmt.Sprintf("%s %T %s", verb, object, object.GetName()))
	}
	g.client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithTypeConverters(applyconfiguration.NewTypeConverter(kinds), clientgoac.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&v1alpha1.NodePool{}, &v1alpha1.GPUNode{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "status.nominatedNodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Status.NominatedNodeName} //nolint:forcetypeassert // the index is over pods
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				note("patch", o)
				return c.Patch(ctx, o, patch, opts...)
			},
			SubResourceUpdate: func(
				ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
			) error {
				note("update "+sub, o)
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				pool := &v1alpha1.NodePool{}
				pool.Name = *o.(interface{ GetName() *string }).GetName() //nolint:forcetypeassert // generated
				note("update "+sub, pool)
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		}).Build()
	g.Reconciler = &Reconciler{Client: g.client, Live: g.client, Events: g.events, now: func() time.Time { return g.time }, speed: 1}
	g.initialize()
	g.pending = &fakePendingPods{}
	g.pendingPods = g.pending
	return g
}

type fakePendingPods []*pendingPod

func (f *fakePendingPods) Values() []*pendingPod { return *f }

// reconcileAfter runs one pass after a delay and returns its writes.
func (g *fakeCluster) reconcileAfter(later time.Duration) []string {
	g.Helper()
	g.time = g.time.Add(later)
	g.wrote = nil
	if _, err := g.Reconcile(g.Context(), planRequest); err != nil {
		g.Fatal(err)
	}
	slices.Sort(g.wrote)
	return g.wrote
}

func (g *fakeCluster) expectWrites(what string, got []string, want ...string) {
	g.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		g.Errorf("%s: -want +got\n%s", what, diff)
	}
}

func newMIGPool() *v1alpha1.NodePool {
	return &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "mig"},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"mig": "yes"}, Sharing: v1alpha1.SharingMIG},
	}
}

func newMIGNode(change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", Labels: map[string]string{"mig": "yes"}}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Ti")}
	node.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	for _, c := range change {
		c(node)
	}
	return node
}

func withRepartitioningTaint(value string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: v1alpha1.TaintRepartitioning, Value: value, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: startTime},
		})
	}
}

func (g *fakeCluster) createPendingPod(profile string) {
	g.Helper()
	pod := newPendingPodObject(func(p *corev1.Pod) {
		addLimit(&p.Spec.Containers[0], corev1.ResourceName("nvidia.com/mig-"+profile), 1)
		p.Status.Conditions[0].Message = ""
		p.Spec.Tolerations = []corev1.Toleration{{Key: "theirs", Operator: corev1.TolerationOpExists}}
	})
	waiting, ok := parsePendingPod(pod)
	if !ok {
		g.Fatal("the pod is not pending")
	}
	*g.pending = append(*g.pending, waiting)
}

func (g *fakeCluster) getObject(into client.Object, name string) {
	g.Helper()
	if err := g.client.Get(g.Context(), types.NamespacedName{Name: name}, into); err != nil {
		g.Fatal(err)
	}
}

// TestRepartitionWorkflow runs a change from taint to untaint: each write happens once, and the
// other taints of the node stay.
func TestRepartitionWorkflow(t *testing.T) {
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1}}
	gpuNode.Status.ObservedGeneration, gpuNode.Status.SampledAt = 1, &metav1.Time{Time: startTime}
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{newObservedGPU(t, "n1", 0, "a100:")}
	g := newFakeCluster(t, newMIGPool(), newMIGNode(), gpuNode)
	const status = "update status *v1alpha1.NodePool mig"
	g.expectWrites("no pending pod", g.reconcileAfter(0), status)
	g.expectWrites("no change", g.reconcileAfter(time.Second))
	g.createPendingPod("3g.20gb")
	g.expectWrites("a pending pod", g.reconcileAfter(unschedulableGracePeriod+apiTimeResolution), "patch *v1.Node n1", status)
	g.expectWrites("bindings settle", g.reconcileAfter(time.Second))
	g.expectWrites("bindings have settled", g.reconcileAfter(bindSettleTime+apiTimeResolution), "patch *v1alpha1.GPUNode n1")
	g.getObject(gpuNode, "n1")
	want := []v1alpha1.DesiredGPU{
		{UUID: gpuUUID("n1", 0), MIGEnabled: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 4}}},
	}
	if diff := cmp.Diff(want, gpuNode.Spec.GPUs); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	gpuNode.Generation = 2 // as an API server does
	if err := g.client.Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	g.expectWrites("the agent applies the spec", g.reconcileAfter(time.Second))
	g.getObject(gpuNode, "n1")
	gpuNode.Status.ObservedGeneration = 2
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{newObservedGPU(t, "n1", 0, "a100: 3g.20gb@4")}
	if err := g.client.Status().Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
	g.expectWrites("the device plugin enumerates", g.reconcileAfter(time.Second))
	node := &corev1.Node{}
	g.getObject(node, "n1")
	node.Status.Allocatable["nvidia.com/mig-3g.20gb"] = resource.MustParse("1")
	if err := g.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	g.expectWrites("allocatable matches", g.reconcileAfter(time.Second), "patch *v1.Node n1")
	g.expectWrites("the condition", g.reconcileAfter(time.Second), status)
	g.expectWrites("the scheduler may bind", g.reconcileAfter(time.Second))
	g.getObject(node, "n1")
	if diff := cmp.Diff(newMIGNode().Spec.Taints, node.Spec.Taints); diff != "" {
		t.Errorf("taints: -want +got\n%s", diff)
	}
	close(g.events.Events)
	var recorded []string
	for text := range g.events.Events {
		recorded = append(recorded, text)
	}
	const scheduled = "Normal MIGRepartitionScheduled the node's GPUs will be repartitioned; it accepts no new pods until then"
	const completed = "Normal MIGRepartitionCompleted the GPUs were repartitioned as planned in 9s"
	wantEvents := []string{
		scheduled, scheduled,
		"Normal MIGRepartitionStarted node n1 is being repartitioned to create 3g.20gb for this pod",
		completed, completed, // on the node and the GPUNode
	}
	if diff := cmp.Diff(wantEvents, recorded); diff != "" {
		t.Errorf("events: -want +got\n%s", diff)
	}
}

// TestOrphanedTaintsAndConditionsAreRemoved removes the taint of nodes and the condition of pools
// that are no longer planned.
func TestOrphanedTaintsAndConditionsAreRemoved(t *testing.T) {
	pool := newMIGPool()
	pool.Spec.Sharing = v1alpha1.SharingNone
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady}}
	g := newFakeCluster(t, pool, newMIGNode(withRepartitioningTaint("1")))
	planned := ac.NodePool(pool.Name).WithStatus(ac.NodePoolStatus().WithConditions(apply.Conditions(
		[]metav1.Condition{{Type: v1alpha1.ConditionPlanned}}, v1alpha1.ConditionPlanned)...))
	if err := g.client.Status().Apply(t.Context(), planned, client.FieldOwner(v1alpha1.FieldManagerPlanner)); err != nil {
		t.Fatal(err)
	}
	g.expectWrites("orphans", g.reconcileAfter(0), "patch *v1.Node n1", "update status *v1alpha1.NodePool mig")
	g.getObject(pool, "mig")
	if meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionPlanned) != nil || len(pool.Status.Conditions) != 1 {
		t.Errorf("conditions: %v", pool.Status.Conditions)
	}
	g.expectWrites("no further writes", g.reconcileAfter(time.Second))
}

// A node whose change the API server always refuses delays neither another node nor the conditions.
func TestRefusedNodeDelaysNoOther(t *testing.T) {
	orphan := func(name string) *corev1.Node {
		return newMIGNode(withRepartitioningTaint("1"), func(n *corev1.Node) { n.Name, n.UID, n.Labels = name, types.UID(name), nil })
	}
	g := newFakeCluster(t, newMIGPool(), newMIGNode(), createGPUNode(t, "a100:"), orphan("refused"), orphan("other"))
	g.Client = interceptor.NewClient(g.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake client implements it
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "refused" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("a policy denies it"))
			}
			return w.Patch(ctx, o, patch, opts...)
		},
	})
	g.createPendingPod("3g.20gb")
	g.expectWrites("one node is refused", g.reconcileAfter(unschedulableGracePeriod+apiTimeResolution),
		"patch *v1.Node n1", "patch *v1.Node other", "update status *v1alpha1.NodePool mig")
	result, err := g.Reconcile(t.Context(), planRequest)
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > failureRequeue {
		t.Errorf("again after %s, %v; want at most %s", result.RequeueAfter, err, failureRequeue)
	}
}

// A pending pod gets its instance on another node if the API server always refuses the taint of the first one. Neither counts
// the refused node among those that change.
func TestRefusedNodeIsNotChosenAgain(t *testing.T) {
	second := createGPUNode(t, "a100:")
	second.Name, second.Status.GPUs = "n2", []v1alpha1.ObservedGPU{newObservedGPU(t, "n2", 0, "a100:")}
	g := newFakeCluster(t, newMIGPool(), createGPUNode(t, "a100:"), second,
		newMIGNode(), newMIGNode(func(n *corev1.Node) { n.Name, n.UID = "n2", "n2" }))
	g.Client = interceptor.NewClient(g.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake client implements it
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "n1" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("a policy denies it"))
			}
			return w.Patch(ctx, o, patch, opts...)
		},
	})
	g.createPendingPod("3g.20gb")
	const status = "update status *v1alpha1.NodePool mig"
	g.expectWrites("the first node is refused", g.reconcileAfter(unschedulableGracePeriod+apiTimeResolution), status)
	g.expectWrites("the second one follows", g.reconcileAfter(conflictRequeue), "patch *v1.Node n2", status)
}

// TestTaintStaysWhenCacheIsStale keeps the taint while the cache lags behind the GPUNode.
func TestTaintStaysWhenCacheIsStale(t *testing.T) {
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1}}
	gpuNode.Status.ObservedGeneration, gpuNode.Status.SampledAt = 1, &metav1.Time{Time: startTime}
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{newObservedGPU(t, "n1", 0, "a100:")}
	g := newFakeCluster(t, newMIGPool(), newMIGNode(withRepartitioningTaint("1")), gpuNode)
	further := gpuNode.DeepCopy()
	further.Generation = 2
	g.Live = interceptor.NewClient(g.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake client implements it
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if object, ok := into.(*v1alpha1.GPUNode); ok {
				further.DeepCopyInto(object)
				return nil
			}
			return c.Get(ctx, key, into, opts...)
		},
	})
	g.expectWrites("a stale cache", g.reconcileAfter(time.Second))
	g.Live = g.client
	g.expectWrites("a current cache", g.reconcileAfter(time.Second), "patch *v1.Node n1", "update status *v1alpha1.NodePool mig")
}

// createGPUNode creates the GPUNode of the node n1.
func createGPUNode(t *testing.T, layout string) *v1alpha1.GPUNode {
	t.Helper()
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1}}
	gpuNode.Status.ObservedGeneration, gpuNode.Status.SampledAt = 1, &metav1.Time{Time: startTime}
	gpuNode.Status.GPUs = []v1alpha1.ObservedGPU{newObservedGPU(t, "n1", 0, layout)}
	return gpuNode
}

// A node is not tainted for a pod that cannot run beside the node's other pods.
func TestNodeWithoutRoomIsNotTainted(t *testing.T) {
	other := newPendingPodObject(func(p *corev1.Pod) {
		p.Name, p.UID, p.Spec.NodeName = "other", "other", "n1"
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ti")}}
	})
	g := newFakeCluster(t, newMIGPool(), newMIGNode(), createGPUNode(t, "a100:"), other)
	g.createPendingPod("3g.20gb")
	(*g.pending)[0].resources.memory = 1 << 30
	const status = "update status *v1alpha1.NodePool mig"
	g.expectWrites("the first look", g.reconcileAfter(unschedulableGracePeriod+apiTimeResolution), status)
	g.expectWrites("the condition", g.reconcileAfter(conflictRequeue), status)
	g.expectWrites("later", g.reconcileAfter(conflictRequeue))
	pool := newMIGPool()
	g.getObject(pool, "mig")
	if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionPlanned); c.Reason != ReasonOtherResourceMissing {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// Pods in their binding cycle keep their instances: their scheduler nominated the node, or waits for a
// volume near it. Guards invariant 7 of the design.
func TestClaimsBeforeBinding(t *testing.T) {
	tests := map[string]struct {
		object client.Object
		want   []string // the writes to the node after the taint
	}{
		"a nominated pod": {
			object: newPendingPodObject(func(p *corev1.Pod) {
				p.Name, p.UID, p.Status.NominatedNodeName = "q", "q", "n1"
				addLimit(&p.Spec.Containers[0], "nvidia.com/mig-7g.40gb", 1)
			}),
			want: []string{"patch *v1.Node n1"},
		},
		"a pod nominated for another node": {
			object: newPendingPodObject(func(p *corev1.Pod) {
				p.Name, p.UID, p.Status.NominatedNodeName = "q", "q", "n2"
				addLimit(&p.Spec.Containers[0], "nvidia.com/mig-7g.40gb", 1)
			}),
			want: []string{"patch *v1alpha1.GPUNode n1"},
		},
		"a pod that waits for a volume": {
			object: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "data", Annotations: map[string]string{annotationSelectedNode: "n1"},
			}},
			want: []string{"patch *v1.Node n1"},
		},
		"a pod that waits for a volume near another node": {
			object: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "data", Annotations: map[string]string{annotationSelectedNode: "n2"},
			}},
			want: []string{"patch *v1alpha1.GPUNode n1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newFakeCluster(t, newMIGPool(), newMIGNode(withRepartitioningTaint("1")), createGPUNode(t, "a100: 7g.40gb@0"), tt.object)
			g.createPendingPod("3g.20gb")
			waits, _ := parsePendingPod(newPendingPodObject(func(p *corev1.Pod) {
				p.Name, p.UID, p.Status.Conditions = "waits", "waits", nil
				addLimit(&p.Spec.Containers[0], "nvidia.com/mig-7g.40gb", 1)
				p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				}}}
			}))
			*g.pending = append(*g.pending, waits)
			// The instance has been idle for so long that it no longer counts as claimed anyway.
			g.state.offers = map[types.UID]podOffers{"waits": {"n1": {available: startTime.Add(-claimPeriod), usable: startTime}}}
			got := g.reconcileAfter(bindSettleTime + apiTimeResolution)
			got = slices.DeleteFunc(got, func(write string) bool { return write == "update status *v1alpha1.NodePool mig" })
			g.expectWrites(name, got, tt.want...)
		})
	}
}

// UseClock makes the reconciler read machine time from a clock that runs speed times as fast as real time.
func (r *Reconciler) UseClock(now func() time.Time, speed time.Duration) *Reconciler {
	r.now, r.speed = now, speed
	return r
}
