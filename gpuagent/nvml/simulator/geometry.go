// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strconv"
	"strings"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Profiles implements [nvml.Library]: ErrNotSupported where the board cannot be cut.
func (p *program) Profiles(gpu string) ([]nvml.Profile, error) {
	n := p.node
	return ask(p, Call{Method: "Profiles", GPU: gpu}, func() ([]nvml.Profile, error) {
		g, err := n.cuttable(gpu)
		if err != nil || !n.knowsProfiles(g) {
			return nil, err
		}
		var list []nvml.Profile
		for i := range g.board.Profiles {
			it := &g.board.Profiles[i]
			list = append(list, nvml.Profile{
				ID: nvml.ProfileID(it.ID), Compute: it.Compute, Memory: it.Memory, Attribute: it.Attribute, Max: it.Max,
				MemoryMiB: g.migMemory(it), Multiprocessors: g.multiprocessors(it),
			})
		}
		return inAnyOrder(n, list), nil
	})
}

// Placements implements [nvml.Library].
func (p *program) Placements(gpu string, profile nvml.ProfileID) ([]nvml.Placement, error) {
	n := p.node
	return ask(p, Call{Method: "Placements", GPU: gpu, Profile: profile}, func() ([]nvml.Placement, error) {
		g, err := n.cuttable(gpu)
		if err != nil {
			return nil, err
		}
		if n.denied {
			return nil, refuse(nvml.ErrNoPermission, "no access to mig/config")
		}
		it, err := n.profile(g, profile)
		if err != nil {
			return nil, err
		}
		var list []nvml.Placement
		for _, start := range it.Starts {
			list = append(list, nvml.Placement{Start: start, Size: it.Memory})
		}
		return inAnyOrder(n, list), nil
	})
}

// RemainingCapacity implements [nvml.Library].
func (p *program) RemainingCapacity(gpu string, profile nvml.ProfileID) (int, error) {
	n := p.node
	return ask(p, Call{Method: "RemainingCapacity", GPU: gpu, Profile: profile}, func() (int, error) {
		g, err := n.cut(gpu)
		if err != nil {
			return 0, err
		}
		it, err := n.profile(g, profile)
		if err != nil {
			return 0, err
		}
		return g.room(it), nil
	})
}

// knowsProfiles tells whether the driver knows what a GPU can be cut into.
func (n *Node) knowsProfiles(g *gpu) bool {
	major, _, _ := strings.Cut(n.version, ".")
	release, err := strconv.Atoi(major)
	return g.mode == nvml.Enabled || err != nil || release >= 550
}

// profile is the one that the driver calls so.
func (n *Node) profile(g *gpu, id nvml.ProfileID) (*mig.Profile, error) {
	if !n.knowsProfiles(g) {
		return nil, refuse(nvml.ErrNotSupported, "driver %s knows no profiles of %s while MIG mode is off", n.version, g.uuid)
	}
	if it := g.profileOf(uint32(id)); it != nil {
		return it, nil
	}
	return nil, refuse(nvml.ErrInvalidArgument, "%s has no profile %d", g.board.Name, id)
}

// room is how many more instances of a profile there can be. Its places never
// overlap each other, so each that is free is one.
func (g *gpu) room(p *mig.Profile) int {
	free, most := 0, g.allowed(p)
	for _, start := range p.Starts {
		if g.at(start, p.Memory) == nil {
			free++
		}
	}
	return max(0, min(free, most))
}

// allowed is how many more instances of a profile the board allows, wherever. Of the
// media engines there is one set, whatever the profile that has it.
func (g *gpu) allowed(p *mig.Profile) int {
	most := p.Max
	for _, i := range g.instances {
		if i.profile == p || p.Attribute != "" && i.profile.Attribute == p.Attribute {
			most--
		}
	}
	return most
}

// at is an instance that has one of the slices, or nil.
func (g *gpu) at(start, size int) *instance {
	k := slices.IndexFunc(g.instances, func(i *instance) bool {
		return i.start < start+size && start < i.start+i.profile.Memory
	})
	if k < 0 {
		return nil
	}
	return g.instances[k]
}
