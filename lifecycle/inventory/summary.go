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
	// Warnings are ignored labels and inconsistencies, with the reason.
	Warnings []string
}

// SummarizeNode returns the GPUs of a node: from its GPUNode if that lists any, else from the
// labels of GPU feature discovery. observed is nil if there is no GPUNode. The error names the
// missing or invalid label and what to do. A node without GPUs has the count 0.
func SummarizeNode(node *corev1.Node, observed *v1alpha1.GPUNode) (Summary, error) {
	if observed != nil && len(observed.Status.GPUs) > 0 {
		machine := summaryFromGPUNode(observed)
		// How the device plugin divides them, only the labels tell.
		for i := range machine.GPUModels {
			applySharing(&machine.GPUModels[i], node)
		}
		return machine, nil
	}
	return summaryFromLabels(node)
}

func summaryFromGPUNode(observed *v1alpha1.GPUNode) Summary {
	var machine Summary
	for _, gpu := range observed.Status.GPUs {
		machine.GPUs++
		// The schema of a GPUNode is as strict as that of a pool's status.
		machine.GPUModels = mergeModel(machine.GPUModels, v1alpha1.GPUModel{
			Name:        productLabel(gpu.Model),
			MemoryMiB:   gpu.MemoryMiB,
			GPUs:        1,
			MIGProfiles: gpu.MIGProfiles,
		})
	}
	return machine
}

// productLabel converts a driver's GPU name to the form of GPU feature discovery.
func productLabel(model string) string {
	if model == "" {
		return "unknown"
	}
	return strings.ReplaceAll(model, " ", "-")
}

func summaryFromLabels(node *corev1.Node) (Summary, error) {
	text, ok := node.Labels[v1alpha1.LabelGPUCount]
	if !ok {
		return Summary{}, fmt.Errorf("node %s has no label %s: is GPU feature discovery running there?", node.Name, v1alpha1.LabelGPUCount)
	}
	product := node.Labels[v1alpha1.LabelGPUProduct]
	if strings.Contains(product, "-MIG-") {
		return Summary{}, fmt.Errorf("node %s: label %s=%s is of the device plugin's strategy single, which counts slices as GPUs; use the strategy mixed",
			node.Name, v1alpha1.LabelGPUProduct, product)
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > maxGPUs {
		return Summary{}, fmt.Errorf("node %s: label %s=%s: want a number of GPUs from 0 to %d", node.Name, v1alpha1.LabelGPUCount, text, maxGPUs)
	}
	if count == 0 {
		return Summary{}, nil
	}
	memory, err := strconv.ParseInt(node.Labels[v1alpha1.LabelGPUMemory], 10, 64)
	if err != nil || memory < 0 {
		memory = 0 // not known; only shares by memory want it
	}
	product = strings.TrimSuffix(product, sharedSuffix)
	if product == "" {
		product = "unknown"
	}
	profiles, remarks := profilesFromLabels(node)
	board := v1alpha1.GPUModel{Name: product, MemoryMiB: memory, GPUs: int32(count), MIGProfiles: profiles}
	applySharing(&board, node)
	return Summary{GPUs: int32(count), GPUModels: []v1alpha1.GPUModel{board}, Warnings: remarks}, nil
}

// Combine returns the summary of all nodes of a pool.
func Combine(machines []Summary) Summary {
	var all Summary
	for _, machine := range machines {
		all.GPUs += machine.GPUs
		all.Warnings = append(all.Warnings, machine.Warnings...)
		for _, board := range machine.GPUModels {
			all.GPUModels = mergeModel(all.GPUModels, board)
		}
	}
	all.Warnings = append(all.Warnings, inconsistentSharing(machines)...)
	return all
}

// mergeModel adds a model to a sorted list. It does not change the slice that was passed.
func mergeModel(boards []v1alpha1.GPUModel, board v1alpha1.GPUModel) []v1alpha1.GPUModel {
	at, found := slices.BinarySearchFunc(boards, board.Name, func(b v1alpha1.GPUModel, product string) int {
		return strings.Compare(b.Name, product)
	})
	if !found {
		board.MIGProfiles = slices.Clone(board.MIGProfiles)
		return slices.Insert(slices.Clone(boards), at, board)
	}
	boards = slices.Clone(boards)
	same := &boards[at]
	same.GPUs += board.GPUs
	// Two nodes may say different things of one product; the smaller promise holds.
	if same.MemoryMiB == 0 || (board.MemoryMiB > 0 && board.MemoryMiB < same.MemoryMiB) {
		same.MemoryMiB = board.MemoryMiB
	}
	// Nobody can tell what a replica is worth that is worth two things.
	if same.Replicas != board.Replicas || same.ReplicaResource != board.ReplicaResource {
		same.Replicas, same.ReplicaResource = 0, ""
	}
	profiles := slices.Concat(same.MIGProfiles, board.MIGProfiles)
	slices.Sort(profiles)
	same.MIGProfiles = slices.Compact(profiles)
	return boards
}

// profilePattern is the pattern of a MIG profile in the schema. A test compares both.
var profilePattern = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)

// profilesFromLabels returns the profiles of the node's existing MIG instances; GPU feature
// discovery reports no others. It returns warnings about labels with an invalid profile.
func profilesFromLabels(node *corev1.Node) (profiles []v1alpha1.MIGProfile, remarks []string) {
	for key := range node.Labels {
		name, ok := strings.CutSuffix(key, ".count")
		if !ok {
			continue
		}
		// The labels name profiles as the resources do.
		profile, ok := v1alpha1.MIGProfileOf(corev1.ResourceName(name))
		if !ok {
			continue
		}
		if !profilePattern.MatchString(string(profile)) {
			remarks = append(remarks, fmt.Sprintf("node %s: label %s names no profile of GPU instances", node.Name, key))
			continue
		}
		profiles = append(profiles, profile)
	}
	slices.Sort(profiles)
	slices.Sort(remarks)
	return profiles, remarks
}

// sharedSuffix marks a product whose replicas have the resource name of whole GPUs.
const sharedSuffix = "-SHARED"

// maxReplicas is larger than any device plugin allows.
const maxReplicas = 1024

// applySharing sets how the node's device plugin divides the GPUs, as GPU feature discovery
// reports it.
func applySharing(board *v1alpha1.GPUModel, node *corev1.Node) {
	switch node.Labels[v1alpha1.LabelGPUSharingStrategy] {
	case "mps", "time-slicing":
	default:
		return
	}
	replicas, err := strconv.Atoi(node.Labels[v1alpha1.LabelGPUReplicas])
	if err != nil || replicas < 2 || replicas > maxReplicas {
		return
	}
	board.Replicas = int32(replicas)
	board.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPUShared)
	// The suffix is there to tell them from whole GPUs where the name does not.
	if strings.HasSuffix(node.Labels[v1alpha1.LabelGPUProduct], sharedSuffix) {
		board.ReplicaResource = string(v1alpha1.ResourceNVIDIAGPU)
	}
}

// inconsistentSharing returns a warning for each product that the nodes divide differently,
// sorted.
func inconsistentSharing(machines []Summary) []string {
	ways := map[string][]string{}
	for _, machine := range machines {
		for _, board := range machine.GPUModels {
			way := "not at all"
			if board.Replicas > 0 {
				way = fmt.Sprintf("into %d %s", board.Replicas, board.ReplicaResource)
			}
			if !slices.Contains(ways[board.Name], way) {
				ways[board.Name] = append(ways[board.Name], way)
			}
		}
	}
	var remarks []string
	for product, all := range ways {
		if len(all) > 1 {
			slices.Sort(all)
			remarks = append(remarks, fmt.Sprintf(
				"the nodes divide %s differently (%s), so that shares cannot be given there; divide it alike on all of them, or make a pool for each way",
				product, strings.Join(all, ", ")))
		}
	}
	slices.Sort(remarks)
	return remarks
}
