// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import corev1 "k8s.io/api/core/v1"

// role is how a container's resources add up with the others'.
type role uint8

const (
	regular role = iota
	initial
	sidecar // an init container that goes on beside the regular ones
)

// tally adds up resources by name, by the API server's own rule (PodRequests in
// k8s.io/component-helpers/resource): regular containers and sidecars run all at
// once; an init container runs alone, beside the sidecars that stand before it.
// Regular containers come first, then init containers in their order.
type tally struct{ entries []entry }

// entry is one resource in all containers.
type entry struct {
	name corev1.ResourceName
	unit Unit
	// sum is of regular containers and sidecars, sidecars of those alone, and peak
	// the most while any init container ran. (The sidecars alone are never more than
	// sum.)
	sum, sidecars, peak int64
	// size is what the first container that asks says of each device.
	size size
	// first is that container, named container.
	first     place
	container string
}

// of finds or makes the entry of name.
func (t *tally) of(name corev1.ResourceName, unit Unit) *entry {
	for i := range t.entries {
		if t.entries[i].name == name {
			return &t.entries[i]
		}
	}
	t.entries = append(t.entries, entry{name: name, unit: unit})
	return &t.entries[len(t.entries)-1]
}

// add counts what one container asks for. No sum can overflow: each amount is at
// most mostDevices.
func (e *entry) add(amount int64, as role) {
	switch as {
	case regular:
		e.sum += amount
	case sidecar:
		e.sum += amount
		e.sidecars += amount
	case initial:
		e.peak = max(e.peak, e.sidecars+amount)
	}
}

// total is what the whole pod asks for.
func (e *entry) total() int64 { return max(e.sum, e.peak) }

// path is the field in which the first container asks.
func (e *entry) path() string { return e.first.resource(limits, e.name) }
