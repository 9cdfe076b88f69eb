// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

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
	all.Remarks = append(all.Remarks, dividedDifferently(machines)...)
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
	// Nobody can tell what a replica is worth that is worth two things.
	if same.Replicas != board.Replicas || same.ReplicaResource != board.ReplicaResource {
		same.Replicas, same.ReplicaResource = 0, ""
	}
	profiles := slices.Concat(same.MIGProfiles, board.MIGProfiles)
	slices.Sort(profiles)
	same.MIGProfiles = slices.Compact(profiles)
	return boards
}
