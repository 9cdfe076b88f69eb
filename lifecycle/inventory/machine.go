// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// maxGPUs is more than any node has; a label beyond it is damage or mischief.
const maxGPUs = 1024

// Machine is what GPUs a node has.
type Machine struct {
	// GPUs is the number of physical GPUs, whatever they are cut into.
	GPUs int32
	// Boards are their kinds, sorted by product.
	Boards []v1alpha1.Board
	// Remarks are what was said of the GPUs and left out, each with the reason.
	Remarks []string
}

// Describe tells what GPUs the node has: from its GPUNode where an agent has
// reported any, else from the labels of GPU feature discovery. The GPUNode is
// nil where there is none. The error says which label is missing or cannot be
// used, and what to do; a node without GPUs says so by a count of 0.
func Describe(node *corev1.Node, observed *v1alpha1.GPUNode) (Machine, error) {
	if observed != nil && len(observed.Status.GPUs) > 0 {
		machine := fromAgent(observed)
		// How the device plugin divides them, only the labels tell.
		for i := range machine.Boards {
			divide(&machine.Boards[i], node)
		}
		return machine, nil
	}
	return fromLabels(node)
}

func fromAgent(observed *v1alpha1.GPUNode) Machine {
	var machine Machine
	for _, gpu := range observed.Status.GPUs {
		machine.GPUs++
		// The schema of a GPUNode is as strict as that of a pool's status.
		machine.Boards = merge(machine.Boards, v1alpha1.Board{
			Product:     productLabel(gpu.Model),
			MemoryMiB:   gpu.MemoryMiB,
			GPUs:        1,
			MIGProfiles: gpu.MIGProfiles,
		})
	}
	return machine
}

// productLabel writes a driver's name of a GPU as GPU feature discovery does.
func productLabel(model string) string {
	if model == "" {
		return "unknown"
	}
	return strings.ReplaceAll(model, " ", "-")
}

func fromLabels(node *corev1.Node) (Machine, error) {
	text, ok := node.Labels[v1alpha1.LabelGPUCount]
	if !ok {
		return Machine{}, fmt.Errorf("node %s has no label %s: is GPU feature discovery running there?", node.Name, v1alpha1.LabelGPUCount)
	}
	product := node.Labels[v1alpha1.LabelGPUProduct]
	if strings.Contains(product, "-MIG-") {
		return Machine{}, fmt.Errorf("node %s: label %s=%s is of the device plugin's strategy single, which counts slices as GPUs; use the strategy mixed",
			node.Name, v1alpha1.LabelGPUProduct, product)
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > maxGPUs {
		return Machine{}, fmt.Errorf("node %s: label %s=%s: want a number of GPUs from 0 to %d", node.Name, v1alpha1.LabelGPUCount, text, maxGPUs)
	}
	if count == 0 {
		return Machine{}, nil
	}
	memory, err := strconv.ParseInt(node.Labels[v1alpha1.LabelGPUMemory], 10, 64)
	if err != nil || memory < 0 {
		memory = 0 // not known; only shares by memory want it
	}
	product = strings.TrimSuffix(product, sharedSuffix)
	if product == "" {
		product = "unknown"
	}
	profiles, remarks := labelledProfiles(node)
	board := v1alpha1.Board{Product: product, MemoryMiB: memory, GPUs: int32(count), MIGProfiles: profiles}
	divide(&board, node)
	return Machine{GPUs: int32(count), Boards: []v1alpha1.Board{board}, Remarks: remarks}, nil
}
