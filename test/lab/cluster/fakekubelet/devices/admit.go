// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"
)

// Kind is the kind of a container with regard to its devices.
type Kind int

const (
	// Init containers end before the following containers start, which can use their
	// devices.
	Init Kind = iota
	// LongRunning containers run as long as the pod: regular containers and sidecars.
	LongRunning
)

// Demand describes the devices that one container requests.
type Demand struct {
	// Container is the container's name.
	Container string
	Kind      Kind
	// Amounts holds the number of devices by resource.
	Amounts map[string]int64
}

// UnregisteredError reports that a node never had devices of a resource.
type UnregisteredError struct{ Resource string }

// Error returns the kubelet's message.
func (e *UnregisteredError) Error() string {
	return "cannot allocate unregistered device " + e.Resource
}

// UnhealthyError reports that a node had devices of a resource and has none now.
type UnhealthyError struct{ Resource string }

// Error returns the kubelet's message.
func (e *UnhealthyError) Error() string {
	return "no healthy devices present; cannot allocate unhealthy devices " + e.Resource
}

// UnavailableError reports that too few devices of a resource are free.
type UnavailableError struct {
	Resource string
	// Requested counts the devices that a container still needs, Available the free ones.
	Requested, Available int64
}

// Error returns the kubelet's message.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
		e.Resource, e.Requested, e.Available)
}

// Admit assigns devices to a pod and sets its grants; the caller sets UID, namespace, name
// and exit delay. demands lists first the init containers and sidecars in their order, then
// the regular containers. The pod holds as many devices as the API server counts for it:
// the larger of the needs of its init containers and of its long-running containers. The
// state does not keep a pod without demands. The error is an *UnregisteredError, an
// *UnhealthyError or an *UnavailableError.
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
			grant.Devices[resource] = s.inNodeOrder(ids)
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

// free returns, by resource, the devices that no running pod holds: first those without
// processes, then the others, both in the node's order. It has an entry for each resource
// of the node, also without free devices.
func (s State) free() map[string][]string {
	running, ended := map[string]bool{}, map[string]bool{}
	for _, pod := range s.pods {
		for _, id := range pod.Devices() {
			running[id] = running[id] || pod.Running()
			ended[id] = ended[id] || !pod.Running()
		}
	}
	free := map[string][]string{}
	for _, processes := range []bool{false, true} {
		for _, device := range s.inventory {
			list := free[device.Resource]
			if !running[device.ID] && ended[device.ID] == processes {
				list = append(list, device.ID)
			}
			free[device.Resource] = list
		}
	}
	return free
}

func (s State) inNodeOrder(ids []string) []string {
	selected := make(map[string]bool, len(ids))
	for _, id := range ids {
		selected[id] = true
	}
	ordered := make([]string, 0, len(ids))
	for _, device := range s.inventory {
		if selected[device.ID] {
			ordered = append(ordered, device.ID)
		}
	}
	return ordered
}

// allocation assigns devices to one pod.
type allocation struct {
	free       map[string][]string
	registered map[string]bool
	spare      map[string][]string // from the pod's own init containers
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
