// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
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
		return fromAgent(observed), nil
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
	product = strings.TrimSuffix(product, "-SHARED")
	if product == "" {
		product = "unknown"
	}
	profiles, remarks := labelledProfiles(node)
	return Machine{
		GPUs:    int32(count),
		Boards:  []v1alpha1.Board{{Product: product, MemoryMiB: memory, GPUs: int32(count), MIGProfiles: profiles}},
		Remarks: remarks,
	}, nil
}

// Combine is the machines of a pool taken together.
func Combine(machines []Machine) Machine {
	var all Machine
	for _, machine := range machines {
		all.GPUs += machine.GPUs
		all.Remarks = append(all.Remarks, machine.Remarks...)
		for _, board := range machine.Boards {
			all.Boards = merge(all.Boards, board)
		}
	}
	return all
}

// merge adds a board to sorted ones, without changing what they share memory with.
func merge(boards []v1alpha1.Board, board v1alpha1.Board) []v1alpha1.Board {
	at, found := slices.BinarySearchFunc(boards, board.Product, func(b v1alpha1.Board, product string) int {
		return strings.Compare(b.Product, product)
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
	profiles := slices.Concat(same.MIGProfiles, board.MIGProfiles)
	slices.Sort(profiles)
	same.MIGProfiles = slices.Compact(profiles)
	return boards
}
