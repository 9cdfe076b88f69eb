// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

const a100 = "NVIDIA-A100-SXM4-40GB"

func node(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", Labels: labels}}
}

func feature(product, count, memory string) map[string]string {
	return map[string]string{
		v1alpha1.LabelGPUProduct: product, v1alpha1.LabelGPUCount: count, v1alpha1.LabelGPUMemory: memory,
	}
}

func with(labels map[string]string, key, value string) map[string]string {
	labels[key] = value
	return labels
}

func TestDescribe(t *testing.T) {
	agent := func(gpus ...v1alpha1.ObservedGPU) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{GPUs: gpus}}
	}
	board := func(product string, gpus int32, memory int64, profiles ...v1alpha1.MIGProfile) v1alpha1.Board {
		return v1alpha1.Board{Product: product, GPUs: gpus, MemoryMiB: memory, MIGProfiles: profiles}
	}
	tests := map[string]struct {
		node     *corev1.Node
		observed *v1alpha1.GPUNode
		want     inventory.Machine
		wrong    []string
	}{
		"nothing said": {node: node(nil), wrong: []string{"dgx-1", v1alpha1.LabelGPUCount, "GPU feature discovery"}},
		"with media extensions, as a label writes them": {
			node: node(with(with(feature(a100, "8", "40960"), "nvidia.com/mig-1g.5gb.me.count", "1"), "nvidia.com/mig-1g.5gb.me.memory", "4864")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960, "1g.5gb+me")}},
		},
		"a profile that is none": {
			node: node(with(with(feature(a100, "8", "40960"), "nvidia.com/mig-bogus.count", "1"), "nvidia.com/mig-1c.3g.20gb.count", "1")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960)}, Remarks: []string{
				"node dgx-1: label nvidia.com/mig-1c.3g.20gb.count names no profile of GPU instances",
				"node dgx-1: label nvidia.com/mig-bogus.count names no profile of GPU instances",
			}},
		},
		"whole": {
			node: node(feature(a100, "8", "40960")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960)}},
		},
		"cut, strategy mixed": {
			node: node(with(with(feature(a100, "8", "40960"), "nvidia.com/mig-3g.20gb.count", "8"), "nvidia.com/mig-1g.5gb.count", "16")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960, "1g.5gb", "3g.20gb")}},
		},
		"time-sliced: the product's suffix goes, the count is physical": {
			node: node(with(with(feature(a100+"-SHARED", "8", "40960"), v1alpha1.LabelGPUReplicas, "4"), v1alpha1.LabelGPUSharingStrategy, "time-slicing")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{divided(board(a100, 8, 40960), 4, "nvidia.com/gpu")}},
		},
		"MPS under another name": {
			node: node(with(with(feature(a100, "8", "40960"), v1alpha1.LabelGPUReplicas, "10"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{divided(board(a100, 8, 40960), 10, "nvidia.com/gpu.shared")}},
		},
		"not divided, and it says so": {
			node: node(with(with(feature(a100, "8", "40960"), v1alpha1.LabelGPUReplicas, "1"), v1alpha1.LabelGPUSharingStrategy, "none")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960)}},
		},
		"divided into a word": {
			node: node(with(with(feature(a100, "8", "40960"), v1alpha1.LabelGPUReplicas, "many"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960)}},
		},
		"what the agent says, divided as the labels say": {
			node:     node(with(with(feature(a100+"-SHARED", "8", "40960"), v1alpha1.LabelGPUReplicas, "2"), v1alpha1.LabelGPUSharingStrategy, "mps")),
			observed: agent(v1alpha1.ObservedGPU{UUID: "GPU-1", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960}),
			want:     inventory.Machine{GPUs: 1, Boards: []v1alpha1.Board{divided(board(a100, 1, 40960), 2, "nvidia.com/gpu")}},
		},
		"the agent knows better than the labels": {
			node: node(feature(a100, "3", "1")),
			observed: agent(
				v1alpha1.ObservedGPU{UUID: "GPU-1", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb"}},
				v1alpha1.ObservedGPU{UUID: "GPU-2", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40536},
				v1alpha1.ObservedGPU{UUID: "GPU-3", Model: "NVIDIA H100 NVL", MemoryMiB: 95830},
			),
			want: inventory.Machine{GPUs: 3, Boards: []v1alpha1.Board{board(a100, 2, 40536, "1g.5gb"), board("NVIDIA-H100-NVL", 1, 95830)}},
		},
		"an agent that has not reported yet": {
			node: node(feature(a100, "8", "40960")), observed: agent(),
			want: inventory.Machine{GPUs: 8, Boards: []v1alpha1.Board{board(a100, 8, 40960)}},
		},
		"no product, no memory": {
			node: node(map[string]string{v1alpha1.LabelGPUCount: "2"}),
			want: inventory.Machine{GPUs: 2, Boards: []v1alpha1.Board{board("unknown", 2, 0)}},
		},
		"zero":              {node: node(feature(a100, "0", "40960"))},
		"a word for count":  {node: node(feature(a100, "eight", "40960")), wrong: []string{"dgx-1", v1alpha1.LabelGPUCount, "eight", "0 to 1024"}},
		"negative":          {node: node(feature(a100, "-1", "40960")), wrong: []string{"-1"}},
		"more than any has": {node: node(feature(a100, "99999999999999", "40960")), wrong: []string{"99999999999999"}},
		"strategy single counts slices": {
			node:  node(feature(a100+"-MIG-1g.5gb", "56", "4864")),
			wrong: []string{"dgx-1", "-MIG-1g.5gb", "strategy mixed"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := inventory.Describe(tc.node, tc.observed)
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

func divided(board v1alpha1.Board, replicas int32, resource string) v1alpha1.Board {
	board.Replicas, board.ReplicaResource = replicas, resource
	return board
}

// A replica that is worth two things is worth nothing, in any order of the nodes.
func TestCombineOfDividedBoards(t *testing.T) {
	machine := func(replicas int32) inventory.Machine {
		board := v1alpha1.Board{Product: a100, GPUs: 1}
		if replicas > 0 {
			board = divided(board, replicas, "nvidia.com/gpu")
		}
		return inventory.Machine{GPUs: 1, Boards: []v1alpha1.Board{board}}
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
			var machines []inventory.Machine
			for _, replicas := range tc.replicas {
				machines = append(machines, machine(replicas))
			}
			got := inventory.Combine(machines)
			if got.Boards[0].Replicas != tc.want || (tc.want == 0) != (got.Boards[0].ReplicaResource == "") {
				t.Errorf("board = %+v, want %d replicas", got.Boards[0], tc.want)
			}
			if remarks := strings.Join(got.Remarks, "; "); (remarks == "") != (tc.remark == "") || !strings.Contains(remarks, tc.remark) {
				t.Errorf("remarks = %q, want %q", remarks, tc.remark)
			}
		})
	}
}

func pool(name string, selector map[string]string) v1alpha1.NodePool {
	return v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{NodeSelector: selector}}
}

func TestPoolsOf(t *testing.T) {
	pools := []v1alpha1.NodePool{
		pool("b", map[string]string{"pool": "dgx"}),
		pool("a", map[string]string{"pool": "dgx", "rack": "1"}),
		pool("empty", nil),
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
			if diff := cmp.Diff(tc.want, inventory.PoolsOf(node(tc.labels), pools)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestCombineChangesNothingItWasGiven(t *testing.T) {
	one := inventory.Machine{GPUs: 1, Boards: []v1alpha1.Board{{Product: a100, GPUs: 1, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb"}}}}
	two := inventory.Machine{GPUs: 2, Boards: []v1alpha1.Board{{Product: a100, GPUs: 2, MIGProfiles: []v1alpha1.MIGProfile{"3g.20gb"}}}}
	all := inventory.Combine([]inventory.Machine{one, two, one})
	if all.GPUs != 4 || len(all.Boards) != 1 || all.Boards[0].GPUs != 4 {
		t.Errorf("Combine = %+v", all)
	}
	if diff := cmp.Diff([]v1alpha1.MIGProfile{"1g.5gb", "3g.20gb"}, all.Boards[0].MIGProfiles); diff != "" {
		t.Errorf("profiles (-want +got)\n%s", diff)
	}
	if one.Boards[0].GPUs != 1 || len(one.Boards[0].MIGProfiles) != 1 {
		t.Errorf("Combine changed its argument: %+v", one)
	}
}
