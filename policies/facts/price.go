// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"regexp"
	"strconv"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// size is what the name of a profile says.
type size struct {
	compute, memoryGB int64
	plain             bool
}

var profileName = regexp.MustCompile(`^([1-8])g\.([0-9]{1,4})gb(.*)$`)

func sizeOf(profile v1alpha1.MIGProfile) (size, bool) {
	match := profileName.FindStringSubmatch(string(profile))
	if match == nil {
		return size{}, false
	}
	compute, _ := strconv.ParseInt(match[1], 10, 64)
	memory, _ := strconv.ParseInt(match[2], 10, 64)
	return size{compute, memory, match[3] == ""}, true
}

// memorySlices is how many memory slices a board has that can be cut into seven
// compute slices; the boards with four have four, which are two each of these.
const memorySlices = 8

// Price is the part of a GPU that a slice of a profile is charged: its memory
// slices over the board's, in eighths, so that no full layout costs more than
// its GPU. Where the board's memory is not known it is the whole GPU, which
// never lets more in than there is.
func Price(profile v1alpha1.MIGProfile, boardMiB int64) workload.Milli {
	size, ok := sizeOf(profile)
	if !ok || boardMiB <= 0 {
		return 1000
	}
	// Names round to whole GB, boards keep some memory to themselves: the nearest
	// eighth is meant.
	eighths := (size.memoryGB*1024*memorySlices + boardMiB/2) / boardMiB
	return workload.Milli(1000 / memorySlices * max(1, min(memorySlices, eighths)))
}

// smallerFirst orders profiles by what they cost, then by their compute.
func smallerFirst(a, b Profile) int {
	return cmp.Or(cmp.Compare(a.Price, b.Price), cmp.Compare(a.MemoryMiB, b.MemoryMiB),
		cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Name, b.Name))
}
