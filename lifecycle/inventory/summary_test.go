// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

const productA100 = "NVIDIA-A100-SXM4-40GB"

func newNode(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", Labels: labels}}
}

func featureLabels(product, count, memory string) map[string]string {
	return map[string]string{
		v1alpha1.LabelGPUProduct: product, v1alpha1.LabelGPUCount: count, v1alpha1.LabelGPUMemory: memory,
	}
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	labels[key] = value
	return labels
}

func TestSummarizeNode(t *testing.T) {
	agent := func(gpus ...v1alpha1.ObservedGPU) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{GPUs: gpus}}
	}
	model := func(product string, gpus int32, memory int64, profiles ...v1alpha1.MIGProfile) v1alpha1.GPUModel {
		return v1alpha1.GPUModel{Name: product, GPUs: gpus, MemoryMiB: memory, MIGProfiles: profiles}
	}
	tests := map[string]struct {
		node     *corev1.Node
		observed *v1alpha1.GPUNode
		named    []v1alpha1.GPUResource
		want     inventory.Summary
		wrong    []string
	}{
		"nothing said": {node: newNode(nil), wrong: []string{"dgx-1", v1alpha1.LabelGPUCount, "GPU feature discovery"}},
		"with media extensions, as a label writes them": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), "nvidia.com/mig-1g.5gb.me.count", "1"), "nvidia.com/mig-1g.5gb.me.memory", "4864")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960, "1g.5gb+me")}},
		},
		"a profile that is none": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), "nvidia.com/mig-bogus.count", "1"), "nvidia.com/mig-1c.3g.20gb.count", "1")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}, Warnings: []string{
				"node dgx-1: label nvidia.com/mig-1c.3g.20gb.count is not a GPU instance profile",
				"node dgx-1: label nvidia.com/mig-bogus.count is not a GPU instance profile",
			}},
		},
		"whole": {
			node: newNode(featureLabels(productA100, "8", "40960")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}},
		},
		"partitioned, strategy mixed": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), "nvidia.com/mig-3g.20gb.count", "8"), "nvidia.com/mig-1g.5gb.count", "16")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960, "1g.5gb", "3g.20gb")}},
		},
		"time-sliced: the product's suffix goes, the count is physical": {
			node: newNode(withLabel(withLabel(featureLabels(productA100+"-SHARED", "8", "40960"), v1alpha1.LabelGPUReplicas, "4"), v1alpha1.LabelGPUSharingStrategy, "time-slicing")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{withReplicas(model(productA100, 8, 40960), 4, "nvidia.com/gpu")}},
		},
		"MPS under another name": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), v1alpha1.LabelGPUReplicas, "10"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{withReplicas(model(productA100, 8, 40960), 10, "nvidia.com/gpu.shared")}},
		},
		"not divided, as its labels report": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), v1alpha1.LabelGPUReplicas, "1"), v1alpha1.LabelGPUSharingStrategy, "none")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}},
		},
		"divided into a word": {
			node: newNode(withLabel(withLabel(featureLabels(productA100, "8", "40960"), v1alpha1.LabelGPUReplicas, "many"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}},
		},
		"GPUs of the agent, replicas of the labels": {
			node:     newNode(withLabel(withLabel(featureLabels(productA100+"-SHARED", "8", "40960"), v1alpha1.LabelGPUReplicas, "2"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			observed: agent(v1alpha1.ObservedGPU{UUID: "GPU-1", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960}),
			want:     inventory.Summary{GPUs: 1, GPUModels: []v1alpha1.GPUModel{withReplicas(model(productA100, 1, 40960), 2, "nvidia.com/gpu")}},
		},
		"the agent knows better than the labels": {
			node: newNode(featureLabels(productA100, "3", "1")),
			observed: agent(
				v1alpha1.ObservedGPU{UUID: "GPU-1", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb"}},
				v1alpha1.ObservedGPU{UUID: "GPU-2", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40536},
				v1alpha1.ObservedGPU{UUID: "GPU-3", Model: "NVIDIA H100 NVL", MemoryMiB: 95830},
			),
			want: inventory.Summary{GPUs: 3, GPUModels: []v1alpha1.GPUModel{model(productA100, 2, 40536, "1g.5gb"), model("NVIDIA-H100-NVL", 1, 95830)}},
		},
		"an agent that has not reported yet": {
			node: newNode(featureLabels(productA100, "8", "40960")), observed: agent(),
			want: inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}},
		},
		"no product, no memory": {
			node: newNode(map[string]string{v1alpha1.LabelGPUCount: "2"}),
			want: inventory.Summary{GPUs: 2, GPUModels: []v1alpha1.GPUModel{model("unknown", 2, 0)}},
		},
		"GPUs of the pool's own names": {
			node:  withCapacity(newNode(nil), "amd.com/gpu", "4", "example.com/half", "5", "nvidia.com/gpu", "1"),
			named: []v1alpha1.GPUResource{{Name: "amd.com/gpu", GPUs: resource.MustParse("1")}, {Name: "example.com/half", GPUs: resource.MustParse("500m")}, {Name: "example.com/gone", GPUs: resource.MustParse("1")}},
			want:  inventory.Summary{GPUs: 6, GPUModels: []v1alpha1.GPUModel{model("amd.com/gpu", 4, 0), model("example.com/half", 2, 0)}},
		},
		"renamed GPUs, which labels count": {
			node:  withCapacity(newNode(featureLabels(productA100, "8", "40960")), "nvidia.com/a100", "4"),
			named: []v1alpha1.GPUResource{{Name: "nvidia.com/a100", GPUs: resource.MustParse("1")}},
			want:  inventory.Summary{GPUs: 8, GPUModels: []v1alpha1.GPUModel{model(productA100, 8, 40960)}},
		},
		"none of the pool's own names": {
			node: newNode(nil), named: []v1alpha1.GPUResource{{Name: "amd.com/gpu", GPUs: resource.MustParse("1")}}, wrong: []string{v1alpha1.LabelGPUCount},
		},
		"zero":              {node: newNode(featureLabels(productA100, "0", "40960"))},
		"a word for count":  {node: newNode(featureLabels(productA100, "eight", "40960")), wrong: []string{"dgx-1", v1alpha1.LabelGPUCount, "eight", "0 to 1024"}},
		"negative":          {node: newNode(featureLabels(productA100, "-1", "40960")), wrong: []string{"-1"}},
		"more than any has": {node: newNode(featureLabels(productA100, "99999999999999", "40960")), wrong: []string{"99999999999999"}},
		"strategy single counts slices": {
			node:  newNode(featureLabels(productA100+"-MIG-1g.5gb", "56", "4864")),
			wrong: []string{"dgx-1", "-MIG-1g.5gb", "strategy mixed"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			node := tc.node.DeepCopy()
			if node.Labels == nil {
				node.Labels = map[string]string{}
			}
			node.Labels["pool"] = "own"
			own, other := newPool("own", map[string]string{"pool": "own"}), newPool("other", map[string]string{"pool": "other"})
			own.Spec.Resources = tc.named
			other.Spec.Resources = []v1alpha1.GPUResource{{Name: "nvidia.com/gpu", GPUs: resource.MustParse("1")}}
			got, err := inventory.SummarizeNode(node, tc.observed, other, own)
			if len(tc.wrong) > 0 {
				for _, want := range tc.wrong {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("err = %v, want it to say %q", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func withCapacity(node *corev1.Node, of ...string) *corev1.Node {
	node.Status.Capacity = corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		node.Status.Capacity[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return node
}

func withReplicas(model v1alpha1.GPUModel, replicas int32, resource string) v1alpha1.GPUModel {
	model.Replicas, model.ReplicaResource = replicas, resource
	return model
}

// A replica that is worth two things is worth nothing, in any order of the nodes.
func TestCombineSharedGPUs(t *testing.T) {
	machine := func(replicas int32) inventory.Summary {
		model := v1alpha1.GPUModel{Name: productA100, GPUs: 1}
		if replicas > 0 {
			model = withReplicas(model, replicas, "nvidia.com/gpu")
		}
		return inventory.Summary{GPUs: 1, GPUModels: []v1alpha1.GPUModel{model}}
	}
	tests := map[string]struct {
		replicas []int32
		want     int32
		remark   string
	}{
		"alike":         {[]int32{4, 4, 4}, 4, ""},
		"not at all":    {[]int32{0, 0}, 0, ""},
		"differently":   {[]int32{2, 4, 4}, 0, "into 2 nvidia.com/gpu, into 4 nvidia.com/gpu"},
		"the other way": {[]int32{4, 4, 2}, 0, "into 2 nvidia.com/gpu, into 4 nvidia.com/gpu"},
		"some not":      {[]int32{4, 0, 4}, 0, "into 4 nvidia.com/gpu, not at all"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var machines []inventory.Summary
			for _, replicas := range tc.replicas {
				machines = append(machines, machine(replicas))
			}
			got := inventory.Combine(machines)
			if got.GPUModels[0].Replicas != tc.want || (tc.want == 0) != (got.GPUModels[0].ReplicaResource == "") {
				t.Errorf("model = %+v, want %d replicas", got.GPUModels[0], tc.want)
			}
			if remarks := strings.Join(got.Warnings, "; "); (remarks == "") != (tc.remark == "") || !strings.Contains(remarks, tc.remark) {
				t.Errorf("remarks = %q, want %q", remarks, tc.remark)
			}
		})
	}
}

func newPool(name string, selector map[string]string) v1alpha1.NodePool {
	return v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{NodeSelector: selector}}
}

func TestPoolsForNode(t *testing.T) {
	pools := []v1alpha1.NodePool{
		newPool("b", map[string]string{"pool": "dgx"}),
		newPool("a", map[string]string{"pool": "dgx", "rack": "1"}),
		newPool("empty", nil),
	}
	tests := map[string]struct {
		labels map[string]string
		want   []string
	}{
		"no label":        {nil, nil},
		"one":             {map[string]string{"pool": "dgx"}, []string{"b"}},
		"two, in order":   {map[string]string{"pool": "dgx", "rack": "1"}, []string{"a", "b"}},
		"only part of it": {map[string]string{"rack": "1"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inventory.PoolsForNode(newNode(tc.labels), pools)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestCombineDoesNotModifyItsInput(t *testing.T) {
	one := inventory.Summary{GPUs: 1, GPUModels: []v1alpha1.GPUModel{{Name: productA100, GPUs: 1, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb"}}}}
	two := inventory.Summary{GPUs: 2, GPUModels: []v1alpha1.GPUModel{{Name: productA100, GPUs: 2, MIGProfiles: []v1alpha1.MIGProfile{"3g.20gb"}}}}
	all := inventory.Combine([]inventory.Summary{one, two, one})
	if all.GPUs != 4 || len(all.GPUModels) != 1 || all.GPUModels[0].GPUs != 4 {
		t.Errorf("Combine = %+v", all)
	}
	if diff := cmp.Diff([]v1alpha1.MIGProfile{"1g.5gb", "3g.20gb"}, all.GPUModels[0].MIGProfiles); diff != "" {
		t.Errorf("profiles (-want +got)\n%s", diff)
	}
	if one.GPUModels[0].GPUs != 1 || len(one.GPUModels[0].MIGProfiles) != 1 {
		t.Errorf("Combine changed its argument: %+v", one)
	}
}

func TestCombineReportsOldestDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		versions []string
		want     string
	}{
		"by numbers, not by letters":     {[]string{"1000.1", "615.12.03", "615.9"}, "615.9"},
		"one is unknown":                 {[]string{"615.1", "", "550.1"}, ""},
		"one is no version":              {[]string{"615.1", "vGPU"}, "vGPU"},
		"the first is unknown":           {[]string{"", "615.1"}, ""},
		"a shorter one is older":         {[]string{"615.1.1", "615.1"}, "615.1"},
		"no nodes have no driver at all": {nil, ""},
	} {
		summaries := []inventory.Summary{{}} // a node without GPUs does not count
		for _, version := range tt.versions {
			summaries = append(summaries, inventory.Summary{GPUs: 1, DriverVersion: version})
		}
		if got := inventory.Combine(summaries).DriverVersion; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
