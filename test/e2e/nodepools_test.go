// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func newNodePool(name string) *v1alpha1.NodePool {
	return &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestNodePoolStatus(t *testing.T) {
	// The agents report all profiles that the GPU model supports, although no GPU is
	// partitioned yet.
	profiles := []v1alpha1.MIGProfile{"1g.10gb", "1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	want := map[string]v1alpha1.GPUModel{
		"dgx":     {Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8, MIGProfiles: profiles},
		"dgx-mig": {Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8, MIGProfiles: profiles},
	}
	for name, model := range want {
		eventually(t, func() error {
			p := newNodePool(name)
			if err := refresh(t, p); err != nil {
				return err
			}
			if p.Status.Nodes != 1 || p.Status.GPUs != 8 {
				return fmt.Errorf("%s has %d nodes, %d GPUs", name, p.Status.Nodes, p.Status.GPUs)
			}
			if diff := cmp.Diff([]v1alpha1.GPUModel{model}, p.Status.Products); diff != "" {
				return fmt.Errorf("GPU models of %s (-want +got)\n%s", name, diff)
			}
			return checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

// A node that two node pools select belongs to neither, and both report the conflict.
func TestNodeSelectedByTwoNodePools(t *testing.T) {
	conflicting := newNodePool("conflicting")
	conflicting.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "dgx-1"}
	conflicting.Spec.Scheduler = v1alpha1.SchedulerKube
	create(t, conflicting)
	for name, other := range map[string]string{"dgx": "conflicting", "conflicting": "dgx"} {
		eventually(t, func() error {
			p := newNodePool(name)
			if err := refresh(t, p); err != nil {
				return err
			}
			if err := checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeSelectorConflict); err != nil {
				return err
			}
			message := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady).Message
			if !strings.Contains(message, "dgx-1 (also in "+other+")") || p.Status.Nodes != 0 {
				return fmt.Errorf("pool %s has %d nodes and the message %q", name, p.Status.Nodes, message)
			}
			return nil
		})
	}
	eventually(t, func() error { return checkGPUCapacity(t, "dgx-1", "") })
	deleteAndWait(t, conflicting)
	eventually(t, func() error { return checkGPUCapacity(t, "dgx-1", "sluice.dev/gpu-milli.dgx") })
}

// Lifecycle restores the GPU capacity of a node after it was removed, set to zero or
// doubled.
func TestGPUCapacityIsRestored(t *testing.T) {
	const name = "sluice.dev/gpu-milli.dgx-mig"
	for i, damage := range []string{`null`, `"0"`, `"16k"`, `"0"`} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-2"}}
		damaged := name
		if i%2 == 1 {
			damaged = string(v1alpha1.GuaranteedMilli(name))
		}
		patch := []byte(`{"status":{"capacity":{"` + damaged + `":` + damage + `},"allocatable":{"` + damaged + `":` + damage + `}}}`)
		if err := sharedCluster.adminClient.Status().Patch(t.Context(), node, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return checkGPUCapacity(t, "dgx-2", name) })
	}
}

// checkGPUCapacity returns an error unless the node has 8000 of the GPU quota unit and of the unit of the
// guarantee beside it, and no other resource of Sluice, in capacity and allocatable. An empty name stands
// for no resource at all.
func checkGPUCapacity(t *testing.T, nodeName string, want corev1.ResourceName) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := sharedCluster.adminClient.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		return err
	}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		found := 0
		for name, quantity := range list {
			if !strings.HasPrefix(string(name), "sluice.dev/") {
				continue
			}
			if name != want && name != v1alpha1.GuaranteedMilli(want) || quantity.Cmp(resource.MustParse("8000")) != 0 {
				return fmt.Errorf("node %s has %s of %s, want 8000 of %q and nothing else", nodeName, quantity.String(), name, want)
			}
			found++
		}
		if want == "" && found > 0 || want != "" && found != 2 {
			return fmt.Errorf("node %s lacks %q: %v", nodeName, want, list)
		}
	}
	return nil
}
