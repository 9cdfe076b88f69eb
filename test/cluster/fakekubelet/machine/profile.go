// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

var profileName = regexp.MustCompile(`^([1-7])g\.([1-9][0-9]{0,2})gb(\+me)?$`)

// profile is a GPU instance profile of a board with seven compute and eight
// memory slices (A100, H100, H200, B200 and their like).
type profile struct {
	compute, memory int
	media           bool // with the GPU's media engines
}

// starts returns the memory slices at which an instance can begin, nil where
// there is no such profile.
func (p profile) starts() []int {
	switch [2]int{p.compute, p.memory} {
	case [2]int{1, 1}:
		return []int{0, 1, 2, 3, 4, 5, 6}
	case [2]int{1, 2}:
		return []int{0, 2, 4, 6}
	case [2]int{2, 2}:
		return []int{0, 2, 4}
	case [2]int{3, 4}:
		return []int{0, 4}
	case [2]int{4, 4}, [2]int{7, 8}:
		return []int{0}
	}
	return nil
}

// parseProfile reads a profile's name. What "5gb" is in memory slices depends on
// the board, and drivers round it in different ways.
func (m Machine) parseProfile(name string) (profile, error) {
	match := profileName.FindStringSubmatch(name)
	if match == nil {
		return profile{}, fmt.Errorf("%q is no MIG profile; write it like 1g.5gb", name)
	}
	compute, _ := strconv.Atoi(match[1]) // the expression lets only digits through
	gigabytes, _ := strconv.Atoi(match[2])
	memory := math.Round(float64(gigabytes*1024*memorySlices) / float64(m.MemoryMiB))
	p := profile{compute: compute, memory: int(memory), media: match[3] != ""}
	if p.starts() == nil || p.media && (p.compute != 1 || p.memory != 1) {
		return profile{}, fmt.Errorf("%q is no profile of a GPU with %d MiB and seven compute slices", name, m.MemoryMiB)
	}
	return p, nil
}
