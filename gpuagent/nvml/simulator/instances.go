// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Instances implements [nvml.Library].
func (p *session) Instances(gpu string) ([]nvml.Instance, error) {
	n := p.node
	return simulate(p, Call{Method: "Instances", GPU: gpu}, func() ([]nvml.Instance, error) {
		g, err := n.migEnabledGPU(gpu)
		if err != nil {
			return nil, err
		}
		var list []nvml.Instance
		for _, i := range g.instances {
			list = append(list, i.toNVML())
		}
		slices.SortFunc(list, func(a, b nvml.Instance) int { return cmp.Compare(a.Placement.Start, b.Placement.Start) })
		if n.order == NoOrder {
			shuffle(n.random, list)
		}
		return list, nil
	})
}

// CreateInstance implements [nvml.Library].
func (p *session) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	n := p.node
	return simulate(p, Call{Method: "CreateInstance", GPU: gpu, Profile: profile, At: at}, func() (nvml.Instance, error) {
		g, err := n.writableGPU(gpu)
		if err != nil {
			return nvml.Instance{}, err
		}
		it, err := n.profileByID(g, profile)
		switch {
		case err != nil:
			return nvml.Instance{}, err
		case at.Size != it.Memory || !slices.Contains(it.Starts, at.Start):
			return nvml.Instance{}, errorf(nvml.ErrInvalidArgument, "%s cannot lie at %d:%d", it.Name, at.Start, at.Size)
		case g.instanceAt(at.Start, at.Size) != nil:
			return nvml.Instance{}, errorf(nvml.ErrInsufficientResources, "%d:%d of %s is occupied", at.Start, at.Size, gpu)
		case g.remainingAllowed(it) <= 0:
			return nvml.Instance{}, errorf(nvml.ErrInsufficientResources, "%s can have no further %s", gpu, it.Name)
		}
		n.changes++
		made := &instance{id: g.nextID(), profile: it, start: at.Start}
		g.instances = append(g.instances, made)
		return made.toNVML(), nil
	})
}

// DestroyInstance implements [nvml.Library].
func (p *session) DestroyInstance(gpu string, id uint32) error {
	n := p.node
	_, err := simulate(p, Call{Method: "DestroyInstance", GPU: gpu, Instance: id}, func() (noResult, error) {
		g, err := n.writableGPU(gpu)
		if err != nil {
			return noResult{}, err
		}
		i, err := g.instanceByID(id)
		if err != nil {
			return noResult{}, err
		}
		if i.computeInstance != nil {
			return noResult{}, errorf(nvml.ErrInUse, "instance %d of %s has a compute instance", id, gpu)
		}
		n.changes++
		g.instances = slices.DeleteFunc(g.instances, func(other *instance) bool { return other == i })
		return noResult{}, nil
	})
	return err
}

// writableGPU returns the GPU if its instances can be changed.
func (n *Node) writableGPU(uuid string) (*gpu, error) {
	g, err := n.migEnabledGPU(uuid)
	if err == nil && g.needsReset {
		return nil, errorf(nvml.ErrResetRequired, "%s", uuid)
	}
	return g, err
}

func (g *gpu) instanceByID(id uint32) (*instance, error) {
	for _, i := range g.instances {
		if i.id == id {
			return i, nil
		}
	}
	return nil, errorf(nvml.ErrNotFound, "no instance %d on %s", id, g.uuid)
}

// nextID returns the lowest unused identifier.
func (g *gpu) nextID() uint32 {
	for id := uint32(0); ; id++ {
		if _, err := g.instanceByID(id); err != nil {
			return id
		}
	}
}

func (i *instance) toNVML() nvml.Instance {
	return nvml.Instance{
		ID: i.id, Profile: nvml.ProfileID(i.profile.ID),
		Placement: nvml.Placement{Start: i.start, Size: i.profile.Memory},
	}
}

// ComputeInstances implements [nvml.Library].
func (p *session) ComputeInstances(gpu string, id uint32) ([]nvml.ComputeInstance, error) {
	return simulate(p, Call{Method: "ComputeInstances", GPU: gpu, Instance: id}, func() ([]nvml.ComputeInstance, error) {
		g, err := p.node.migEnabledGPU(gpu)
		if err != nil {
			return nil, err
		}
		i, err := g.instanceByID(id)
		if err != nil || i.computeInstance == nil {
			return nil, err
		}
		return []nvml.ComputeInstance{i.computeInstance.toNVML()}, nil
	})
}

// CreateComputeInstance implements [nvml.Library]. It returns ErrInsufficientResources if there is
// one.
func (p *session) CreateComputeInstance(gpu string, id uint32) (nvml.ComputeInstance, error) {
	n := p.node
	return simulate(p, Call{Method: "CreateComputeInstance", GPU: gpu, Instance: id}, func() (nvml.ComputeInstance, error) {
		g, err := n.writableGPU(gpu)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		i, err := g.instanceByID(id)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		if i.computeInstance != nil {
			return nvml.ComputeInstance{}, errorf(nvml.ErrInsufficientResources, "instance %d of %s has its compute instance", id, gpu)
		}
		n.changes++
		i.computeInstance = &computeInstance{uuid: n.newDeviceUUID(g, i), slices: i.profile.Compute}
		return i.computeInstance.toNVML(), nil
	})
}

func (c *computeInstance) toNVML() nvml.ComputeInstance {
	return nvml.ComputeInstance{ID: c.id, UUID: c.uuid, Slices: c.slices}
}

// DestroyComputeInstance implements [nvml.Library].
func (p *session) DestroyComputeInstance(gpu string, id, compute uint32) error {
	n := p.node
	_, err := simulate(p, Call{Method: "DestroyComputeInstance", GPU: gpu, Instance: id, Compute: compute}, func() (noResult, error) {
		g, err := n.writableGPU(gpu)
		if err != nil {
			return noResult{}, err
		}
		i, err := g.instanceByID(id)
		switch {
		case err != nil:
			return noResult{}, err
		case i.computeInstance == nil || i.computeInstance.id != compute:
			return noResult{}, errorf(nvml.ErrNotFound, "no compute instance %d on instance %d of %s", compute, id, gpu)
		case len(i.computeInstance.processes) > 0:
			return noResult{}, errorf(nvml.ErrInUse, "processes run on %s", i.computeInstance.uuid)
		}
		n.changes++
		i.computeInstance = nil
		return noResult{}, nil
	})
	return err
}

// newDeviceUUID returns the UUID of a new MIG device.
func (n *Node) newDeviceUUID(g *gpu, i *instance) string {
	n.createdDevices++
	if n.reuseUUIDs {
		return "MIG-" + deriveUUID(n.seed, g.uuid, i.id)
	}
	return "MIG-" + deriveUUID(n.seed, "mig", n.createdDevices)
}
