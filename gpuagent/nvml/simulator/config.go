// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// Config describes a node to simulate.
type Config struct {
	// GPUs are its GPUs by their first index. At least one.
	GPUs []GPU
	// Seed determines all random values: UUIDs, orders, latencies. Nodes of one cluster need
	// different seeds, such as their names.
	Seed string
	// DriverVersion is the version of the driver. Default: 550.54.15. Before 550, profiles are
	// unknown while MIG mode is off.
	DriverVersion string
	// Clock is the driver's clock. Default: [WallClock].
	Clock Clock
	// Latency is the latency of calls. The zero value is none.
	Latency Latency
	// Order is the order of lists.
	Order Order
	// ReuseUUIDs derives a MIG device's UUID from its GPU and its identifiers, as some drivers do:
	// an instance that is destroyed and created again gets its former UUID. Otherwise no UUID
	// occurs twice.
	ReuseUUIDs bool
	// Hooks run around each call.
	Hooks Hooks
}

// GPU is one GPU of a node.
type GPU struct {
	// Model is its GPU model, one of [Models], in any case.
	Model string
	// UUID is its UUID. Default: derived from the seed and the GPU's position in the list.
	UUID string
	// Mode is its MIG mode after the first boot.
	Mode nvml.Mode
	// Activation is when a change of its MIG mode takes effect.
	Activation Activation
	// ResetsWithOthers makes Reset return ErrNotSupported, as on GPUs that can only be reset
	// together.
	ResetsWithOthers bool
}

// Activation is when a change of MIG mode takes effect.
type Activation uint8

// The activations.
const (
	// ModelDefault is AtOnce from Hopper on, and AtReset before.
	ModelDefault Activation = iota
	// AtOnce needs no reset, or the driver makes it.
	AtOnce
	// AtReset leaves the mode pending until the GPU is reset and returns ErrResetRequired.
	AtReset
	// AtResetSilently leaves the mode pending until the GPU is reset and returns no error.
	AtResetSilently
)

// Order is the order of lists.
type Order uint8

// The orders.
const (
	// PromisedOrder keeps only the orders that [nvml.Library] guarantees; a reset changes the GPUs'
	// indices.
	PromisedOrder Order = iota
	// StableOrder keeps all orders and indices.
	StableOrder
	// NoOrder keeps no order, not even a guaranteed one.
	NoOrder
)

// validate returns nil if the node can be simulated.
func (c *Config) validate() error {
	if len(c.GPUs) == 0 {
		return errors.New("gpus: required; a node has at least one")
	}
	seen := map[string]int{}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		m, err := modelByName(g.Model)
		if err != nil {
			return fmt.Errorf("gpus[%d].model: %w", i, err)
		}
		if m.migModel == nil && g.Mode == nvml.Enabled {
			return fmt.Errorf("gpus[%d].mode: a %s does not support MIG; leave it disabled", i, g.Model)
		}
		if g.Activation > AtResetSilently {
			return fmt.Errorf("gpus[%d].activation: %d is invalid; the last is %d", i, g.Activation, AtResetSilently)
		}
		if first, twice := seen[g.UUID]; twice && g.UUID != "" {
			return fmt.Errorf("gpus[%d].uuid: %s is the UUID of gpus[%d]", i, g.UUID, first)
		}
		seen[g.UUID] = i
	}
	return nil
}

// DurationRange is a duration of at least Min and at most Max.
type DurationRange struct{ Min, Max time.Duration }

// Latency is the latency of calls. The zero value is none.
type Latency struct {
	// Create and Destroy apply to each GPU instance and each compute instance.
	Create, Destroy DurationRange
	// Mode applies to a change of the MIG mode, Reset to a GPU's reset.
	Mode, Reset DurationRange
	// Read applies to all other calls.
	Read DurationRange
}

// MeasuredLatency is the latency measured on real GPUs.
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

// Clock is the driver's clock.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// Sleep returns after a duration.
	Sleep(time.Duration)
}

// WallClock is the machine's clock.
func WallClock() Clock { return wallClock{} }

type wallClock struct{}

func (wallClock) Now() time.Time        { return time.Now() }
func (wallClock) Sleep(d time.Duration) { time.Sleep(d) }

// SkipClock is a clock that only Sleep advances: Sleep returns at once. It is safe for concurrent
// use.
type SkipClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewSkipClock returns a clock that starts at a time.
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
