// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"
)

// Kind of a container, as far as its devices are concerned.
type Kind int

const (
	// Init runs to its end before the containers after it: they are given its
	// devices again.
	Init Kind = iota
	// LongRunning runs as long as the pod: a regular container or a sidecar.
	LongRunning
)

// Demand is what one container asks for.
type Demand struct {
	// Container is the container's name.
	Container string
	Kind      Kind
	// Amounts by resource.
	Amounts map[string]int64
}

// UnregisteredError says that a node has never had devices of a resource.
type UnregisteredError struct{ Resource string }

// Error uses the kubelet's words.
func (e *UnregisteredError) Error() string {
	return "cannot allocate unregistered device " + e.Resource
}

// UnhealthyError says that a node has had devices of a resource, and has none now.
type UnhealthyError struct{ Resource string }

// Error uses the kubelet's words.
func (e *UnhealthyError) Error() string {
	return "no healthy devices present; cannot allocate unhealthy devices " + e.Resource
}

// UnavailableError says that too few devices of a resource are left.
type UnavailableError struct {
	Resource string
	// Requested is what a container still lacked, Available what there was.
	Requested, Available int64
}

// Error uses the kubelet's words.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
		e.Resource, e.Requested, e.Available)
}

// Admit gives devices to a pod (UID, namespace, name and exit delay are the
// caller's; its grants are made here). The demands are those of the init
// containers and sidecars in their order, then of the regular containers. In all
// the pod holds what the API server counts for it: the larger of what its init
// containers need and what lasts. A pod that demands nothing is not kept. The
// error is an *UnregisteredError, an *UnhealthyError or an *UnavailableError.
func (s State) Admit(pod Pod, demands []Demand) (State, error) {
	a := &allocation{free: s.free(), registered: s.registered, spare: map[string][]string{}}
	pod.Grants = nil
	for _, demand := range demands {
		grant := Grant{Container: demand.Container, Devices: map[string][]string{}}
		for _, resource := range slices.Sorted(maps.Keys(demand.Amounts)) {
			amount := demand.Amounts[resource]
			if amount <= 0 {
				continue
			}
			ids, err := a.allocate(resource, amount, demand.Kind)
			if err != nil {
				return s, err
			}
			grant.Devices[resource] = s.sortedFree(ids)
		}
		if len(grant.Devices) > 0 {
			pod.Grants = append(pod.Grants, grant)
		}
	}
	if len(pod.Grants) == 0 {
		return s, nil
	}
	return s.withPods(pod), nil
}

// free returns by resource the devices that no living pod holds: first those
// without processes, each part in the node's order. A resource that the node has
// is in it even if nothing is free.
func (s State) free() map[string][]string {
	living, lingering := map[string]bool{}, map[string]bool{}
	for _, pod := range s.pods {
		for _, id := range pod.Devices() {
			living[id] = living[id] || pod.Running()
			lingering[id] = lingering[id] || !pod.Running()
		}
	}
	free := map[string][]string{}
	for _, processes := range []bool{false, true} {
		for _, device := range s.inventory {
			list := free[device.Resource]
			if !living[device.ID] && lingering[device.ID] == processes {
				list = append(list, device.ID)
			}
			free[device.Resource] = list
		}
	}
	return free
}

func (s State) sortedFree(ids []string) []string {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	ordered := make([]string, 0, len(ids))
	for _, device := range s.inventory {
		if wanted[device.ID] {
			ordered = append(ordered, device.ID)
		}
	}
	return ordered
}

// allocation is one pod's way through what is free.
type allocation struct {
	free       map[string][]string
	registered map[string]bool
	spare      map[string][]string // of the pod's own init containers
}

func (a *allocation) allocate(resource string, amount int64, kind Kind) ([]string, error) {
	free, healthy := a.free[resource]
	if !a.registered[resource] {
		return nil, &UnregisteredError{Resource: resource}
	}
	if !healthy {
		return nil, &UnhealthyError{Resource: resource}
	}
	spare := a.spare[resource]
	reused := min(amount, int64(len(spare)))
	fresh := amount - reused
	if fresh > int64(len(free)) {
		return nil, &UnavailableError{Resource: resource, Requested: fresh, Available: int64(len(free))}
	}
	ids := slices.Concat(spare[:reused], free[:fresh])
	a.free[resource] = free[fresh:]
	if kind == Init {
		a.spare[resource] = slices.Concat(spare, free[:fresh])
	} else {
		a.spare[resource] = spare[reused:]
	}
	return ids, nil
}
