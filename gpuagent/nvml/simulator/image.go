// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"

	"sluice.dev/gpuagent/nvml"
)

// nodeImage is a node as a snapshot has it.
type nodeImage struct {
	Minted uint64     `json:"minted"`
	GPUs   []gpuImage `json:"gpus"`
}

type gpuImage struct {
	UUID      string          `json:"uuid"`
	Name      string          `json:"name"`
	Index     int             `json:"index"`
	Mode      nvml.Mode       `json:"mode,omitempty"`
	Pending   nvml.Mode       `json:"pending,omitempty"`
	Held      bool            `json:"held,omitempty"`
	Spoiled   bool            `json:"spoiled,omitempty"`
	Lost      bool            `json:"lost,omitempty"`
	Gone      bool            `json:"gone,omitempty"`
	Instances []instanceImage `json:"instances,omitempty"`
	Processes []processImage  `json:"processes,omitempty"`
}

type instanceImage struct {
	ID      uint32        `json:"id"`
	Profile uint32        `json:"profile"`
	Start   int           `json:"start"`
	Compute *computeImage `json:"compute,omitempty"`
}

type computeImage struct {
	ID        uint32         `json:"id"`
	UUID      string         `json:"uuid"`
	Slices    int            `json:"slices,omitempty"` // where they are not the profile's
	Processes []processImage `json:"processes,omitempty"`
}

type processImage struct {
	PID       uint32 `json:"pid"`
	MemoryMiB int64  `json:"memoryMiB"`
	SM        int    `json:"sm"`
}

func (n *Node) image() *nodeImage {
	image := &nodeImage{Minted: n.minted}
	for _, g := range n.gpus {
		it := gpuImage{
			UUID: g.uuid, Name: g.name, Index: g.index, Mode: g.mode, Pending: g.pending,
			Held: g.held, Spoiled: g.spoiled, Lost: g.lost, Gone: g.gone, Processes: processImages(g.processes),
		}
		for _, i := range g.instances {
			shown := instanceImage{ID: i.id, Profile: i.profile.ID, Start: i.start}
			if i.compute != nil {
				shown.Compute = &computeImage{ID: i.compute.id, UUID: i.compute.uuid, Processes: processImages(i.compute.processes)}
				if i.compute.slices != i.profile.Compute {
					shown.Compute.Slices = i.compute.slices
				}
			}
			it.Instances = append(it.Instances, shown)
		}
		image.GPUs = append(image.GPUs, it)
	}
	return image
}

func processImages(processes []process) []processImage {
	var images []processImage
	for _, p := range processes {
		images = append(images, processImage{p.pid, p.memoryMiB, p.sm})
	}
	return images
}

// restored are the node's GPUs in the state of the image.
func (n *Node) restored(image *nodeImage) ([]*gpu, error) {
	if len(image.GPUs) != len(n.gpus) {
		return nil, fmt.Errorf("the snapshot has %d GPUs and the node %d", len(image.GPUs), len(n.gpus))
	}
	var gpus []*gpu
	for k := range image.GPUs {
		g, err := n.gpus[k].restored(&image.GPUs[k])
		if err != nil {
			return nil, fmt.Errorf("gpus[%d]: %w", k, err)
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func (g *gpu) restored(image *gpuImage) (*gpu, error) {
	if image.UUID != g.uuid || image.Name != g.name {
		return nil, fmt.Errorf("the snapshot is of another node: it has the %s %q where the node has the %s %s", image.Name, image.UUID, g.name, g.uuid)
	}
	r := *g
	r.index, r.mode, r.pending = image.Index, image.Mode, image.Pending
	r.held, r.spoiled, r.lost, r.gone = image.Held, image.Spoiled, image.Lost, image.Gone
	r.instances, r.processes = nil, fromImages(image.Processes)
	if len(image.Instances) > 0 && g.board == nil {
		return nil, fmt.Errorf("instances on an %s, which cannot be cut", g.name)
	}
	for _, it := range image.Instances {
		i := &instance{id: it.ID, profile: g.profileOf(it.Profile), start: it.Start}
		if i.profile == nil {
			return nil, fmt.Errorf("instance %d: %s has no profile %d", it.ID, g.board.Name, it.Profile)
		}
		if it.Compute != nil {
			i.compute = &compute{it.Compute.ID, it.Compute.UUID, cmp.Or(it.Compute.Slices, i.profile.Compute), fromImages(it.Compute.Processes)}
		}
		r.instances = append(r.instances, i)
	}
	return &r, nil
}

func fromImages(images []processImage) []process {
	var processes []process
	for _, p := range images {
		processes = append(processes, process{p.PID, p.MemoryMiB, p.SM})
	}
	return processes
}
