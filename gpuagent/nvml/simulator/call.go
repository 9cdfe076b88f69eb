// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// Call is one call of a method of [nvml.Library].
type Call struct {
	// N is its number on this node, from 1.
	N uint64
	// Method is the method's name: CreateInstance.
	Method string
	// GPU is the UUID of the GPU it is about, "" where it is about none.
	GPU string
	// Instance and Compute are the identifiers that it was given, Profile and At
	// the profile and the place, Mode the mode.
	Instance, Compute uint32
	Profile           nvml.ProfileID
	At                nvml.Placement
	Mode              nvml.Mode
}

// Changes tells whether the call is one that changes a GPU.
func (c Call) Changes() bool {
	switch c.Method {
	case "SetMIGMode", "Reset", "CreateInstance", "DestroyInstance", "CreateComputeInstance", "DestroyComputeInstance":
		return true
	default:
		return false
	}
}

// String is the call for people: 12 CreateInstance GPU-....
func (c Call) String() string { return fmt.Sprintf("%d %s %s", c.N, c.Method, c.GPU) }

// Hooks are called around each call, from the goroutine that calls. They may
// use the node (Boot in the middle of a call), block (a driver that never
// answers), and panic or end the goroutine (a crash at that point).
type Hooks struct {
	// Before is called before the call has any effect.
	Before func(Call)
	// After is called after its effect, before the caller learns of it, with what the
	// caller will be told.
	After func(Call, error)
	// Changed is called after each change of what [Node.Snapshot] gives, before
	// the call that changed it returns. It may be called from several
	// goroutines at once: one that writes the snapshot to disk takes it under its own
	// lock, so that the newest is written last.
	Changed func()
}

// Hook replaces the hooks.
func (n *Node) Hook(h Hooks) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks = h
}

// refuse is an error of the driver with its reason.
func refuse(as nvml.Error, format string, a ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, a...), as)
}

// ask carries out one call: the hooks, the faults, the time it takes, and the work,
// which runs under the node's lock.
func ask[T any](p *program, call Call, work func() (T, error)) (answer T, err error) {
	n := p.node
	call, hooks, life, takes := n.begin(call)
	if hooks.Before != nil {
		hooks.Before(call)
	}
	n.clock.Sleep(takes / 2)
	answer, changed, err := carryOut(p, call, life, work)
	if changed && hooks.Changed != nil {
		hooks.Changed()
	}
	n.clock.Sleep(takes - takes/2)
	if hooks.After != nil {
		hooks.After(call, err)
	}
	if n.endedSince(life) {
		err = refuse(nvml.ErrUnknown, "the driver went away during the call")
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", call.Method, err)
	}
	return answer, nil
}

func (n *Node) begin(call Call) (Call, Hooks, uint64, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	call.N = n.calls
	takes := n.latency.of(call.Method)
	return call, n.hooks, n.lives, takes.Min + time.Duration(n.chance.Int64N(int64(max(0, takes.Max-takes.Min))+1))
}

func (n *Node) endedSince(life uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lives != life
}

func carryOut[T any](p *program, call Call, life uint64, work func() (T, error)) (answer T, changed bool, err error) {
	n := p.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lives != life {
		return answer, false, refuse(nvml.ErrUnknown, "the driver went away during the call")
	}
	if call.Method != "Init" && !p.ready() {
		return answer, false, nvml.ErrUninitialized
	}
	fault := n.fault(call)
	if fault != nil && !fault.Late {
		return answer, false, refuse(fault.Err, "fault")
	}
	before := n.changes
	answer, err = work()
	// A late fault is of a call that succeeded: nobody knows that it did.
	if err == nil && fault != nil {
		err = refuse(fault.Err, "fault after the effect")
	}
	return answer, n.changes != before, err
}
