// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Device is one that a container can be given.
type Device struct {
	// ID is unique on the node: "GPU-<uuid>" or "MIG-<uuid>".
	ID string
	// Resource is the extended resource that it is counted as.
	Resource string
}

// Grant is what one container of a pod holds.
type Grant struct {
	// Container is the container's name.
	Container string `json:"container"`
	// Devices are the IDs by resource, in the node's order.
	Devices map[string][]string `json:"devices"`
}

// Pod is a holder of devices.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Grants by container; a device that an init container has passed on to
	// another container is in both.
	Grants []Grant `json:"grants"`
	// ExitDelay is how long its processes outlive it.
	ExitDelay time.Duration `json:"exitDelay"`
	// ReleaseAt is when its processes are gone; zero while the pod lives.
	ReleaseAt time.Time `json:"releaseAt,omitzero"`
	// Processes are what runs on its devices, one for each container that holds
	// some; none before it starts.
	Processes []Process `json:"processes,omitempty"`
}

// Process is what a container runs on its devices.
type Process struct {
	// Container is the container's name.
	Container string `json:"container"`
	// PID is its identifier on the node.
	PID uint32 `json:"pid"`
	// Started is when it began.
	Started time.Time `json:"started"`
	// Command is what it was started with.
	Command []string `json:"command"`
	// Cgroup is the control group that it is in.
	Cgroup string `json:"cgroup"`
	// MemoryMiB is what it takes of each of the container's devices, by ID.
	MemoryMiB map[string]int64 `json:"memoryMiB"`
	// Utilization is how busy it keeps each device, in percent.
	Utilization int `json:"utilization"`
}

// Running reports whether the pod is not over.
func (p Pod) Running() bool { return p.ReleaseAt.IsZero() }

// Devices returns the IDs that the pod holds, each once, sorted.
func (p Pod) Devices() []string {
	var ids []string
	for _, grant := range p.Grants {
		for _, list := range grant.Devices {
			ids = append(ids, list...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// State is a node's devices and who holds them. The zero value is a node
// without devices. Methods return the next State and leave the old one as it is.
type State struct {
	inventory  []Device
	registered map[string]bool // resources that it has or has had
	pods       map[string]Pod  // by UID
}

// New returns the State of a node with these devices and holders, say from a
// checkpoint. A holder keeps a device that the node no longer has: its processes
// are there all the same.
func New(inventory []Device, pods []Pod) State {
	s := State{pods: make(map[string]Pod, len(pods))}
	for _, pod := range pods {
		s.pods[pod.UID] = pod
	}
	return s.WithInventory(inventory)
}

// WithInventory is the State after the device plugin has reported these devices, and no
// others. What is held stays held, of a device that is gone too.
func (s State) WithInventory(inventory []Device) State {
	registered := maps.Clone(s.registered)
	if registered == nil {
		registered = map[string]bool{}
	}
	for _, device := range inventory {
		registered[device.Resource] = true
	}
	return State{inventory: slices.Clone(inventory), registered: registered, pods: s.pods}
}

// Inventory returns the node's devices, in the order in which they are given.
func (s State) Inventory() []Device { return slices.Clone(s.inventory) }

// Capacity returns how many devices the node has of each resource.
func (s State) Capacity() map[string]int {
	capacity := map[string]int{}
	for _, device := range s.inventory {
		capacity[device.Resource]++
	}
	return capacity
}

// Pods returns all holders by UID, those whose processes only are left too.
func (s State) Pods() []Pod {
	return slices.SortedFunc(maps.Values(s.pods), func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// Pod returns the holder with this UID.
func (s State) Pod(uid string) (Pod, bool) {
	pod, ok := s.pods[uid]
	return pod, ok
}

// BlockingPods returns the UIDs of the pods that are over and whose processes are
// still on devices of this one, sorted. It must not start before they are gone.
func (s State) BlockingPods(uid string) []string {
	return s.overlapping(uid, func(other Pod) bool { return !other.Running() })
}

// IsBlocked returns the UIDs of the living pods that hold devices of this one,
// which is over; sorted.
func (s State) IsBlocked(uid string) []string {
	return s.overlapping(uid, Pod.Running)
}

func (s State) overlapping(uid string, which func(Pod) bool) []string {
	held := s.pods[uid].Devices()
	var uids []string
	for _, other := range s.pods {
		if other.UID != uid && which(other) && slices.ContainsFunc(other.Devices(), func(id string) bool {
			_, shared := slices.BinarySearch(held, id)
			return shared
		}) {
			uids = append(uids, other.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// End says that a pod is over, and that its processes will be gone at a time. A
// pod that was still waiting for its devices never had any, and is let go of at
// once. Of a pod that is over already the first time counts.
func (s State) End(uid string, gone time.Time) State {
	pod, ok := s.pods[uid]
	if !ok || !pod.Running() {
		return s
	}
	if len(s.BlockingPods(uid)) > 0 {
		return s.Release(uid)
	}
	pod.ReleaseAt = gone
	return s.withPods(pod)
}

// Release says that a pod's processes are gone, and frees its devices.
func (s State) Release(uid string) State {
	pods := maps.Clone(s.pods)
	delete(pods, uid)
	return State{inventory: s.inventory, registered: s.registered, pods: pods}
}

// Start says what a pod that holds devices runs on them.
func (s State) Start(uid string, processes []Process) State {
	pod, ok := s.pods[uid]
	if !ok {
		return s
	}
	pod.Processes = processes
	return s.withPods(pod)
}

func (s State) withPods(pod Pod) State {
	pods := maps.Clone(s.pods)
	if pods == nil {
		pods = map[string]Pod{}
	}
	pods[pod.UID] = pod
	return State{inventory: s.inventory, registered: s.registered, pods: pods}
}
