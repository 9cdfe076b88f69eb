// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func newPool(name string, scheduler v1alpha1.Scheduler) v1alpha1.NodePool {
	return v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"pool": name}, Scheduler: scheduler},
	}
}

func newNode(pool, count string) *corev1.Node {
	labels := map[string]string{"pool": pool, v1alpha1.LabelGPUProduct: "A100"}
	if count != "" {
		labels[v1alpha1.LabelGPUCount] = count
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
}

func newResourceList(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestDesired(t *testing.T) {
	dgx, queued := newPool("dgx", v1alpha1.SchedulerKube), newPool("queued", v1alpha1.SchedulerKueue)
	other := newPool("other", v1alpha1.SchedulerKube)
	other.Spec.NodeSelector = dgx.Spec.NodeSelector
	tests := map[string]struct {
		node  *corev1.Node
		pools []v1alpha1.NodePool
		want  corev1.ResourceList
		fails bool
	}{
		"kube-scheduler cannot tell pools apart": {node: newNode("dgx", "8"), pools: []v1alpha1.NodePool{dgx, queued}, want: newResourceList("sluice.dev/gpu-milli.dgx", "8000", "sluice.dev/guaranteed-milli.dgx", "8000")},
		"kueue can":                              {node: newNode("queued", "4"), pools: []v1alpha1.NodePool{dgx, queued}, want: newResourceList("sluice.dev/gpu-milli", "4000", "sluice.dev/guaranteed-milli.queued", "4000")},
		"in no pool":                             {node: newNode("other", "8"), pools: []v1alpha1.NodePool{dgx}},
		"in two, so in neither":                  {node: newNode("dgx", "8"), pools: []v1alpha1.NodePool{dgx, other}},
		"when nothing is said":                   {node: newNode("dgx", ""), pools: []v1alpha1.NodePool{dgx}, fails: true},
		"without GPUs":                           {node: newNode("dgx", "0"), pools: []v1alpha1.NodePool{dgx}},
		"with a count that lies":                 {node: newNode("dgx", "many"), pools: []v1alpha1.NodePool{dgx}, fails: true},
		"a bad count, in no pool":                {node: newNode("other", "many"), pools: []v1alpha1.NodePool{dgx}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Desired(tc.node, nil, tc.pools)
			if (err != nil) != tc.fails {
				t.Fatalf("err = %v, want one: %v", err, tc.fails)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	type patch = map[corev1.ResourceName]any
	tests := map[string]struct {
		have, want corev1.ResourceList
		patch      patch
	}{
		"missing":                  {newResourceList("cpu", "8"), newResourceList("sluice.dev/gpu-milli", "8000"), patch{"sluice.dev/gpu-milli": "8k"}},
		"zeroed by a node's start": {newResourceList("sluice.dev/gpu-milli", "0"), newResourceList("sluice.dev/gpu-milli", "8000"), patch{"sluice.dev/gpu-milli": "8k"}},
		"right, otherwise written": {newResourceList("sluice.dev/gpu-milli", "8000"), newResourceList("sluice.dev/gpu-milli", "8k"), patch{}},
		"of another pool":          {newResourceList("sluice.dev/gpu-milli.old", "8k"), newResourceList("sluice.dev/gpu-milli.new", "8k"), patch{"sluice.dev/gpu-milli.old": nil, "sluice.dev/gpu-milli.new": "8k"}},
		"no longer in a pool":      {newResourceList("sluice.dev/gpu-milli", "8k", "sluice.dev/guaranteed-milli", "8k", "nvidia.com/gpu", "8"), nil, patch{"sluice.dev/gpu-milli": nil, "sluice.dev/guaranteed-milli": nil}},
		"not ours, though alike":   {newResourceList("sluice.dev/gpu-milliways", "8"), nil, patch{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.patch, Patch(tc.have, tc.want)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
