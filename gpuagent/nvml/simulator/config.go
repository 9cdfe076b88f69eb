// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"sync"
	"time"

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
	// ReuseUUIDs makes a MIG device's UUID a function of its GPU and its
	// identifiers, as some drivers do: an instance that is destroyed and made again
	// is then called as before. Otherwise no UUID occurs twice.
	ReuseUUIDs bool
	// Hooks are called around each call.
	Hooks Hooks
}

// GPU is one GPU of a node.
type GPU struct {
	// Model is its kind, one of [Boards], in any case.
	Model string
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
	// ModelDefault is AtOnce from Hopper on, and AtReset before.
	ModelDefault Activation = iota
	// AtOnce needs no reset, or the driver does it.
	AtOnce
	// AtReset is pending until the GPU is reset, and the answer is ErrResetRequired.
	AtReset
	// AtResetSilently is pending until the GPU is reset, and the answer does not say so.
	AtResetSilently
)

// Order is how far lists are in order.
type Order uint8

// The orders.
const (
	// PromisedOrder keeps the orders that [nvml.Library] promises and no other;
	// GPUs have other indices after a reset.
	PromisedOrder Order = iota
	// StableOrder keeps all in order, and indices as they are.
	StableOrder
	// NoOrder keeps no order, not even a promised one.
	NoOrder
)

// validate is nil where the node can be simulated.
func (c *Config) validate() error {
	if len(c.GPUs) == 0 {
		return fmt.Errorf("gpus: none; a node has at least one")
	}
	seen := map[string]int{}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		m, err := modelByName(g.Model)
		if err != nil {
			return fmt.Errorf("gpus[%d].board: %w", i, err)
		}
		if m.migModel == nil && g.Mode == nvml.Enabled {
			return fmt.Errorf("gpus[%d].mode: a %s cannot be cut; leave it disabled", i, g.Model)
		}
		if g.Activation > AtResetSilently {
			return fmt.Errorf("gpus[%d].activation: %d is none; the last is %d", i, g.Activation, AtResetSilently)
		}
		if first, twice := seen[g.UUID]; twice && g.UUID != "" {
			return fmt.Errorf("gpus[%d].uuid: %s is that of gpus[%d] already", i, g.UUID, first)
		}
		seen[g.UUID] = i
	}
	return nil
}

// DurationRange is how long something takes: at least Min, at most Max.
type DurationRange struct{ Min, Max time.Duration }

// Latency is how long the driver takes. The zero value takes no time.
type Latency struct {
	// Create and Destroy are for each GPU instance and for each compute instance.
	Create, Destroy DurationRange
	// Mode is for a change of the MIG mode, Reset for a GPU's reset.
	Mode, Reset DurationRange
	// Read is for everything else.
	Read DurationRange
}

// MeasuredLatency is what real boards have been seen to take.
func MeasuredLatency() Latency {
	const ms = time.Millisecond
	return Latency{
		Create:  DurationRange{50 * ms, 130 * ms},
		Destroy: DurationRange{120 * ms, 260 * ms},
		Mode:    DurationRange{500 * ms, 1500 * ms},
		Reset:   DurationRange{2000 * ms, 4000 * ms},
		Read:    DurationRange{0, 2 * ms},
	}
}

func (l *Latency) forMethod(method string) DurationRange {
	switch method {
	case "CreateInstance", "CreateComputeInstance":
		return l.Create
	case "DestroyInstance", "DestroyComputeInstance":
		return l.Destroy
	case "SetMIGMode":
		return l.Mode
	case "Reset":
		return l.Reset
	default:
		return l.Read
	}
}

// Clock is the time in which the driver works.
type Clock interface {
	// Now is the present instant.
	Now() time.Time
	// Sleep returns when so much time has passed.
	Sleep(time.Duration)
}

// WallClock is the machine's time.
func WallClock() Clock { return wallClock{} }

type wallClock struct{}

func (wallClock) Now() time.Time        { return time.Now() }
func (wallClock) Sleep(d time.Duration) { time.Sleep(d) }

// SkipClock is a time that only sleepers move: Sleep returns at once, and that
// much later it is. It is safe for concurrent use.
type SkipClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewSkipClock is a clock that starts there and waits for nobody.
func NewSkipClock(from time.Time) *SkipClock { return &SkipClock{now: from} }

// Now implements [Clock].
func (c *SkipClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep implements [Clock].
func (c *SkipClock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(max(0, d))
}
