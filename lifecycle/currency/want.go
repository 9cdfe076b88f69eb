// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package currency

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/facts"
)

// MilliPerGPU is what one physical GPU is worth.
const MilliPerGPU = 1000

// Want is which of Sluice's resources the node should have, and how much: none
// where no pool, or more than one, selects it. It fails where the node belongs
// to a pool and its GPUs cannot be told.
func Want(node *corev1.Node, observed *v1alpha1.GPUNode, pools []v1alpha1.NodePool) (corev1.ResourceList, error) {
	names := inventory.PoolsOf(node, pools)
	if len(names) != 1 {
		return nil, nil
	}
	machine, err := inventory.Describe(node, observed)
	if err != nil {
		return nil, err
	}
	for i := range pools {
		if pools[i].Name == names[0] && machine.GPUs > 0 {
			return corev1.ResourceList{
				facts.Currency(&pools[i]): *resource.NewQuantity(int64(machine.GPUs)*MilliPerGPU, resource.DecimalSI),
			}, nil
		}
	}
	return nil, nil
}

// Patch is the change that makes have what is wanted: a value for each resource
// to set, nil for each to take away. It is empty where nothing is to be done.
// Only Sluice's own resources are looked at.
func Patch(have, want corev1.ResourceList) map[corev1.ResourceName]any {
	patch := map[corev1.ResourceName]any{}
	for name := range have {
		if _, wanted := want[name]; !wanted && isOurs(name) {
			patch[name] = nil
		}
	}
	for name, quantity := range want {
		if present, ok := have[name]; !ok || present.Cmp(quantity) != 0 {
			patch[name] = quantity.String()
		}
	}
	return patch
}

func isOurs(name corev1.ResourceName) bool {
	return name == v1alpha1.ResourceGPUMilli ||
		strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".")
}
