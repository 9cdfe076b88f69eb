// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import "sluice.dev/gpuagent/nvml"

// ComputeInstances implements [nvml.Library].
func (p *program) ComputeInstances(gpu string, id uint32) ([]nvml.ComputeInstance, error) {
	return ask(p, Call{Method: "ComputeInstances", GPU: gpu, Instance: id}, func() ([]nvml.ComputeInstance, error) {
		g, err := p.node.cut(gpu)
		if err != nil {
			return nil, err
		}
		i, err := g.instance(id)
		if err != nil || i.compute == nil {
			return nil, err
		}
		return []nvml.ComputeInstance{i.compute.shown()}, nil
	})
}

// CreateComputeInstance implements [nvml.Library]: ErrInsufficientResources where
// there is one.
func (p *program) CreateComputeInstance(gpu string, id uint32) (nvml.ComputeInstance, error) {
	n := p.node
	return ask(p, Call{Method: "CreateComputeInstance", GPU: gpu, Instance: id}, func() (nvml.ComputeInstance, error) {
		g, err := n.changeable(gpu)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		i, err := g.instance(id)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		if i.compute != nil {
			return nvml.ComputeInstance{}, refuse(nvml.ErrInsufficientResources, "instance %d of %s has its compute instance", id, gpu)
		}
		n.changes++
		i.compute = &compute{uuid: n.mint(g, i), slices: i.profile.Compute}
		return i.compute.shown(), nil
	})
}

func (c *compute) shown() nvml.ComputeInstance {
	return nvml.ComputeInstance{ID: c.id, UUID: c.uuid, Slices: c.slices}
}

// DestroyComputeInstance implements [nvml.Library].
func (p *program) DestroyComputeInstance(gpu string, id, compute uint32) error {
	n := p.node
	_, err := ask(p, Call{Method: "DestroyComputeInstance", GPU: gpu, Instance: id, Compute: compute}, func() (nothing, error) {
		g, err := n.changeable(gpu)
		if err != nil {
			return nothing{}, err
		}
		i, err := g.instance(id)
		switch {
		case err != nil:
			return nothing{}, err
		case i.compute == nil || i.compute.id != compute:
			return nothing{}, refuse(nvml.ErrNotFound, "no compute instance %d on instance %d of %s", compute, id, gpu)
		case len(i.compute.processes) > 0:
			return nothing{}, refuse(nvml.ErrInUse, "there are processes on %s", i.compute.uuid)
		}
		n.changes++
		i.compute = nil
		return nothing{}, nil
	})
	return err
}

// mint is the UUID of a new MIG device.
func (n *Node) mint(g *gpu, i *instance) string {
	n.minted++
	if n.sameUUIDs {
		return "MIG-" + uuid(n.seed, g.uuid, i.id)
	}
	return "MIG-" + uuid(n.seed, "mig", n.minted)
}
