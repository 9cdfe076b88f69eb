// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

const (
	// maxGap is the time without a measurement after which a pod's use is unknown. A pod whose use was
	// unknown for longer counts as active at the next measurement: it may have used its GPUs meanwhile.
	// Readers of the GPUNode wait as long for a sample.
	maxGap = 3 * time.Minute
	// maxStep is the longest time that one measurement stands for: dcgm-exporter measures every 30 s.
	maxStep = time.Minute
	// minStep is the time that the first measurement stands for.
	minStep = time.Second
	// settlingPeriod is the time for which a new pod counts as active: its processes may have just appeared.
	settlingPeriod = 5 * time.Second
)

// Result is the use of a node's GPUs at one moment.
type Result struct {
	// At is the time of the sample, in machine time.
	At time.Time
	// Pods are the pods with a device.
	Pods map[types.UID]PodUse
	// Sources are the sources of utilization by the UUID of the GPU.
	Sources map[string]v1alpha1.UtilizationSource
	// Devices are the devices of the sample.
	Devices []Device
	// Findings are the pods that use GPUs or GPU memory beyond what they were given, the worst first.
	// Package shares finds them.
	Findings []v1alpha1.Finding
}

// PodUse is the use of one pod.
type PodUse struct {
	// LastActive is when it last used a GPU, or was first seen; nil if its use is unknown.
	LastActive *time.Time
	// MemoryMiB is the memory of its processes; nil if it is unknown.
	MemoryMiB *int64
	// ShareMiB is the memory that the pod may use, and LimitMiB that up to which it may burst if that is
	// more; 0 if unknown. Package shares evaluates both.
	ShareMiB, LimitMiB int64
	// Devices are its devices.
	Devices []DeviceUse
}

// DeviceUse is a pod's use of one device.
type DeviceUse struct {
	// UUID is the device's UUID, and GPU that of its GPU.
	UUID, GPU string
	// MemoryMiB is the memory of the pod's processes on it; nil if it is unknown.
	MemoryMiB *int64
	// Busy is the pod's use of it in percent; nil if it is unknown.
	Busy *int
	// ShareMiB is the memory that the pod may use on it; 0 if unknown.
	ShareMiB int64
}

// Tracker evaluates samples one after another. It is not safe for concurrent use.
type Tracker struct {
	first, last time.Time
	pods        map[types.UID]*podState
}

// podState is what is known about a pod.
type podState struct {
	// lastActive is its last use, and knownAt the last time at which its use was known. firstSeen is zero
	// for a pod of a former agent.
	lastActive, knownAt, firstSeen time.Time

	windows map[string]*window // by device
}

// Restore continues from what a former agent published at a time.
func (t *Tracker) Restore(pods []v1alpha1.PodUsage, sampledAt time.Time) {
	for i := range pods {
		if last := pods[i].LastActive; last != nil {
			t.setState(pods[i].UID, &podState{lastActive: last.Time, knownAt: sampledAt, windows: map[string]*window{}})
		}
	}
}

func (t *Tracker) setState(pod types.UID, state *podState) {
	if t.pods == nil {
		t.pods = map[types.UID]*podState{}
	}
	t.pods[pod] = state
}

// Add evaluates the next sample. It forgets pods without a device.
func (t *Tracker) Add(s Sample) Result {
	if t.first.IsZero() || s.At.Before(t.last) { // The clock was set back.
		t.first = s.At
		for _, state := range t.pods {
			clear(state.windows)
		}
	}
	t.last = s.At
	result := Result{At: s.At, Pods: map[types.UID]PodUse{}, Sources: map[string]v1alpha1.UtilizationSource{}, Devices: s.Devices}
	devices := map[types.UID][]*Device{}
	for i := range s.Devices {
		d := &s.Devices[i]
		result.Sources[d.GPU] = d.Source
		for _, pod := range d.users() {
			devices[pod] = append(devices[pod], d)
		}
	}
	for pod := range t.pods {
		if devices[pod] == nil {
			delete(t.pods, pod)
		}
	}
	for pod, used := range devices {
		result.Pods[pod] = t.addPod(s, pod, used)
	}
	return result
}

func (t *Tracker) addPod(s Sample, pod types.UID, devices []*Device) PodUse {
	properties, known := s.Pods[pod]
	if !known {
		properties = Pod{Share: 1, Threshold: DefaultThreshold}
	}
	state := t.pods[pod]
	if state == nil {
		state = &podState{lastActive: s.At, knownAt: s.At, firstSeen: s.At, windows: map[string]*window{}}
		t.setState(pod, state)
	}
	state.dropWindows(devices)
	use := PodUse{MemoryMiB: new(int64)}
	at := s.At.Sub(t.first)
	for _, d := range devices {
		one := DeviceUse{UUID: d.UUID, GPU: d.GPU, MemoryMiB: d.podMemory(pod)}
		w := state.windows[d.UUID]
		if w == nil {
			w = &window{last: at}
			state.windows[d.UUID] = w
		}
		w.setLength(properties.Threshold.Window)
		least, most, measured := d.podUse(pod)
		if measured {
			w.add(at, float64(least), float64(most))
		}
		if measured && least == most {
			one.Busy = &least
		}
		if one.MemoryMiB == nil || use.MemoryMiB == nil {
			use.MemoryMiB = nil
		} else {
			*use.MemoryMiB += *one.MemoryMiB
		}
		use.Devices = append(use.Devices, one)
	}
	if state.evaluate(s.At, at, devices, properties) {
		last := state.lastActive
		use.LastActive = &last
	}
	return use
}

// dropWindows forgets devices that the pod no longer has.
func (p *podState) dropWindows(devices []*Device) {
	for uuid := range p.windows {
		if !slices.ContainsFunc(devices, func(d *Device) bool { return d.UUID == uuid }) {
			delete(p.windows, uuid)
		}
	}
}

// evaluate updates the pod's last use and reports whether its use is known.
func (p *podState) evaluate(now time.Time, at time.Duration, devices []*Device, properties Pod) (known bool) {
	active, idle, current, measurable := false, true, true, true
	for _, d := range devices {
		w := p.windows[d.UUID]
		age := at - w.last
		if d.Source == v1alpha1.UtilizationUnavailable || d.Source == "" || age > maxGap {
			idle, measurable = false, false
			continue
		}
		least, most := w.means(at)
		threshold := properties.Threshold.Percent * properties.Share
		active = active || least >= threshold
		idle = idle && most < threshold
		current = current && age <= maxStep
	}
	active = active || measurable && now.Sub(p.firstSeen) < settlingPeriod
	switch {
	case active:
		p.lastActive, p.knownAt = now, now
	case idle && current:
		if now.Sub(p.knownAt) > maxGap {
			p.lastActive = now
		}
		p.knownAt = now
	}
	if p.lastActive.After(now) { // The clock was set back.
		p.lastActive = now
	}
	return active || idle
}
