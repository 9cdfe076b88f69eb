// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Device is a device that the kubelet can assign to a container.
type Device struct {
	// ID is unique on the node: "GPU-<uuid>" or "MIG-<uuid>".
	ID string
	// Resource is the extended resource that counts the device.
	Resource string
}

// Grant holds the devices of one container.
type Grant struct {
	// Container is the container's name.
	Container string `json:"container"`
	// Devices lists the IDs by resource, in the node's order.
	Devices map[string][]string `json:"devices"`
}

// Pod is a holder of devices.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Grants has an entry for each container with devices. A device that an init container
	// passed on to another container is in both.
	Grants []Grant `json:"grants"`
	// ExitDelay is the time for which the processes outlive the pod.
	ExitDelay time.Duration `json:"exitDelay"`
	// ReleaseAt is the time at which the processes end; zero while the pod runs.
	ReleaseAt time.Time `json:"releaseAt,omitzero"`
	// Processes has an entry for each container with devices; it is empty before the pod
	// starts.
	Processes []Process `json:"processes,omitempty"`
}

// Process is the process of a container on its devices.
type Process struct {
	// Container is the container's name.
	Container string `json:"container"`
	// PID is the process ID on the node.
	PID uint32 `json:"pid"`
	// Started is the start time.
	Started time.Time `json:"started"`
	// Command is the command line.
	Command []string `json:"command"`
	// Cgroup is the control group.
	Cgroup string `json:"cgroup"`
	// MemoryMiB is the used memory of each of the container's devices, by ID.
	MemoryMiB map[string]int64 `json:"memoryMiB"`
	// Utilization is the utilization of each device in percent.
	Utilization int `json:"utilization"`
}

// Running reports whether the pod has not ended.
func (p Pod) Running() bool { return p.ReleaseAt.IsZero() }

// Devices returns the IDs of the pod's devices, sorted and without duplicates.
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

// State holds the devices of a node and their assignment to pods. The zero value is a node
// without devices. Methods return the next State and do not change the receiver.
type State struct {
	inventory  []Device
	registered map[string]bool // resources of present and earlier devices
	pods       map[string]Pod  // by UID
}

// New returns the State of a node with these devices and pods, for example from a
// checkpoint. A pod keeps a device that the node no longer has, since its processes may
// still use it.
func New(inventory []Device, pods []Pod) State {
	s := State{pods: make(map[string]Pod, len(pods))}
	for _, pod := range pods {
		s.pods[pod.UID] = pod
	}
	return s.WithInventory(inventory)
}

// WithInventory returns the State after the device plugin has reported these devices. Pods
// keep their devices, also those that no longer exist.
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

// Inventory returns the node's devices in the order of assignment.
func (s State) Inventory() []Device { return slices.Clone(s.inventory) }

// Capacity returns the number of the node's devices by resource.
func (s State) Capacity() map[string]int {
	capacity := map[string]int{}
	for _, device := range s.inventory {
		capacity[device.Resource]++
	}
	return capacity
}

// Pods returns all pods with devices by UID, including ended pods whose processes still
// run.
func (s State) Pods() []Pod {
	return slices.SortedFunc(maps.Values(s.pods), func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// Pod returns the pod with this UID.
func (s State) Pod(uid string) (Pod, bool) {
	pod, ok := s.pods[uid]
	return pod, ok
}

// BlockingPods returns the UIDs, sorted, of the ended pods whose processes are still on
// devices of this pod. The pod must not start before they have ended.
func (s State) BlockingPods(uid string) []string {
	return s.overlapping(uid, func(other Pod) bool { return !other.Running() })
}

// BlockedPods returns the UIDs, sorted, of the running pods that hold devices of this ended
// pod.
func (s State) BlockedPods(uid string) []string {
	return s.overlapping(uid, Pod.Running)
}

func (s State) overlapping(uid string, matches func(Pod) bool) []string {
	held := s.pods[uid].Devices()
	var uids []string
	for _, other := range s.pods {
		if other.UID != uid && matches(other) && slices.ContainsFunc(other.Devices(), func(id string) bool {
			_, shared := slices.BinarySearch(held, id)
			return shared
		}) {
			uids = append(uids, other.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// End records that a pod has ended and that its processes will end at the given time. A pod
// that was still waiting for its devices has no processes and is released at once. End does
// not change a pod that has already ended.
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

// Release records that a pod's processes have ended, and frees its devices.
func (s State) Release(uid string) State {
	pods := maps.Clone(s.pods)
	delete(pods, uid)
	return State{inventory: s.inventory, registered: s.registered, pods: pods}
}

// Start records the processes of a pod with devices.
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
