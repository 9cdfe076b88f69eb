// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MaxNodePoolName is the largest length of a NodePool's name. A longer name would not fit into a
// resource name after "guaranteed-milli.".
const MaxNodePoolName = 63 - len("guaranteed-milli.")

// ResourceGPUMilliFor returns the GPU quota unit of one pool, for quotas that do not distinguish
// node pools: sluice.dev/gpu-milli.<pool>.
func ResourceGPUMilliFor(pool string) corev1.ResourceName {
	return ResourceGPUMilli + "." + corev1.ResourceName(pool)
}

// GuaranteedMilli returns the resource that counts pods that cannot be preempted beside a GPU quota
// unit: sluice.dev/guaranteed-milli.<pool> for sluice.dev/gpu-milli.<pool>.
func GuaranteedMilli(gpuMilli corev1.ResourceName) corev1.ResourceName {
	return ResourceGuaranteedMilli + corev1.ResourceName(strings.TrimPrefix(string(gpuMilli), string(ResourceGPUMilli)))
}

// LimitMilli returns the GPU quota unit that is charged beside a resource that counts pods that cannot be
// preempted, of the units that a quota counts: that of the same pool, else the one that pools share. ok reports
// whether the resource is one.
func LimitMilli(guaranteedMilli corev1.ResourceName, counts func(corev1.ResourceName) bool) (unit corev1.ResourceName, ok bool) {
	unit = ResourceGPUMilli + corev1.ResourceName(strings.TrimPrefix(string(guaranteedMilli), string(ResourceGuaranteedMilli)))
	if !counts(unit) {
		unit = ResourceGPUMilli
	}
	return unit, IsGuaranteedMilli(guaranteedMilli)
}

// IsGPUMilli reports whether a resource is the GPU quota unit, of one pool or of several.
func IsGPUMilli(name corev1.ResourceName) bool {
	_, ok := cutPool(name, ResourceGPUMilli)
	return ok
}

// IsGuaranteedMilli reports whether a resource counts pods that cannot be preempted, of one pool or of
// several.
func IsGuaranteedMilli(name corev1.ResourceName) bool {
	_, ok := cutPool(name, ResourceGuaranteedMilli)
	return ok
}

// IsGPUCharge reports whether admission charges a pod in the resource: IsGPUMilli or IsGuaranteedMilli.
func IsGPUCharge(name corev1.ResourceName) bool { return IsGPUMilli(name) || IsGuaranteedMilli(name) }

// NodePoolOf returns the node pool of a resource of IsGPUCharge; empty if several pools share it.
func NodePoolOf(name corev1.ResourceName) string {
	if pool, ok := cutPool(name, ResourceGuaranteedMilli); ok {
		return pool
	}
	pool, _ := cutPool(name, ResourceGPUMilli)
	return pool
}

// cutPool returns what follows unit and a dot, and whether the resource is the unit, of one pool or of
// several.
func cutPool(name, unit corev1.ResourceName) (pool string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), string(unit))
	if !ok || rest == "" {
		return "", ok
	}
	return strings.CutPrefix(rest, ".")
}
