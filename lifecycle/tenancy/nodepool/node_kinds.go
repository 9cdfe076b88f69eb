// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// addNodeKinds adds a node to the kinds of its GPU models: to one with its number of GPUs, or a new one. A node
// that the kubelet has not described yet is left out.
func addNodeKinds(kinds []v1alpha1.NodeKind, node *corev1.Node, summary *inventory.Summary) []v1alpha1.NodeKind {
	if summary.GPUs == 0 {
		return kinds
	}
	offered := perGPU(node.Status.Allocatable, int64(summary.GPUs))
	if len(offered) == 0 {
		return kinds
	}
	for i := range summary.GPUModels {
		product := summary.GPUModels[i].Name
		at := slices.IndexFunc(kinds, func(kind v1alpha1.NodeKind) bool { return kind.Product == product && kind.GPUs == summary.GPUs })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, v1alpha1.NodeKind{Product: product, GPUs: summary.GPUs, PerGPU: corev1.ResourceList{}})
		}
		kind := &kinds[at]
		kind.Nodes++
		for name, amount := range offered {
			if least, ok := kind.PerGPU[name]; !ok || amount.Cmp(least) < 0 {
				kind.PerGPU[name] = amount
			}
		}
	}
	return kinds
}

// perGPU returns a node's resources of [v1alpha1.IsNodeResource] divided by its GPUs, rounded down to
// thousandths of a CPU or to MiB. Those of which the node offers none are left out.
func perGPU(allocatable corev1.ResourceList, gpus int64) corev1.ResourceList {
	result := corev1.ResourceList{}
	for name, quantity := range allocatable {
		var amount resource.Quantity
		switch {
		case !v1alpha1.IsNodeResource(name):
			continue
		case name == corev1.ResourceCPU:
			amount = *resource.NewMilliQuantity(quantity.MilliValue()/gpus, resource.DecimalSI)
		default:
			amount = *resource.NewQuantity(quantity.Value()/gpus>>20<<20, resource.BinarySI)
		}
		if amount.Sign() > 0 {
			result[name] = amount
		}
	}
	return result
}

func compareNodeKinds(a, b v1alpha1.NodeKind) int {
	return cmp.Or(strings.Compare(a.Product, b.Product), cmp.Compare(a.GPUs, b.GPUs))
}

// maxTaints is the most that the schema allows.
const maxTaints = 16

// lastingTaints returns the node's taints that keep pods off it for longer than some time: those of
// Kubernetes' node lifecycle and of Sluice come and go.
func lastingTaints(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule &&
			!strings.HasPrefix(taint.Key, "node.kubernetes.io/") && !strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/") &&
			!strings.HasPrefix(taint.Key, "sluice.dev/") {
			taints = append(taints, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return taints[:min(len(taints), maxTaints)]
}

// retainTaints returns the taints that are in both lists.
func retainTaints(taints, others []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(taint corev1.Taint) bool { return !slices.Contains(others, taint) })
}
