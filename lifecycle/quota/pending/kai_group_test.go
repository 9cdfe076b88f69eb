// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/tenancy/department"
	"sluice.dev/policies/kaigroup"
)

// fakeGroupReader are KAI-Scheduler's PodGroups, as a cache has them.
type fakeGroupReader struct {
	client.Reader

	items []unstructured.Unstructured
}

func (r *fakeGroupReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*unstructured.UnstructuredList).Items = r.items
	return nil
}

// newPodGroup returns a PodGroup of an owner in the queue of a pool of project thesis.
func newPodGroup(name, pool string, owner metav1.OwnerReference, status map[string]any) unstructured.Unstructured {
	group := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"queue": "thesis." + pool}, "status": status}}
	group.SetGroupVersionKind(kaigroup.Kind)
	group.SetNamespace("thesis")
	group.SetName(name)
	group.SetOwnerReferences([]metav1.OwnerReference{owner})
	return group
}

// newKAIEnv returns an environment without rejections, whose project has the pools a and mig of KAI-Scheduler and no
// ResourceQuota, with these groups.
func newKAIEnv(t *testing.T, groups ...unstructured.Unstructured) (*testEnv, *fakeGroupReader) {
	t.Helper()
	g, _ := newQueueTestEnv(t)
	var project v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &project); err != nil {
		t.Fatal(err)
	}
	if err := g.client.DeleteAllOf(t.Context(), &corev1.ResourceQuota{}, client.InNamespace("thesis")); err != nil {
		t.Fatal(err)
	}
	project.Spec.NodePools = nil
	for _, place := range kaiPlaces() {
		project.Spec.NodePools = append(project.Spec.NodePools, v1alpha1.PoolQuota{Name: place.Pool})
		pool := &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: place.Pool},
			Spec: v1alpha1.NodePoolSpec{
				Scheduler: v1alpha1.SchedulerKAI, Sharing: v1alpha1.SharingNone, NodeSelector: map[string]string{"kai.scheduler/node-pool": place.Pool},
			},
		}
		if place.Pool == "mig" {
			pool.Spec.Sharing = v1alpha1.SharingMIG
		}
		if err := g.client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.client.Update(t.Context(), &project); err != nil {
		t.Fatal(err)
	}
	project.Status.GPU, project.Status.NodePools = v1alpha1.GPUUsage{Guaranteed: resource.MustParse("2")}, nil
	for _, place := range kaiPlaces() {
		use := v1alpha1.PoolUsage{Name: place.Pool, GPUUsage: v1alpha1.GPUUsage{Guaranteed: resource.MustParse("1")}}
		project.Status.NodePools = append(project.Status.NodePools, use)
	}
	if err := g.client.Status().Update(t.Context(), &project); err != nil {
		t.Fatal(err)
	}
	fake := &fakeGroupReader{items: groups}
	var reader client.Reader = fake
	g.groups.reader.Store(&reader)
	return g, fake
}

func inPodGroup(group string) func(*podcache.Pod) {
	return func(p *podcache.Pod) { p.PodGroup, p.Node, p.CreatedAt = group, "", policytime.MachineNow() }
}

// Protects invariant 11: work that KAI-Scheduler cannot schedule has its reason on the workload, in the project's
// condition and in the metric.
func TestUnscheduledGroupsAreReported(t *testing.T) {
	statuses := kaiStatuses(t)
	train := ownerReference("batch/v1", "Job", "train")
	g, groups := newKAIEnv(t,
		newPodGroup("pg-train", "a", train, statuses["limit"]),
		newPodGroup("pg-sweep", "mig", ownerReference("batch/v1", "Job", "sweep"), statuses["slices"]),
		newPodGroup("pg-runs", "a", ownerReference("batch/v1", "Job", "runs"), nil),
	)
	g.pods = fakePods{
		newGPUPod("a", 1000, inPodGroup("pg-train")), newGPUPod("a", 1000, inPodGroup("pg-train")), newGPUPod("mig", 500, inPodGroup("pg-sweep")),
		newGPUPod("a", 1000, inPodGroup("pg-runs")), newGPUPod("a", 1000, inPodGroup("pg-train"), withDeletion),
	}
	g.reconcileOnce(t)
	want := []string{
		"Warning Queued 1 pod waits in queue thesis.mig of project thesis (department students), 0.5 of a GPU in total: " +
			"project thesis has reached its limit of GPUs in node pool mig (limit 2 GPUs, 1.714 GPUs in use, 0.429 of a GPU requested); it starts automatically when KAI-Scheduler schedules it",
		"Warning Queued 2 pods wait in queue thesis.a of project thesis (department students), 2 GPUs in total: " +
			"project thesis has reached its limit of GPUs in node pool a (limit 4 GPUs, 3.5 GPUs in use, 1 GPU requested); it starts automatically when KAI-Scheduler schedules it",
	}
	recorded := g.recordedEvents()
	if len(recorded) == 2 && recorded[0] > recorded[1] {
		recorded[0], recorded[1] = recorded[1], recorded[0]
	}
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	var p v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &p); err != nil {
		t.Fatal(err)
	}
	condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	if condition == nil || condition.Reason != v1alpha1.ReasonQueued || !strings.Contains(condition.Message, "Job train (2 pods, 2 GPUs, since ") ||
		!strings.Contains(condition.Message, ": project thesis has reached its limit of GPUs in node pool a)") ||
		!strings.HasSuffix(condition.Message, "; each starts automatically when KAI-Scheduler schedules it") {
		t.Errorf("condition = %+v", condition)
	}
	if got := testutil.ToFloat64(pendingWorkloads.WithLabelValues("thesis", "LimitReached")); got != 2 {
		t.Errorf("the metric counts %v workloads at their limit, want 2", got)
	}
	if g.reconcileOnce(t); len(g.recorder.Events) > 0 {
		t.Errorf("the second pass recorded %v", g.recordedEvents())
	}
	groups.items = groups.items[2:]
	g.reconcileOnce(t)
	if got := testutil.CollectAndCount(pendingWorkloads); got != 0 {
		t.Errorf("%d series without pending workloads", got)
	}
}

// Protects invariant 11: a project on KAI-Scheduler has Queues and no ResourceQuota, so that its status, and with it
// that of its department, comes from its bound pods.
func TestUsageOfKAIProject(t *testing.T) {
	raw, err := os.ReadFile("../../../policies/testdata/kai/own-project.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rendered []metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(raw, &rendered); err != nil {
		t.Fatal(err)
	}
	for _, object := range rendered {
		if object.Kind != "Queue" {
			t.Errorf("a project on KAI-Scheduler has the %s %s", object.Kind, object.Name)
		}
	}
	g, _ := newKAIEnv(t)
	g.pods = fakePods{
		newGPUPod("a", 1000), newGPUPod("a", 500), newGPUPod("mig", 375, withDeletion), newGPUPod("a", 1000, withoutNode), newGPUPod("a", 4000, withOtherProject),
	}
	g.reconcileOnce(t)
	var p v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &p); err != nil {
		t.Fatal(err)
	}
	// Allocated, over quota and pending: in all, and in a and mig.
	usage := func(all *v1alpha1.GPUUsage, pools []v1alpha1.PoolUsage) []string {
		return []string{formatGPUUse(all), formatGPUUse(&pools[0].GPUUsage), formatGPUUse(&pools[1].GPUUsage)}
	}
	want := []string{"1875m 500m 1", "1500m 500m 1", "375m 0 0"}
	if diff := cmp.Diff(want, usage(&p.Status.GPU, p.Status.NodePools)); diff != "" {
		t.Errorf("project (-want +got)\n%s", diff)
	}
	students := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: p.Spec.NodePools}}
	for i := range students.Spec.NodePools {
		students.Spec.NodePools[i].GPU.Guaranteed = resource.MustParse("1")
	}
	all, pools := department.ComputeUsage(students, []v1alpha1.Project{p})
	if diff := cmp.Diff(want, usage(&all, pools)); diff != "" {
		t.Errorf("department (-want +got)\n%s", diff)
	}
}
