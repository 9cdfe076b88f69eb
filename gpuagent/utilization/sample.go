// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package utilization evaluates which pods use their GPUs.
//
// A [Tracker] takes a [Sample] of all devices of a node at a time and returns the use of each pod. A pod
// is active while its mean use of a device over a window reaches a [Threshold]. Where the driver measures
// a device as a whole and several pods share it, the use of one pod lies between zero and that of the
// device: the pod then counts as idle only if even the device's use is below the threshold, and as
// unknown if it is above. What cannot be measured is never zero.
//
// The package does no I/O.
package utilization

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// Sample is the state of a node's devices at one moment.
type Sample struct {
	// At is the time of the sample, in machine time.
	At time.Time
	// Devices are the GPUs without MIG mode and the MIG devices.
	Devices []Device
	// Pods are the properties of the pods. A pod without them has the share 1 and [DefaultThreshold].
	Pods map[types.UID]Pod
}

// Pod is what a pod was given.
type Pod struct {
	// Share is its share of each of its GPUs, above 0 and up to 1. It is 1 for MIG devices.
	Share float64
	// Threshold is the use from which the pod counts as active.
	Threshold Threshold
}

// Threshold is the mean use of a pod's share over a window from which the pod counts as active.
type Threshold struct {
	// Percent is the use in percent of the pod's share.
	Percent float64
	// Window is the time over which the use is averaged.
	Window time.Duration
}

// DefaultThreshold applies to pods without a threshold of their own.
var DefaultThreshold = Threshold{Percent: 5, Window: 5 * time.Minute}

// Device is a GPU without MIG mode or a MIG device.
type Device struct {
	// UUID is its UUID, and GPU that of its GPU.
	UUID, GPU string
	// Source is the source of its utilization.
	Source v1alpha1.UtilizationSource
	// Busy is its utilization in percent since the last sample, or nvml.UnknownPercent.
	Busy int
	// PerProcess reports whether the utilization of its processes was measured.
	PerProcess bool
	// Processes are its processes. ProcessesUnknown reports that the driver did not list them.
	Processes        []Process
	ProcessesUnknown bool
	// Pods are the pods to which the kubelet assigned it.
	Pods []types.UID
}

// Process is a process on a device.
type Process struct {
	// PID is its PID on the host.
	PID uint32
	// Pod is its pod; empty outside of pods.
	Pod types.UID
	// Other describes it, without its memory, if it runs outside of pods.
	Other *v1alpha1.OtherProcess
	// MemoryMiB is its memory on the device, or nvml.UnknownMiB.
	MemoryMiB int64
	// Busy is its utilization of the device in percent, if it was measured.
	Busy int
}

// podUse returns the bounds of a pod's use of the device in percent. They are unknown if the device was
// not measured.
func (d *Device) podUse(pod types.UID) (least, most int, known bool) {
	own, others, busy := 0, 0, 0
	for i := range d.Processes {
		if d.Processes[i].Pod != pod {
			others++
			continue
		}
		own++
		busy += d.Processes[i].Busy
	}
	listed := !d.ProcessesUnknown
	switch {
	case d.Source == v1alpha1.UtilizationUnavailable || d.Source == "":
		return 0, 0, false
	case d.PerProcess && listed:
		return min(busy, 100), min(busy, 100), true
	case listed && own == 0 && (others > 0 || d.Busy <= 0):
		return 0, 0, true
	case d.Busy == nvml.UnknownPercent:
		return 0, 0, false
	case listed && own > 0 && others == 0:
		return d.Busy, d.Busy, true
	}
	return 0, d.Busy, true
}

// podMemory returns the memory of a pod's processes on the device; nil if it is unknown.
func (d *Device) podMemory(pod types.UID) *int64 {
	if d.ProcessesUnknown {
		return nil
	}
	var sum int64
	for i := range d.Processes {
		switch p := &d.Processes[i]; {
		case p.Pod != pod:
		case p.MemoryMiB == nvml.UnknownMiB:
			return nil
		default:
			sum += p.MemoryMiB
		}
	}
	return &sum
}

// users returns the pods to which the device was assigned or whose processes are on it, each once.
func (d *Device) users() []types.UID {
	var users []types.UID
	seen := map[types.UID]bool{"": true}
	add := func(pod types.UID) {
		if !seen[pod] {
			seen[pod] = true
			users = append(users, pod)
		}
	}
	for _, pod := range d.Pods {
		add(pod)
	}
	for i := range d.Processes {
		add(d.Processes[i].Pod)
	}
	return users
}
