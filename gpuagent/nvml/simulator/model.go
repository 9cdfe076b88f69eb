// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"

	"sluice.dev/gpuagent/mig"
)

// model is a kind of GPU as the driver shows it.
type model struct {
	board     *mig.Board // nil where it cannot be cut
	name      string     // what the driver calls it
	device    uint16     // its PCI device identifier
	memoryMiB int64
	perSlice  int           // multiprocessors of a compute slice
	whole     int           // multiprocessors of an instance that is the whole GPU
	memory    map[int]int64 // MiB of an instance by its memory slices; else the board's
}

// cut are the boards of package mig by their names. Memory is what the driver reports
// for the board; that of the GH200-144GB and the multiprocessors of Blackwell are
// estimates. The identifiers of Blackwell's profiles are Sluice's own (see
// [mig.Board.IDsUnpublished]).
var cut = map[string]model{
	"A100-40GB":     {name: "NVIDIA A100-SXM4-40GB", memoryMiB: 40960, perSlice: 14, whole: 98, memory: map[int]int64{1: 4864, 2: 9856, 4: 19968, 8: 40192}},
	"A100-80GB":     {name: "NVIDIA A100-SXM4-80GB", memoryMiB: 81920, perSlice: 14, whole: 98, memory: map[int]int64{1: 9856, 2: 19968, 4: 40192, 8: 80384}},
	"A30":           {name: "NVIDIA A30", memoryMiB: 24576, perSlice: 14, whole: 56},
	"H100-80GB":     {name: "NVIDIA H100 80GB HBM3", device: 0x2330, memoryMiB: 81559, perSlice: 16, whole: 132},
	"H100-NVL-94GB": {name: "NVIDIA H100 NVL", memoryMiB: 95830, perSlice: 16, whole: 132},
	"H100-96GB":     {name: "NVIDIA H100 96GB HBM3", memoryMiB: 97871, perSlice: 16, whole: 132},
	"GH200-96GB":    {name: "NVIDIA GH200 480GB", memoryMiB: 97871, perSlice: 16, whole: 132},
	"GH200-144GB":   {name: "NVIDIA GH200 144G HBM3e", memoryMiB: 147456, perSlice: 16, whole: 132},
	"H200-141GB":    {name: "NVIDIA H200", memoryMiB: 143771, perSlice: 16, whole: 132},
	"B200-180GB":    {name: "NVIDIA B200", memoryMiB: 183359, perSlice: 18, whole: 148},
}

// uncut are boards that cannot be cut.
var uncut = map[string]model{
	"L4":   {name: "NVIDIA L4", device: 0x27b8, memoryMiB: 23034},
	"L40S": {name: "NVIDIA L40S", device: 0x26b9, memoryMiB: 46068},
	"T4":   {name: "Tesla T4", device: 0x1eb8, memoryMiB: 15360},
	"V100": {name: "Tesla V100-SXM2-32GB", device: 0x1db5, memoryMiB: 32768},
}

// modelNamed is the board of that name, in any case.
func modelNamed(name string) (*model, error) {
	if board, ok := mig.BoardNamed(name); ok {
		if m, ok := cut[board.Name]; ok {
			m.board = board
			if m.device == 0 {
				m.device = board.Devices[0]
			}
			return &m, nil
		}
	}
	for known, m := range uncut {
		if strings.EqualFold(known, name) {
			return &m, nil
		}
	}
	return nil, fmt.Errorf("no board is called %q; there are %s", name, strings.Join(Boards(), ", "))
}

// Boards are the names that [GPU] can have for its board: first those that can be
// cut, as package mig calls them, then those that cannot.
func Boards() []string {
	var names []string
	for _, board := range mig.Boards() {
		if _, ok := cut[board.Name]; ok {
			names = append(names, board.Name)
		}
	}
	return append(names, "L4", "L40S", "T4", "V100")
}

// migMemory is the memory of an instance of a profile.
func (m *model) migMemory(p *mig.Profile) int64 {
	if memory, ok := m.memory[p.Memory]; ok {
		return memory
	}
	return min(p.MemoryMiB, m.memoryMiB*int64(p.Memory)/int64(m.board.Slices))
}

// multiprocessors are how many of them an instance of a profile has.
func (m *model) multiprocessors(p *mig.Profile) int {
	if p.Memory == m.board.Slices {
		return m.whole
	}
	return m.perSlice * p.Compute
}

// profileOf is the profile of that identifier, or nil.
func (m *model) profileOf(id uint32) *mig.Profile {
	for i := range m.board.Profiles {
		if m.board.Profiles[i].ID == id {
			return &m.board.Profiles[i]
		}
	}
	return nil
}
