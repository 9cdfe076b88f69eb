// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"

	"sluice.dev/gpuagent/nvml"
)

// Config is a node to simulate.
type Config struct {
	// GPUs are its GPUs, by index at first. At least one.
	GPUs []GPU
	// Seed is where all that is random comes from: UUIDs, orders, latencies. Nodes
	// of one cluster need different ones; the node's name is a good one.
	Seed string
	// DriverVersion is the version of the driver; "" means 550.54.15. Before 550
	// profiles are unknown while MIG mode is off.
	DriverVersion string
	// Clock is the driver's time; nil means [Wall].
	Clock Clock
	// Latency is how long it takes; the zero value takes no time.
	Latency Latency
	// Order is how far lists are in order.
	Order Order
	// SameUUIDs makes a MIG device's UUID a function of its GPU and its
	// identifiers, as some drivers do: an instance that is destroyed and made again
	// is then called as before. Otherwise no UUID occurs twice.
	SameUUIDs bool
	// Hooks are called around each call.
	Hooks Hooks
}

// GPU is one GPU of a node.
type GPU struct {
	// Board is its kind, one of [Boards], in any case.
	Board string
	// UUID is its identity; "" means one made of the seed and the GPU's place in
	// the list.
	UUID string
	// Mode is its MIG mode at first.
	Mode nvml.Mode
	// Activation is how a change of its MIG mode comes into force.
	Activation Activation
	// ResetsWithOthers makes Reset answer ErrNotSupported, as where boards can only be
	// reset together.
	ResetsWithOthers bool
}

// Activation is how a change of MIG mode comes into force.
type Activation uint8

// The activations.
const (
	// AsTheBoard is AtOnce from Hopper on, and AtReset before.
	AsTheBoard Activation = iota
	// AtOnce needs no reset, or the driver does it.
	AtOnce
	// AtReset is pending until the GPU is reset, and the answer is ErrResetRequired.
	AtReset
	// AtResetUnsaid is pending until the GPU is reset, and the answer does not say so.
	AtResetUnsaid
)

// Order is how far lists are in order.
type Order uint8

// The orders.
const (
	// Promised keeps the orders that [nvml.Library] promises and no other;
	// GPUs have other indices after a reset.
	Promised Order = iota
	// Steady keeps all in order, and indices as they are.
	Steady
	// None keeps no order, not even a promised one.
	None
)

// check is nil where the node can be simulated.
func (c *Config) check() error {
	if len(c.GPUs) == 0 {
		return fmt.Errorf("gpus: none; a node has at least one")
	}
	seen := map[string]int{}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		m, err := modelNamed(g.Board)
		if err != nil {
			return fmt.Errorf("gpus[%d].board: %w", i, err)
		}
		if m.board == nil && g.Mode == nvml.Enabled {
			return fmt.Errorf("gpus[%d].mode: a %s cannot be cut; leave it disabled", i, g.Board)
		}
		if g.Activation > AtResetUnsaid {
			return fmt.Errorf("gpus[%d].activation: %d is none; the last is %d", i, g.Activation, AtResetUnsaid)
		}
		if first, twice := seen[g.UUID]; twice && g.UUID != "" {
			return fmt.Errorf("gpus[%d].uuid: %s is that of gpus[%d] already", i, g.UUID, first)
		}
		seen[g.UUID] = i
	}
	return nil
}
