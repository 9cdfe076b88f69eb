// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Instances implements [nvml.Library].
func (p *program) Instances(gpu string) ([]nvml.Instance, error) {
	n := p.node
	return ask(p, Call{Method: "Instances", GPU: gpu}, func() ([]nvml.Instance, error) {
		g, err := n.cut(gpu)
		if err != nil {
			return nil, err
		}
		var list []nvml.Instance
		for _, i := range g.instances {
			list = append(list, i.shown())
		}
		slices.SortFunc(list, func(a, b nvml.Instance) int { return cmp.Compare(a.Placement.Start, b.Placement.Start) })
		if n.order == None {
			shuffle(n.chance, list)
		}
		return list, nil
	})
}

// CreateInstance implements [nvml.Library].
func (p *program) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	n := p.node
	return ask(p, Call{Method: "CreateInstance", GPU: gpu, Profile: profile, At: at}, func() (nvml.Instance, error) {
		g, err := n.changeable(gpu)
		if err != nil {
			return nvml.Instance{}, err
		}
		it, err := n.profile(g, profile)
		switch {
		case err != nil:
			return nvml.Instance{}, err
		case at.Size != it.Memory || !slices.Contains(it.Starts, at.Start):
			return nvml.Instance{}, refuse(nvml.ErrInvalidArgument, "%s cannot lie at %d:%d", it.Name, at.Start, at.Size)
		case g.at(at.Start, at.Size) != nil:
			return nvml.Instance{}, refuse(nvml.ErrInsufficientResources, "%d:%d of %s is taken", at.Start, at.Size, gpu)
		case g.allowed(it) <= 0:
			return nvml.Instance{}, refuse(nvml.ErrInsufficientResources, "%s can have no further %s", gpu, it.Name)
		}
		n.changes++
		made := &instance{id: g.freeID(), profile: it, start: at.Start}
		g.instances = append(g.instances, made)
		return made.shown(), nil
	})
}

// DestroyInstance implements [nvml.Library].
func (p *program) DestroyInstance(gpu string, id uint32) error {
	n := p.node
	_, err := ask(p, Call{Method: "DestroyInstance", GPU: gpu, Instance: id}, func() (nothing, error) {
		g, err := n.changeable(gpu)
		if err != nil {
			return nothing{}, err
		}
		i, err := g.instance(id)
		if err != nil {
			return nothing{}, err
		}
		if i.compute != nil {
			return nothing{}, refuse(nvml.ErrInUse, "instance %d of %s has a compute instance", id, gpu)
		}
		n.changes++
		g.instances = slices.DeleteFunc(g.instances, func(other *instance) bool { return other == i })
		return nothing{}, nil
	})
	return err
}

// changeable is the GPU where its instances can be changed.
func (n *Node) changeable(uuid string) (*gpu, error) {
	g, err := n.cut(uuid)
	if err == nil && g.spoiled {
		return nil, refuse(nvml.ErrResetRequired, "%s", uuid)
	}
	return g, err
}

func (g *gpu) instance(id uint32) (*instance, error) {
	for _, i := range g.instances {
		if i.id == id {
			return i, nil
		}
	}
	return nil, refuse(nvml.ErrNotFound, "no instance %d on %s", id, g.uuid)
}

// freeID is the lowest identifier that no instance has.
func (g *gpu) freeID() uint32 {
	for id := uint32(0); ; id++ {
		if _, err := g.instance(id); err != nil {
			return id
		}
	}
}

func (i *instance) shown() nvml.Instance {
	return nvml.Instance{
		ID: i.id, Profile: nvml.ProfileID(i.profile.ID),
		Placement: nvml.Placement{Start: i.start, Size: i.profile.Memory},
	}
}
