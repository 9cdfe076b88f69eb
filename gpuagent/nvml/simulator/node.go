// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Node is a simulated node. As an [nvml.Library] it is the driver in the eyes of the
// program that made it; [Node.Open] gives the driver to other programs. It is safe for
// concurrent use.
type Node struct {
	*program

	seed      string
	version   string
	clock     Clock
	latency   Latency
	order     Order
	sameUUIDs bool

	mu      sync.Mutex
	hooks   Hooks
	faults  []*pending
	chance  *rand.Rand
	calls   uint64
	changes uint64 // how often what Snapshot gives has changed
	denied  bool
	missing error // what Init answers where it fails

	lives  uint64 // of the driver: how often all programs have had to call Init
	minted uint64 // how many MIG devices there have ever been
	gpus   []*gpu // in the order of the configuration
}

var _ nvml.Library = (*Node)(nil)

// gpu is the state of one GPU.
type gpu struct {
	*model
	uuid       string
	activation Activation
	stuck      bool // cannot be reset alone

	index         int
	mode, pending nvml.Mode
	held          bool // by somebody who is not among the processes
	spoiled       bool // has to be reset
	lost, gone    bool
	instances     []*instance
	processes     []process // of the GPU while it is not cut
}

type instance struct {
	id      uint32
	profile *mig.Profile
	start   int
	compute *compute
}

type compute struct {
	id        uint32
	uuid      string
	slices    int // fewer than the profile's where somebody else made it so
	processes []process
}

type process struct {
	pid       uint32
	memoryMiB int64
	sm        int
}

// New is a node as it is after its first boot: nothing cut, nobody there. The error
// says which field of the configuration is wrong.
func New(c Config) (*Node, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("simulated node: %w", err)
	}
	n := &Node{
		seed: c.Seed, version: c.DriverVersion, clock: c.Clock, latency: c.Latency, order: c.Order,
		sameUUIDs: c.SameUUIDs, hooks: c.Hooks, chance: chance(c.Seed, "order"),
	}
	n.program = &program{node: n}
	if n.version == "" {
		n.version = "550.54.15"
	}
	if n.clock == nil {
		n.clock = Wall()
	}
	for i := range c.GPUs {
		n.gpus = append(n.gpus, newGPU(c.Seed, i, &c.GPUs[i]))
	}
	return n, nil
}

func newGPU(seed string, index int, c *GPU) *gpu {
	m, err := modelNamed(c.Board)
	if err != nil { // it was checked
		panic(err)
	}
	g := &gpu{model: m, uuid: c.UUID, activation: c.Activation, stuck: c.ResetsWithOthers, index: index, mode: c.Mode, pending: c.Mode}
	if g.uuid == "" {
		g.uuid = "GPU-" + uuid(seed, "gpu", index)
	}
	if g.activation == AsTheBoard {
		g.activation = AtReset
		if m.board != nil && m.board.ModeAtOnce {
			g.activation = AtOnce
		}
	}
	return g
}

// program is one that uses the driver, with an Init of its own.
type program struct {
	node  *Node
	inits int
	life  uint64
}

// Open is the driver for another program on the node: what it does not share with the
// others is whether it has called Init.
func (n *Node) Open() nvml.Library { return &program{node: n} }

func (p *program) ready() bool {
	return p.inits > 0 && p.life == p.node.lives && p.node.missing == nil
}
