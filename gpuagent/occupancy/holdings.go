// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/api/v1alpha1"
)

// draDriver is NVIDIA's driver for dynamic resource allocation.
const draDriver = "gpu.nvidia.com"

// isGPU tells whether a resource stands for GPUs or slices of them, by its name. There
// are others of NVIDIA's: its network cards have theirs.
func isGPU(name corev1.ResourceName) bool {
	return name == v1alpha1.ResourceNVIDIAGPU || strings.HasPrefix(string(name), string(v1alpha1.ResourceNVIDIAGPU)+".") ||
		strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)
}

// Holdings are the kubelet's devices and who has them.
type Holdings struct {
	// Offered is the resource under which each device is offered to pods.
	Offered map[string]corev1.ResourceName
	// Holders are the pods that have each device, by its UUID. A GPU that is shared has
	// several.
	Holders map[string][]types.NamespacedName
	// Counts is how many devices of each resource each pod has.
	Counts map[types.NamespacedName]map[corev1.ResourceName]int
	// Dynamic are pods of which the kubelet tells what they have by dynamic resource
	// allocation. Kubelets before Kubernetes 1.34 tell it of none.
	Dynamic map[types.NamespacedName]bool
	// Unclear are pods that have a device which the kubelet does not name, or of whose
	// name there are two. What they have cannot be told.
	Unclear []types.NamespacedName
}

// holdings reads the kubelet's answers. It is an error if a pod has a GPU whose name is
// no UUID: nobody knows then which one that is.
func holdings(offered *podresourcesv1.AllocatableResourcesResponse, held *podresourcesv1.ListPodResourcesResponse) (Holdings, error) {
	h := Holdings{
		Offered: map[string]corev1.ResourceName{},
		Holders: map[string][]types.NamespacedName{},
		Counts:  map[types.NamespacedName]map[corev1.ResourceName]int{},
		Dynamic: map[types.NamespacedName]bool{},
	}
	for _, devices := range offered.GetDevices() {
		for _, id := range devices.GetDeviceIds() {
			if uuid, ok := uuidOf(id); ok {
				h.Offered[uuid] = corev1.ResourceName(devices.GetResourceName())
			}
		}
	}
	for _, resources := range held.GetPodResources() {
		pod := types.NamespacedName{Namespace: resources.GetNamespace(), Name: resources.GetName()}
		if _, twice := h.Counts[pod]; twice {
			// Two incarnations, of which one is being ended: which one has what?
			h.Unclear = append(h.Unclear, pod)
		}
		if h.Counts[pod] == nil {
			h.Counts[pod] = map[corev1.ResourceName]int{}
		}
		for _, container := range resources.GetContainers() {
			if err := h.add(pod, container); err != nil {
				return Holdings{}, err
			}
		}
	}
	// The kubelet lists pods in another order each time, and what is told shall not
	// change by that.
	for _, pods := range h.Holders {
		slices.SortFunc(pods, byName)
	}
	slices.SortFunc(h.Unclear, byName)
	return h, nil
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (h *Holdings) add(pod types.NamespacedName, container *podresourcesv1.ContainerResources) error {
	for _, devices := range container.GetDevices() {
		for _, id := range devices.GetDeviceIds() {
			uuid, ok := uuidOf(id)
			if !ok {
				if isGPU(corev1.ResourceName(devices.GetResourceName())) {
					return fmt.Errorf("pod %s has the device %q of %s, which is no UUID: the device plugin has to name devices by UUID",
						pod, id, devices.GetResourceName())
				}
				continue
			}
			h.Counts[pod][corev1.ResourceName(devices.GetResourceName())]++
			h.Holders[uuid] = append(h.Holders[uuid], pod)
		}
	}
	for _, dynamic := range container.GetDynamicResources() {
		h.Dynamic[pod] = true
		for _, claimed := range dynamic.GetClaimResources() {
			if claimed.GetDriverName() == draDriver {
				h.Unclear = append(h.Unclear, pod)
			}
		}
	}
	return nil
}

// offers tells whether the kubelet offers GPUs under a resource, whatever its name.
func (h *Holdings) offers(resource corev1.ResourceName) bool {
	for _, name := range h.Offered {
		if name == resource {
			return true
		}
	}
	return false
}

// uuidForm is that of a GPU and of a MIG device. Other plugins put more behind it for the
// parts of a GPU (GPU-…-3), by which no device is found.
var uuidForm = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// uuidOf is the device that an identifier of the kubelet's stands for: replicas of a
// shared one have a number behind it.
func uuidOf(id string) (string, bool) {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid, uuidForm.MatchString(uuid)
}
