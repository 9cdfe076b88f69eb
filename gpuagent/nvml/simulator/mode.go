// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"sluice.dev/gpuagent/nvml"
)

// MIGMode implements [nvml.Library].
func (p *session) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := simulate(p, Call{Method: "MIGMode", GPU: gpu}, func() ([2]nvml.Mode, error) {
		g, err := p.node.migCapableGPU(gpu)
		if err != nil {
			return [2]nvml.Mode{}, err
		}
		return [2]nvml.Mode{g.mode, g.pending}, nil
	})
	return modes[0], modes[1], err
}

// SetMIGMode implements [nvml.Library].
func (p *session) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	n := p.node
	return simulate(p, Call{Method: "SetMIGMode", GPU: gpu, Mode: mode}, func() (activation, err error) {
		g, err := n.migCapableGPU(gpu)
		if err != nil {
			return nil, err
		}
		if n.denied {
			return nil, errorf(nvml.ErrNoPermission, "only root may change the MIG mode")
		}
		n.changes++
		g.pending = mode
		switch {
		case g.mode == mode:
			return nil, nil
		case g.inUseReason() != "":
			return errorf(nvml.ErrInUse, "%s", g.inUseReason()), nil
		case g.activation == AtReset:
			return errorf(nvml.ErrResetRequired, "the mode of %s is pending", gpu), nil
		case g.activation == AtOnce:
			g.mode, g.instances = mode, nil
		}
		return nil, nil
	})
}

// Reset implements [nvml.Library].
func (p *session) Reset(gpu string) error {
	n := p.node
	_, err := simulate(p, Call{Method: "Reset", GPU: gpu}, func() (noResult, error) {
		g, err := n.gpuByUUID(gpu)
		switch {
		case err != nil:
			return noResult{}, err
		case n.denied:
			return noResult{}, errorf(nvml.ErrNoPermission, "only root may reset")
		case g.resetsWithOthers:
			return noResult{}, errorf(nvml.ErrNotSupported, "%s can only be reset with others", gpu)
		case g.inUseReason() != "":
			return noResult{}, errorf(nvml.ErrInUse, "%s", g.inUseReason())
		}
		n.changes++
		g.applyReset()
		n.shuffleIndices()
		return noResult{}, nil
	})
	return err
}

// applyReset destroys the instances and activates the pending mode.
func (g *gpu) applyReset() {
	g.mode, g.instances, g.processes, g.needsReset = g.pending, nil, nil, false
}

// shuffleIndices gives the GPUs other indices.
func (n *Node) shuffleIndices() {
	if n.order == StableOrder {
		return
	}
	for i, index := range n.random.Perm(len(n.gpus)) {
		n.gpus[i].index = index
	}
}

// inUseReason returns why the GPU cannot be reset, or "".
func (g *gpu) inUseReason() string {
	switch {
	case len(g.allProcesses()) > 0:
		return "processes run on " + g.uuid
	case g.held:
		return "another program holds " + g.uuid
	default:
		return ""
	}
}
