// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory finds the GPUs of a node, the pool of a node and the project of a
// namespace.
//
// The GPUs come from the node's GPUNode, else from the labels of GPU feature discovery.
// If they are unknown, the error names the missing label; a number is never guessed.
// The package only reads.
package inventory

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// maxGPUs is larger than any node. A label beyond it is invalid.
const maxGPUs = 1024

// Summary lists the GPUs of a node.
type Summary struct {
	// GPUs is the number of physical GPUs, partitioned or not.
	GPUs int32
	// GPUModels are the GPU models, sorted by name.
	GPUModels []v1alpha1.GPUModel
	// DriverVersion is the oldest GPU driver of the nodes with GPUs. It is empty if that of one is
	// unknown: only GPUNodes have it.
	DriverVersion string
	// Warnings are ignored labels and inconsistencies, with the reason.
	Warnings []string
}

// SummarizeNode returns the GPUs of a node: from its GPUNode if that lists any, else from the
// labels of GPU feature discovery, else from the resources that one of the pools names as its GPUs.
// observed is nil if there is no GPUNode. The error names the missing or invalid label and what to do. A node
// without GPUs has the count 0.
func SummarizeNode(node *corev1.Node, observed *v1alpha1.GPUNode, pools ...v1alpha1.NodePool) (Summary, error) {
	if observed != nil && len(observed.Status.GPUs) > 0 {
		summary := summaryFromGPUNode(observed)
		// Only the labels have the division by the device plugin.
		for i := range summary.GPUModels {
			applySharing(&summary.GPUModels[i], node)
		}
		return summary, nil
	}
	if _, labeled := node.Labels[v1alpha1.LabelGPUCount]; !labeled {
		for i := range pools {
			if summary := summaryFromResources(node, &pools[i]); summary.GPUs > 0 {
				return summary, nil
			}
		}
	}
	return summaryFromLabels(node)
}

// summaryFromResources counts the GPUs of other vendors, which no label reports, on a node of the pool. A resource is
// its model.
func summaryFromResources(node *corev1.Node, pool *v1alpha1.NodePool) (summary Summary) {
	for _, resource := range pool.Spec.Resources {
		capacity := node.Status.Capacity[corev1.ResourceName(resource.Name)]
		if gpus := capacity.Value() * resource.GPUs.MilliValue() / 1000; gpus > 0 && gpus <= maxGPUs && SelectsNode(pool, node) {
			summary.GPUs += int32(gpus)
			summary.GPUModels = mergeModel(summary.GPUModels, v1alpha1.GPUModel{Name: resource.Name, GPUs: int32(gpus)})
		}
	}
	return summary
}

func summaryFromGPUNode(observed *v1alpha1.GPUNode) Summary {
	summary := Summary{DriverVersion: observed.Status.DriverVersion}
	for _, gpu := range observed.Status.GPUs {
		summary.GPUs++
		// GPUNode and NodePool validate profiles by the same schema.
		summary.GPUModels = mergeModel(summary.GPUModels, v1alpha1.GPUModel{
			Name:        productLabel(gpu.Model),
			MemoryMiB:   gpu.MemoryMiB,
			GPUs:        1,
			MIGProfiles: gpu.MIGProfiles,
		})
	}
	return summary
}

// productLabel converts a driver's GPU name to the form of GPU feature discovery.
func productLabel(model string) string {
	if model == "" {
		return "unknown"
	}
	return strings.ReplaceAll(model, " ", "-")
}

func summaryFromLabels(node *corev1.Node) (Summary, error) {
	value, ok := node.Labels[v1alpha1.LabelGPUCount]
	if !ok {
		return Summary{}, fmt.Errorf("node %s has no label %s: is GPU feature discovery running there?", node.Name, v1alpha1.LabelGPUCount)
	}
	product := node.Labels[v1alpha1.LabelGPUProduct]
	if strings.Contains(product, "-MIG-") {
		return Summary{}, fmt.Errorf("node %s: label %s=%s means MIG strategy single, which counts MIG instances as GPUs; use the strategy mixed",
			node.Name, v1alpha1.LabelGPUProduct, product)
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 0 || count > maxGPUs {
		return Summary{}, fmt.Errorf("node %s: label %s=%s: want a number of GPUs from 0 to %d",
			node.Name, v1alpha1.LabelGPUCount, value, maxGPUs)
	}
	if count == 0 {
		return Summary{}, nil
	}
	memory, err := strconv.ParseInt(node.Labels[v1alpha1.LabelGPUMemory], 10, 64)
	if err != nil || memory < 0 {
		memory = 0 // unknown; only requests by memory need it
	}
	product = strings.TrimSuffix(product, sharedSuffix)
	if product == "" {
		product = "unknown"
	}
	profiles, warnings := profilesFromLabels(node)
	model := v1alpha1.GPUModel{Name: product, MemoryMiB: memory, GPUs: int32(count), MIGProfiles: profiles}
	applySharing(&model, node)
	return Summary{GPUs: int32(count), GPUModels: []v1alpha1.GPUModel{model}, Warnings: warnings}, nil
}

// Combine returns the summary of all nodes of a pool.
func Combine(summaries []Summary) Summary {
	var all Summary
	for _, summary := range summaries {
		switch {
		case summary.GPUs == 0:
		case all.GPUs == 0:
			all.DriverVersion = summary.DriverVersion
		case compareVersions(summary.DriverVersion, all.DriverVersion) < 0:
			all.DriverVersion = summary.DriverVersion
		}
		all.GPUs += summary.GPUs
		all.Warnings = append(all.Warnings, summary.Warnings...)
		for _, model := range summary.GPUModels {
			all.GPUModels = mergeModel(all.GPUModels, model)
		}
	}
	all.Warnings = append(all.Warnings, inconsistentSharing(summaries)...)
	return all
}

// compareVersions compares versions such as 550.54.15 by their numbers. A part that is no number
// counts as lowest, so an unknown version is older than all others.
func compareVersions(a, b string) int {
	numbers := func(version string) []int {
		var parts []int
		for part := range strings.SplitSeq(version, ".") {
			number, err := strconv.Atoi(part)
			if err != nil {
				number = -1
			}
			parts = append(parts, number)
		}
		return parts
	}
	return slices.Compare(numbers(a), numbers(b))
}

// mergeModel adds a model to a sorted list. It does not change the slice that was passed.
func mergeModel(models []v1alpha1.GPUModel, model v1alpha1.GPUModel) []v1alpha1.GPUModel {
	at, found := slices.BinarySearchFunc(models, model.Name, func(b v1alpha1.GPUModel, product string) int {
		return strings.Compare(b.Name, product)
	})
	if !found {
		model.MIGProfiles = slices.Clone(model.MIGProfiles)
		return slices.Insert(slices.Clone(models), at, model)
	}
	models = slices.Clone(models)
	existing := &models[at]
	existing.GPUs += model.GPUs
	// If nodes report different amounts of memory, the smallest is used.
	if existing.MemoryMiB == 0 || (model.MemoryMiB > 0 && model.MemoryMiB < existing.MemoryMiB) {
		existing.MemoryMiB = model.MemoryMiB
	}
	// Replicas of different sizes cannot be charged.
	if existing.Replicas != model.Replicas || existing.ReplicaResource != model.ReplicaResource {
		existing.Replicas, existing.ReplicaResource = 0, ""
	}
	profiles := slices.Concat(existing.MIGProfiles, model.MIGProfiles)
	slices.Sort(profiles)
	existing.MIGProfiles = slices.Compact(profiles)
	return models
}

// profilePattern is the pattern of a MIG profile in the schema. A test compares both.
var profilePattern = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)

// profilesFromLabels returns the profiles of the node's existing MIG instances; GPU feature
// discovery reports no others. It returns warnings about labels with an invalid profile.
func profilesFromLabels(node *corev1.Node) (profiles []v1alpha1.MIGProfile, warnings []string) {
	for key := range node.Labels {
		name, ok := strings.CutSuffix(key, ".count")
		if !ok {
			continue
		}
		// The labels have the same prefix as the resources.
		profile, ok := v1alpha1.MIGProfileOf(corev1.ResourceName(name))
		if !ok {
			continue
		}
		if !profilePattern.MatchString(string(profile)) {
			warnings = append(warnings, fmt.Sprintf("node %s: label %s is not a GPU instance profile", node.Name, key))
			continue
		}
		profiles = append(profiles, profile)
	}
	slices.Sort(profiles)
	slices.Sort(warnings)
	return profiles, warnings
}

// sharedSuffix marks a product whose replicas have the resource name of whole GPUs.
const sharedSuffix = "-SHARED"

// maxReplicas is larger than any device plugin allows.
const maxReplicas = 1024

// applySharing sets how the node's device plugin divides the GPUs, as GPU feature discovery
// reports it.
func applySharing(model *v1alpha1.GPUModel, node *corev1.Node) {
	switch node.Labels[v1alpha1.LabelGPUSharingStrategy] {
	case "mps", "time-slicing":
	default:
		return
	}
	replicas, err := strconv.Atoi(node.Labels[v1alpha1.LabelGPUReplicas])
	if err != nil || replicas < 2 || replicas > maxReplicas {
		return
	}
	model.Replicas = int32(replicas)
	model.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPUShared)
	// The product has the suffix if replicas have the resource name of whole GPUs.
	if strings.HasSuffix(node.Labels[v1alpha1.LabelGPUProduct], sharedSuffix) {
		model.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPU)
	}
}

// inconsistentSharing returns a warning for each product that the nodes divide differently,
// sorted.
func inconsistentSharing(summaries []Summary) []string {
	ways := map[string][]string{}
	for _, summary := range summaries {
		for _, model := range summary.GPUModels {
			way := "not at all"
			if model.Replicas > 0 {
				way = fmt.Sprintf("into %d %s", model.Replicas, model.ReplicaResource)
			}
			if !slices.Contains(ways[model.Name], way) {
				ways[model.Name] = append(ways[model.Name], way)
			}
		}
	}
	var warnings []string
	for product, all := range ways {
		if len(all) > 1 {
			slices.Sort(all)
			warnings = append(warnings, fmt.Sprintf(
				"nodes divide %s differently (%s), so shares of it cannot be allocated; divide it equally on all nodes, or create a pool for each way",
				product, strings.Join(all, ", ")))
		}
	}
	slices.Sort(warnings)
	return warnings
}
