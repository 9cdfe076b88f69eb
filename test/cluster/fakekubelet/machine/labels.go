// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// family is what GPU feature discovery says of an architecture.
type family struct {
	mark         string // in the product's name
	name         string
	major, minor string
}

var families = []family{
	{"A100", "ampere", "8", "0"},
	{"H100", "hopper", "9", "0"},
	{"H200", "hopper", "9", "0"},
	{"B200", "blackwell", "10", "0"},
}

// Labels returns what GPU feature discovery would write on a node with MIG
// strategy "mixed": how many GPUs and of what kind, whole or cut, and the
// instances by profile. Driver and CUDA versions are not among them, since there
// is no driver; nor are, for products other than the A100 with 40 GB, the
// instances' memory and engines.
func (m Machine) Labels() map[string]string {
	labels := map[string]string{
		"nvidia.com/gpu.machine":         m.Model,
		v1alpha1.LabelGPUProduct:         m.Product,
		v1alpha1.LabelGPUCount:           strconv.Itoa(m.GPUs),
		v1alpha1.LabelGPUMemory:          strconv.FormatInt(m.MemoryMiB, 10),
		"nvidia.com/gpu.mode":            "compute",
		v1alpha1.LabelGPUSharingStrategy: "none",
		v1alpha1.LabelMIGCapable:         strconv.FormatBool(len(m.MIG) > 0),
		v1alpha1.LabelMIGStrategy:        "mixed",
		"nvidia.com/mps.capable":         "false",
	}
	for _, f := range families {
		if strings.Contains(m.Product, f.mark) {
			labels["nvidia.com/gpu.family"] = f.name
			labels["nvidia.com/gpu.compute.major"] = f.major
			labels["nvidia.com/gpu.compute.minor"] = f.minor
			labels[v1alpha1.LabelMIGCapable] = "true"
		}
	}
	whole := 0
	for _, instances := range m.cuts() {
		if instances == nil {
			whole++
		}
		for _, instance := range instances {
			m.addInstance(labels, instance)
		}
	}
	// A GPU in MIG mode is counted, but cannot be shared out.
	labels[v1alpha1.LabelGPUReplicas] = strconv.Itoa(min(whole, 1))
	return labels
}

// addInstance counts an instance, and describes its profile where it is the
// first one.
func (m Machine) addInstance(labels map[string]string, instance Instance) {
	prefix := resourceOf(instance) + "."
	count, _ := strconv.Atoi(labels[prefix+"count"]) // "" for the first: 0
	labels[prefix+"count"] = strconv.Itoa(count + 1)
	labels[prefix+"replicas"] = "1"
	labels[prefix+"product"] = m.Product + "-MIG-" + strings.ReplaceAll(instance.Profile, "+", ".")
	p, err := m.parseProfile(instance.Profile)
	if err != nil {
		return // no such machine passes Validate
	}
	labels[prefix+"slices.gi"] = strconv.Itoa(p.compute)
	labels[prefix+"slices.ci"] = strconv.Itoa(p.compute)
	if m.Product == "NVIDIA-A100-SXM4-40GB" {
		for suffix, value := range a100Attributes(p) {
			labels[prefix+suffix] = strconv.Itoa(value)
		}
	}
}

// a100Attributes are what NVML reports of an instance on an A100 with 40 GB.
func a100Attributes(p profile) map[string]int {
	attributes := map[string]int{
		"memory":          map[int]int{1: 4864, 2: 9856, 4: 19968, 8: 40192}[p.memory],
		"multiprocessors": 14 * p.compute,
		"engines.copy":    p.compute,
		"engines.decoder": map[int]int{1: 0, 2: 1, 4: 2, 8: 5}[p.memory],
		"engines.encoder": 0,
		"engines.jpeg":    0,
		"engines.ofa":     0,
	}
	if p.media || p.memory == memorySlices {
		maps.Copy(attributes, map[string]int{"engines.jpeg": 1, "engines.ofa": 1})
	}
	if p.media {
		attributes["engines.decoder"] = 1
	}
	return attributes
}
