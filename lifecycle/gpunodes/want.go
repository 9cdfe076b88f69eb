// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpunodes

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// labelGPUPresent is "true" on a node in which NVIDIA's operator found a GPU.
const labelGPUPresent = "nvidia.com/gpu.present"

// Want is the GPUNode that the node should have; nil for none.
func Want(node *corev1.Node, pools []v1alpha1.NodePool) *v1alpha1.GPUNode {
	names := inventory.PoolsOf(node, pools)
	if len(names) != 1 || node.DeletionTimestamp != nil || !hasGPUs(node) {
		return nil
	}
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:   node.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
			// It goes with the node, and keeps nobody from deleting it.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
				Controller: ptr.To(false), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: v1alpha1.GPUNodeSpec{NodePool: names[0]},
	}
}

// hasGPUs tells whether a node has NVIDIA GPUs, or is said to: by NVIDIA's operator or
// GPU feature discovery, or by the device plugin, which may be there without either.
func hasGPUs(node *corev1.Node) bool {
	if node.Labels[labelGPUPresent] == "true" || node.Labels[v1alpha1.LabelMIGCapable] == "true" {
		return true
	}
	if count, err := strconv.Atoi(node.Labels[v1alpha1.LabelGPUCount]); err == nil && count > 0 {
		return true
	}
	for name, quantity := range node.Status.Capacity {
		if quantity.Sign() > 0 && (name == v1alpha1.ResourceNVIDIAGPU || name == v1alpha1.ResourceNVIDIAGPUShared ||
			strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)) {
			return true
		}
	}
	return false
}

// ours tells whether a GPUNode was made here: it says so, and a Node owns it.
func ours(object *v1alpha1.GPUNode) bool {
	return object.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice &&
		slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.Name == object.Name })
}

// of tells whether a GPUNode is that of the very node, and not of an earlier one.
func of(object *v1alpha1.GPUNode, node *corev1.Node) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == node.UID })
}
