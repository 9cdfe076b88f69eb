// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import "sluice.dev/gpuagent/nvml"

// MIGMode implements [nvml.Library].
func (p *program) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := ask(p, Call{Method: "MIGMode", GPU: gpu}, func() ([2]nvml.Mode, error) {
		g, err := p.node.cuttable(gpu)
		if err != nil {
			return [2]nvml.Mode{}, err
		}
		return [2]nvml.Mode{g.mode, g.pending}, nil
	})
	return modes[0], modes[1], err
}

// SetMIGMode implements [nvml.Library].
func (p *program) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	n := p.node
	return ask(p, Call{Method: "SetMIGMode", GPU: gpu, Mode: mode}, func() (activation, err error) {
		g, err := n.cuttable(gpu)
		if err != nil {
			return nil, err
		}
		if n.denied {
			return nil, refuse(nvml.ErrNoPermission, "only root may change the MIG mode")
		}
		n.changes++
		g.pending = mode
		switch {
		case g.mode == mode:
			return nil, nil
		case g.inUse() != "":
			return refuse(nvml.ErrInUse, "%s", g.inUse()), nil
		case g.activation == AtReset:
			return refuse(nvml.ErrResetRequired, "the mode of %s is pending", gpu), nil
		case g.activation == AtOnce:
			g.mode, g.instances = mode, nil
		}
		return nil, nil
	})
}

// Reset implements [nvml.Library].
func (p *program) Reset(gpu string) error {
	n := p.node
	_, err := ask(p, Call{Method: "Reset", GPU: gpu}, func() (nothing, error) {
		g, err := n.gpu(gpu)
		switch {
		case err != nil:
			return nothing{}, err
		case n.denied:
			return nothing{}, refuse(nvml.ErrNoPermission, "only root may reset")
		case g.stuck:
			return nothing{}, refuse(nvml.ErrNotSupported, "%s can only be reset with others", gpu)
		case g.inUse() != "":
			return nothing{}, refuse(nvml.ErrInUse, "%s", g.inUse())
		}
		n.changes++
		g.reset()
		n.reindex()
		return nothing{}, nil
	})
	return err
}

// reset takes the layout away and brings the pending mode into force.
func (g *gpu) reset() {
	g.mode, g.instances, g.processes, g.spoiled = g.pending, nil, nil, false
}

// reindex gives the GPUs other indices.
func (n *Node) reindex() {
	if n.order == Steady {
		return
	}
	for i, index := range n.chance.Perm(len(n.gpus)) {
		n.gpus[i].index = index
	}
}

// inUse is by what a GPU is kept from a reset, or "".
func (g *gpu) inUse() string {
	switch {
	case len(g.everybody()) > 0:
		return "there are processes on " + g.uuid
	case g.held:
		return "somebody holds " + g.uuid
	default:
		return ""
	}
}
