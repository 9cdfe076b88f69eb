// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

func TestOfferedUnlisted(t *testing.T) {
	node := func(name, label string, capacity ...string) corev1.Node {
		n := newNode(name, "8", label)
		n.Status.Capacity = resourceList(capacity...)
		return n
	}
	allocatable := node("later", "dgx")
	allocatable.Status.Allocatable = resourceList("example.com/gpu", "1")
	pool := newPool("dgx", "dgx")
	units := workload.ListedResources{
		GPUs: map[corev1.ResourceName]workload.Milli{"amd.com/gpu": 1000}, Others: []v1alpha1.ResourcePattern{"rdma/*"},
	}.Units()
	names, offering := offeredUnlisted(&pool, []corev1.Node{
		node("renamed", "dgx", "nvidia.com/a100", "8", "cpu", "8", "nvidia.com/gpu", "0", "rdma/hca", "1", "amd.com/gpu", "4", "nvidia.com/mig-1g.5gb", "1", "sluice.dev/gpu-milli", "8k"),
		node("known", "dgx", "nvidia.com/gpu", "8", "nvidia.com/a100", "0"), node("other", "cpu", "example.com/other", "8"), allocatable,
	}, units)
	if diff := cmp.Diff([]string{"example.com/gpu", "nvidia.com/a100"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"later", "renamed"}, offering); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// What was offered counts for a day, unless it comes to a list.
func TestMergeUnlisted(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	ago := func(hours int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(hours) * time.Hour)) }
	got := mergeUnlisted([]v1alpha1.UnlistedResource{
		{Name: "example.com/back", GoneSince: ago(3)},
		{Name: "example.com/gone"},
		{Name: "example.com/old", GoneSince: ago(24)},
		{Name: "example.com/recent", GoneSince: ago(23)},
		{Name: "rdma/hca"},
	}, []string{"example.com/back", "example.com/new"}, workload.ListedResources{Others: []v1alpha1.ResourcePattern{"rdma/*"}}.Units(), now)
	want := []v1alpha1.UnlistedResource{
		{Name: "example.com/back"},
		{Name: "example.com/gone", GoneSince: metav1.NewTime(now)},
		{Name: "example.com/new"},
		{Name: "example.com/recent", GoneSince: ago(23)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnlistedResourcesAreReported(t *testing.T) {
	pod := func(name, project string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, Labels: map[string]string{}},
			Spec: corev1.PodSpec{NodeName: "renamed", Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Limits: resourceList("nvidia.com/a100", "1")},
			}}},
			Status: corev1.PodStatus{Phase: phase},
		}
		if project != "" {
			p.Labels[v1alpha1.LabelProject] = project
		}
		return p
	}
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	renamed := newNode("renamed", "8", "dgx")
	renamed.Status.Capacity = resourceList("nvidia.com/a100", "8", "rdma/hca", "1")
	parameters := &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
		Spec:       v1alpha1.AdmissionParametersSpec{NonGPUResources: []v1alpha1.ResourcePattern{"rdma/*"}},
	}
	c := fake.NewClientBuilder().WithScheme(kinds).WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string {
		return []string{object.(*corev1.Pod).Spec.NodeName}
	}).WithObjects(parameters, pod("early", "lab", corev1.PodRunning), pod("ended", "lab", corev1.PodSucceeded), pod("outside", "", corev1.PodRunning)).Build()
	r := &Reconciler{Client: c, Live: c}
	pool, now := newPool("dgx", "dgx"), time.Now()
	observe := func() Observation {
		observation := Observe(&pool, []v1alpha1.NodePool{pool}, []corev1.Node{renamed}, nil)
		if err := r.observeUnlisted(t.Context(), &pool, []v1alpha1.NodePool{pool}, []corev1.Node{renamed}, now, &observation); err != nil {
			t.Fatal(err)
		}
		return observation
	}
	status := BuildStatus(&pool, observe(), SchedulerSupport{}, metav1.NewTime(now))
	if diff := cmp.Diff([]v1alpha1.UnlistedResource{{Name: "nvidia.com/a100"}}, status.UnlistedResources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := formatCondition(status, v1alpha1.ConditionUnlistedResources)
	for _, want := range []string{"True ResourcesUnlisted", "no list knows: nvidia.com/a100;", "name a GPU in spec.resources", "no quota counts it: lab/early"} {
		if !strings.Contains(got, want) {
			t.Errorf("condition %q does not have %q", got, want)
		}
	}
	if strings.Contains(got, "ended") || strings.Contains(got, "outside") || strings.Contains(got, "rdma") {
		t.Errorf("condition %q", got)
	}
	pool.Spec.Resources = []v1alpha1.GPUResource{{Name: "nvidia.com/a100"}}
	if status := BuildStatus(&pool, observe(), SchedulerSupport{}, metav1.NewTime(now)); len(status.UnlistedResources) > 0 ||
		!strings.HasPrefix(formatCondition(status, v1alpha1.ConditionUnlistedResources), "False ResourcesListed") {
		t.Errorf("after the pool named it: %+v", status)
	}
}
