// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// whole and cut are the pools of the project of these tests.
func testPools() []facts.Pool {
	return []facts.Pool{
		{
			Name: "whole", Currency: "sluice.dev/gpu-milli.whole", NodeSelector: map[string]string{"pool": "whole"},
			Guaranteed: 1000, Limit: 2000, Boards: []facts.Board{{MemoryMiB: 40960}},
		},
		{
			Name: "cut", Currency: "sluice.dev/gpu-milli.cut", NodeSelector: map[string]string{"pool": "cut"},
			Guaranteed: 500, Limit: 1000,
			Boards: []facts.Board{{MemoryMiB: 40960, Profiles: []facts.Profile{{Name: "1g.5gb", Price: 125}, {Name: "3g.20gb", Price: 500}}}},
		},
	}
}

// poolsOfNodes: node n-whole is of pool whole, and so on; both is of two pools.
func poolsOfNodes(node string) []string {
	return map[string][]string{
		"n-whole": {"whole"}, "n-cut": {"cut"}, "n-other": {"other"}, "both": {"cut", "whole"},
	}[node]
}

func gpuPod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func asks(name, count string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		resources := &p.Spec.Containers[0].Resources
		if resources.Limits == nil {
			resources.Limits, resources.Requests = corev1.ResourceList{}, corev1.ResourceList{}
		}
		resources.Limits[corev1.ResourceName(name)] = resource.MustParse(count)
		resources.Requests[corev1.ResourceName(name)] = resource.MustParse(count)
	}
}

func note(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func TestStrays(t *testing.T) {
	gpu := asks("nvidia.com/gpu", "1")
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	selects := func(pool string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": pool} }
	}
	training := func(p *corev1.Pod) { p.Spec.PriorityClassName = v1alpha1.PriorityClassTrain }
	tests := map[string]struct {
		pod  corev1.Pod
		want []Stray
	}{
		"without GPUs":        {gpuPod("p"), nil},
		"over":                {gpuPod("p", gpu, over, onNode("n-whole")), nil},
		"counted":             {gpuPod("p", gpu, asks("sluice.dev/gpu-milli.whole", "1000"), onNode("n-whole")), nil},
		"in another currency": {gpuPod("p", gpu, asks("sluice.dev/gpu-milli", "1000"), onNode("n-whole"), training), []Stray{{"p", "whole", 1000, true}}},
		"counted in part":     {gpuPod("p", gpu, asks("sluice.dev/gpu-milli.whole", "1"), onNode("n-whole")), []Stray{{"p", "whole", 999, false}}},
		"a GPU":               {gpuPod("p", gpu, onNode("n-whole")), []Stray{{"p", "whole", 1000, false}}},
		"two slices":          {gpuPod("p", asks("nvidia.com/mig-3g.20gb", "2"), onNode("n-cut")), []Stray{{"p", "cut", 1000, false}}},
		"a share":             {gpuPod("p", note("gpu-fraction", "0.3"), onNode("n-cut")), []Stray{{"p", "cut", 300, false}}},
		"memory":              {gpuPod("p", note("gpu-memory", "10241"), onNode("n-whole")), []Stray{{"p", "whole", 251, false}}},
		"of a pool by its selector": {
			gpuPod("p", asks("nvidia.com/mig-1g.5gb", "1"), selects("cut")), []Stray{{"p", "cut", 125, false}},
		},
		"that may come to any":       {gpuPod("p", gpu), []Stray{{"p", "whole", 1000, false}}},
		"that selects other nodes":   {gpuPod("p", gpu, selects("other")), []Stray{{Pod: "p"}}},
		"on a node of another pool":  {gpuPod("p", gpu, onNode("n-other")), []Stray{{Pod: "p"}}},
		"on a node of no pool":       {gpuPod("p", gpu, onNode("both")), []Stray{{Pod: "p"}}},
		"of a pool that it had":      {gpuPod("p", gpu, asks("sluice.dev/gpu-milli.old", "1000"), onNode("n-other")), nil},
		"that asks for I know not":   {gpuPod("p", note(v1alpha1.AnnotationGPU, "half"), onNode("n-cut")), []Stray{{"p", "cut", 1000, false}}},
		"a slice that no board has":  {gpuPod("p", asks("nvidia.com/mig-7g.80gb", "1"), onNode("n-cut")), []Stray{{"p", "cut", 1000, false}}},
		"a replica of an odd device": {gpuPod("p", asks("nvidia.com/gpu.shared", "2"), onNode("n-cut")), []Stray{{"p", "cut", 2000, false}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Strays([]corev1.Pod{tc.pod}, testPools(), poolsOfNodes)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A pool whose boards nobody has seen yet has no prices, and what was admitted is
// not suspected for it.
func TestWithoutBoardsAdmissionIsBelieved(t *testing.T) {
	pools := testPools()
	pools[1].Boards = nil
	slice := asks("nvidia.com/mig-3g.20gb", "1")
	got := Strays([]corev1.Pod{
		gpuPod("old", slice, onNode("n-cut")), gpuPod("new", slice, asks("sluice.dev/gpu-milli.cut", "500"), onNode("n-cut")),
	}, pools, poolsOfNodes)
	if diff := cmp.Diff([]Stray{{"old", "cut", 1000, false}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
