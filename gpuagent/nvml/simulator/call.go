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
	// GPU is the UUID of its GPU, or "".
	GPU string
	// Instance and Compute are the identifiers in the arguments, Profile and At the profile and the
	// place, Mode the mode.
	Instance, Compute uint32
	Profile           nvml.ProfileID
	At                nvml.Placement
	Mode              nvml.Mode
}

// IsWrite reports whether the call changes a GPU.
func (c Call) IsWrite() bool {
	switch c.Method {
	case "SetMIGMode", "Reset", "CreateInstance", "DestroyInstance", "CreateComputeInstance", "DestroyComputeInstance":
		return true
	default:
		return false
	}
}

// String returns the call for messages: 12 CreateInstance GPU-....
func (c Call) String() string { return fmt.Sprintf("%d %s %s", c.N, c.Method, c.GPU) }

// Hooks run around each call, in the calling goroutine. They may use the node (Boot during a call),
// block (a driver that never answers), and panic or end the goroutine (a crash at that point).
type Hooks struct {
	// Before runs before the call has any effect.
	Before func(Call)
	// After runs after the effect and before the call returns, with the call's error.
	After func(Call, error)
	// Changed runs after each change of [Node.Snapshot], before the call returns. Several
	// goroutines may run it at once: to write the snapshot to disk, take it under a lock, so that
	// the newest is written last.
	Changed func()
}

// Hook replaces the hooks.
func (n *Node) Hook(h Hooks) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks = h
}

// errorf returns an error of the driver with its reason.
func errorf(as nvml.Error, format string, a ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, a...), as)
}

// simulate carries out one call: hooks, faults, latency, and the work under the node's lock.
func simulate[T any](p *session, call Call, work func() (T, error)) (answer T, err error) {
	n := p.node
	call, hooks, life, takes := n.beginCall(call)
	if hooks.Before != nil {
		hooks.Before(call)
	}
	n.clock.Sleep(takes / 2)
	answer, changed, err := executeCall(p, call, life, work)
	if changed && hooks.Changed != nil {
		hooks.Changed()
	}
	n.clock.Sleep(takes - takes/2)
	if hooks.After != nil {
		hooks.After(call, err)
	}
	if n.hasRestartedSince(life) {
		err = errorf(nvml.ErrUnknown, "the driver went away during the call")
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", call.Method, err)
	}
	return answer, nil
}

func (n *Node) beginCall(call Call) (Call, Hooks, uint64, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	call.N = n.calls
	takes := n.latency.forMethod(call.Method)
	return call, n.hooks, n.generation, takes.Min + time.Duration(n.random.Int64N(int64(max(0, takes.Max-takes.Min))+1))
}

func (n *Node) hasRestartedSince(life uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.generation != life
}

func executeCall[T any](p *session, call Call, life uint64, work func() (T, error)) (answer T, changed bool, err error) {
	n := p.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.generation != life {
		return answer, false, errorf(nvml.ErrUnknown, "the driver went away during the call")
	}
	if call.Method != "Init" && !p.isReady() {
		return answer, false, nvml.ErrUninitialized
	}
	fault := n.nextFault(call)
	if fault != nil && !fault.AfterEffect {
		return answer, false, errorf(fault.Err, "fault")
	}
	before := n.changes
	answer, err = work()
	// A late fault affects a call that succeeded; its caller does not know that it did.
	if err == nil && fault != nil {
		err = errorf(fault.Err, "fault after the effect")
	}
	return answer, n.changes != before, err
}

// Fault is an error that calls return. The zero value of each field but Err matches any call.
type Fault struct {
	// Method and GPU select the calls.
	Method, GPU string
	// Match narrows the selection. It runs under the node's lock and must not use the node.
	Match func(Call) bool
	// Skip is the number of calls that succeed first: 2 makes the third fail.
	Skip int
	// Times is the number of calls that fail; 0 means all.
	Times int
	// AfterEffect lets the call have its effect and then fail. A call that fails for another reason
	// returns that error.
	AfterEffect bool
	// Err is the returned error.
	Err nvml.Error
}

type activeFault struct {
	Fault
	seen    int
	removed bool
}

// Fail makes calls fail until over is called. If several faults match a call, it returns the first;
// all of them count it.
func (n *Node) Fail(f Fault) (over func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := &activeFault{Fault: f}
	n.faults = append(n.faults, it)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		it.removed = true
	}
}

// nextFault returns the call's fault, or nil.
func (n *Node) nextFault(call Call) (met *activeFault) {
	for _, f := range n.faults {
		if f.removed || f.Method != "" && f.Method != call.Method || f.GPU != "" && f.GPU != call.GPU || f.Match != nil && !f.Match(call) {
			continue
		}
		f.seen++
		if f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times) && met == nil {
			met = f
		}
	}
	return met
}
