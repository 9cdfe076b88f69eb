// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import "sluice.dev/gpuagent/nvml"

// Fault is an error that calls meet. The zero value of each field but Err means any
// or no.
type Fault struct {
	// Method and GPU are the calls it is for.
	Method, GPU string
	// Match narrows them further. It runs under the node's lock: it must not use the
	// node.
	Match func(Call) bool
	// Skip is how many of them go well first: 2 makes the third fail.
	Skip int
	// Times is how many of them fail; 0 means all.
	Times int
	// Late lets the call have its effect and fail all the same. A call that
	// is refused for another reason is refused for that.
	Late bool
	// Err is the driver's answer.
	Err nvml.Error
}

type pending struct {
	Fault
	seen int
	over bool
}

// Fail makes calls fail from now on, until over is called. Where several faults are
// for a call, it meets the first; all of them count it.
func (n *Node) Fail(f Fault) (over func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := &pending{Fault: f}
	n.faults = append(n.faults, it)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		it.over = true
	}
}

// fault is what the call meets, or nil.
func (n *Node) fault(call Call) (met *pending) {
	for _, f := range n.faults {
		if f.over || f.Method != "" && f.Method != call.Method || f.GPU != "" && f.GPU != call.GPU || f.Match != nil && !f.Match(call) {
			continue
		}
		f.seen++
		if f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times) && met == nil {
			met = f
		}
	}
	return met
}
