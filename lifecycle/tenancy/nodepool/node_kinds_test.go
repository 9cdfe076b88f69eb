// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// resourceList returns resources by name and quantity.
func resourceList(of ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		list[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return list
}

func TestObserveNodeKinds(t *testing.T) {
	node := func(name, gpus, product string, allocatable ...string) corev1.Node {
		n := newNode(name, gpus, "dgx")
		n.Labels[v1alpha1.LabelGPUProduct] = product
		n.Status.Allocatable = resourceList(allocatable...)
		return n
	}
	pool := newPool("dgx", "dgx")
	got := Observe(&pool, []v1alpha1.NodePool{pool}, []corev1.Node{
		node("small", "1", "T4", "cpu", "3920m", "memory", "15Gi"),
		node("one", "8", "A100", "cpu", "255", "memory", "1000Gi", "ephemeral-storage", "100", "nvidia.com/gpu", "8", "pods", "110", "hugepages-2Mi", "0"),
		node("two", "8", "A100", "cpu", "127", "memory", "2000Gi", "hugepages-2Mi", "16Mi", "hugepages-1Gi", "8Gi"),
		node("half", "4", "A100", "cpu", "1001m", "memory", "1000000001"),
		node("no GPUs", "0", "", "cpu", "1"), node("unknown", "x", "A100", "cpu", "1"),
	}, nil).NodeKinds
	want := []v1alpha1.NodeKind{
		{Product: "A100", GPUs: 4, Nodes: 1, PerGPU: resourceList("cpu", "250m", "memory", "238Mi")},
		{Product: "A100", GPUs: 8, Nodes: 2, PerGPU: resourceList("cpu", "15875m", "memory", "125Gi", "hugepages-2Mi", "2Mi", "hugepages-1Gi", "1Gi")},
		{Product: "T4", GPUs: 1, Nodes: 1, PerGPU: resourceList("cpu", "3920m", "memory", "15Gi")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pool has the taints that all its nodes have.
func TestObserveTaints(t *testing.T) {
	gpu := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	team := corev1.Taint{Key: "team", Value: "vision", Effect: corev1.TaintEffectNoExecute}
	tainted := func(name string, taints ...corev1.Taint) corev1.Node {
		n := newNode(name, "8", "dgx")
		n.Spec.Taints = taints
		return n
	}
	passing := []corev1.Taint{
		{Key: "sluice.dev/repartitioning", Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
	}
	pool := newPool("dgx", "dgx")
	for name, tc := range map[string]struct {
		nodes []corev1.Node
		want  []corev1.Taint
	}{
		"none":           {[]corev1.Node{tainted("a")}, nil},
		"all":            {[]corev1.Node{tainted("a", team, gpu), tainted("b", gpu, team)}, []corev1.Taint{gpu, team}},
		"one of several": {[]corev1.Node{tainted("a", team, gpu), tainted("b", gpu)}, []corev1.Taint{gpu}},
		"a plain node":   {[]corev1.Node{tainted("a", gpu), tainted("b"), tainted("c", gpu)}, nil},
		"passing":        {[]corev1.Node{tainted("a", append(passing, gpu)...)}, []corev1.Taint{gpu}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Observe(&pool, []v1alpha1.NodePool{pool}, tc.nodes, nil).Taints
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
