// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// architecture holds the labels of GPU feature discovery for a GPU architecture.
type architecture struct {
	mark         string // part of the product name
	name         string
	major, minor string
}

var architectures = []architecture{
	{"A100", "ampere", "8", "0"},
	{"A30", "ampere", "8", "0"},
	{"H100", "hopper", "9", "0"},
	{"GH200", "hopper", "9", "0"},
	{"H200", "hopper", "9", "0"},
	{"B200", "blackwell", "10", "0"},
}

// Product returns the value of the product label for the driver's name of a GPU.
func Product(name string) string { return strings.ReplaceAll(name, " ", "-") }

// IsInstanceLabel reports whether feature discovery writes this label for a MIG profile. It
// removes the label with the profile's last instance.
func IsInstanceLabel(key string) bool {
	return strings.HasPrefix(key, v1alpha1.ResourceNVIDIAMIGPrefix)
}

// Labels returns the labels that feature discovery writes on a server of this model: the
// number and kind of GPUs, partitioned or not, and the instances by profile. It omits
// driver and CUDA versions, and the engines of instances on GPU models other than the A100.
// All GPUs must be of one model.
func Labels(model string, gpus []GPU) map[string]string {
	labels := map[string]string{
		"nvidia.com/gpu.machine":         model,
		v1alpha1.LabelGPUCount:           strconv.Itoa(len(gpus)),
		v1alpha1.LabelGPUSharingStrategy: "none",
		v1alpha1.LabelMIGStrategy:        "mixed",
		"nvidia.com/mps.capable":         "false",
	}
	whole, replicas := 0, 1
	for _, gpu := range gpus {
		_, migCapable := mig.ModelByPCIDevice(gpu.PCIDevice)
		product := Product(gpu.Name)
		maps.Copy(labels, map[string]string{
			v1alpha1.LabelGPUProduct:  product,
			v1alpha1.LabelGPUMemory:   strconv.FormatInt(gpu.MemoryMiB, 10),
			v1alpha1.LabelMIGCapable:  strconv.FormatBool(migCapable),
			"nvidia.com/gpu.mode":     "compute",
			v1alpha1.LabelGPUReplicas: "0",
		})
		for _, f := range architectures {
			if strings.Contains(product, f.mark) {
				labels["nvidia.com/gpu.family"] = f.name
				labels["nvidia.com/gpu.compute.major"] = f.major
				labels["nvidia.com/gpu.compute.minor"] = f.minor
			}
		}
		if !gpu.Partitioned {
			whole, replicas = whole+1, max(1, gpu.Replicas)
		}
		for _, instance := range gpu.Instances {
			instance.count(labels, product)
		}
	}
	// A GPU in MIG mode counts, but cannot be shared.
	if whole > 0 {
		labels[v1alpha1.LabelGPUReplicas] = strconv.Itoa(replicas)
	}
	if replicas > 1 {
		labels[v1alpha1.LabelGPUSharingStrategy] = "time-slicing"
		labels[v1alpha1.LabelGPUProduct] += "-SHARED"
	}
	return labels
}

// count counts an instance and describes its profile.
func (i Instance) count(labels map[string]string, product string) {
	prefix := i.resource() + "."
	before, _ := strconv.Atoi(labels[prefix+"count"]) // "" for the first: 0
	labels[prefix+"count"] = strconv.Itoa(before + 1)
	labels[prefix+"replicas"] = "1"
	labels[prefix+"product"] = product + "-MIG-" + strings.ReplaceAll(string(i.Name), "+", ".")
	labels[prefix+"slices.gi"] = strconv.Itoa(i.Profile.Compute)
	labels[prefix+"slices.ci"] = strconv.Itoa(i.Profile.Compute)
	labels[prefix+"memory"] = strconv.FormatInt(i.Profile.MemoryMiB, 10)
	labels[prefix+"multiprocessors"] = strconv.Itoa(i.Profile.Multiprocessors)
	if strings.Contains(product, "A100") {
		for suffix, n := range i.enginesOnA100() {
			labels[prefix+"engines."+suffix] = strconv.Itoa(n)
		}
	}
}

// enginesOnA100 returns the engines that NVML reports of an instance on an A100.
func (i Instance) enginesOnA100() map[string]int {
	const wholeGPU = 8
	engines := map[string]int{
		"copy":    i.Profile.Compute,
		"decoder": map[int]int{1: 0, 2: 1, 4: 2, wholeGPU: 5}[i.Profile.Memory],
		"encoder": 0, "jpeg": 0, "ofa": 0,
	}
	if i.Profile.Attribute != "" || i.Profile.Memory == wholeGPU {
		engines["jpeg"], engines["ofa"] = 1, 1
	}
	if i.Profile.Attribute != "" {
		engines["decoder"] = 1
	}
	return engines
}
