// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// The excess from which memory counts: both have to be exceeded. A CUDA context alone takes 300 to 500 MiB
// that no framework's own limit counts.
const (
	marginPercent = 5
	marginMiB     = 512
)

// Sample is the use of a node's devices at one moment.
type Sample struct {
	// At is the time of the sample, in machine time.
	At time.Time
	// Elapsed is the time since the agent's first sample. Setting the clock does not change it.
	Elapsed time.Duration
	// Devices are the GPUs without MIG mode and the MIG devices.
	Devices []DeviceUse
}

// DeviceUse is the use of one device.
type DeviceUse struct {
	Device
	// OtherMiB is the memory of processes outside of the pods; nil if it is unknown.
	OtherMiB *int64
	// Pods are the pods that have the device or a process on it.
	Pods []PodUse
}

// PodUse is the use of a device by one pod.
type PodUse struct {
	// UID is the pod's UID.
	UID types.UID
	// Governed reports that the pod belongs to a project. There are no findings on other pods.
	Governed bool
	// MemoryMiB is the memory of its processes on the device; nil if it is unknown. HasProcess reports
	// whether it has any there.
	MemoryMiB  *int64
	HasProcess bool
	// Allowance is what it may use.
	Allowance Allowance
	// NotAllocated reports that the device is certainly not the pod's.
	NotAllocated bool
	// Priority is the pod's priority, and LastActive its last use of any GPU; nil if it is unknown.
	Priority   int32
	LastActive *time.Time
}

// isAbove reports whether memory is above what is allowed by more than the margins.
func isAbove(usedMiB, allowedMiB int64) bool {
	excess := usedMiB - allowedMiB
	return excess > marginMiB && excess > allowedMiB/100*marginPercent+allowedMiB%100*marginPercent/100
}

// excessMiB returns the memory above the pod's limit, 0 within the margins. known is false if the memory or
// the share is unknown.
func (p *PodUse) excessMiB() (excess int64, known bool) {
	most := p.Allowance.MostMiB()
	if p.MemoryMiB == nil || most <= 0 || !p.Allowance.Shared {
		return 0, false
	}
	if !isAbove(*p.MemoryMiB, most) {
		return 0, true
	}
	return *p.MemoryMiB - most, true
}

// burstMiB returns the memory above the share of a pod that may burst and is within its limit.
func (p *PodUse) burstMiB() int64 {
	a := p.Allowance
	if p.MemoryMiB == nil || !a.Shared || a.LimitMiB == 0 || !isAbove(*p.MemoryMiB, a.ShareMiB) || isAbove(*p.MemoryMiB, a.LimitMiB) {
		return 0
	}
	return *p.MemoryMiB - a.ShareMiB
}

// missingMiB returns by how much the free memory of a device is below what pods within their shares were
// promised and do not use. Memory that pods above their limit will free does not count as missing. known is
// false if any memory on the device is unknown.
func (d *DeviceUse) missingMiB() (missing int64, known bool) {
	if d.MIG || d.usableMiB() == 0 || d.OtherMiB == nil {
		return 0, false
	}
	free, promised := d.usableMiB()-max(0, *d.OtherMiB), int64(0)
	for i := range d.Pods {
		p := &d.Pods[i]
		if p.MemoryMiB == nil {
			return 0, false
		}
		free -= *p.MemoryMiB
		if p.Allowance.Shared {
			promised += max(0, p.Allowance.ShareMiB-*p.MemoryMiB)
		}
		if excess, _ := p.excessMiB(); p.Governed {
			free += excess
		}
	}
	return promised - free, true
}

// conflictVictim returns the pod that has to give way on a device whose memory is missing: of those that
// burst the one with the lowest priority, then the one that was idle longest. A pod that wasVictim stays it
// while no other has a lower priority: two pods that are both in use would take turns.
func (d *DeviceUse) conflictVictim(wasVictim func(types.UID) bool) *PodUse {
	missing, known := d.missingMiB()
	if !known || missing <= marginMiB {
		return nil
	}
	var candidates []*PodUse
	for i := range d.Pods {
		if p := &d.Pods[i]; p.Governed && p.burstMiB() > 0 {
			candidates = append(candidates, p)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	return slices.MinFunc(candidates, func(a, b *PodUse) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), -compareBool(wasVictim(a.UID), wasVictim(b.UID)),
			compareLastActive(a.LastActive, b.LastActive), -cmp.Compare(a.burstMiB(), b.burstMiB()), strings.Compare(string(a.UID), string(b.UID)))
	})
}

// compareLastActive orders what was idle longest first, and what is unknown last.
func compareLastActive(a, b *time.Time) int {
	if a == nil || b == nil {
		return compareBool(a == nil, b == nil)
	}
	return a.Compare(*b)
}

func compareBool(a, b bool) int {
	number := map[bool]int{true: 1}
	return number[a] - number[b]
}

// key is a violation by a pod on a device.
type key struct {
	pod    types.UID
	device string
	reason v1alpha1.FindingReason
}

// violations returns the excess of each violation in the sample, and the keys of which the sample says
// nothing.
func (d *DeviceUse) violations(wasVictim func(types.UID) bool) (excess map[key]int64, unknown []key) {
	excess = map[key]int64{}
	if d.UUID == "" {
		return excess, nil
	}
	_, conflictKnown := d.missingMiB()
	if victim := d.conflictVictim(wasVictim); victim != nil {
		excess[key{victim.UID, d.UUID, v1alpha1.FindingMemoryConflict}] = victim.burstMiB()
	}
	for i := range d.Pods {
		p := &d.Pods[i]
		if !p.Governed || p.UID == "" {
			continue
		}
		above, known := p.excessMiB()
		exceeded := key{p.UID, d.UUID, v1alpha1.FindingShareExceeded}
		switch {
		case !known:
			unknown = append(unknown, exceeded)
		case above > 0 && !d.MIG:
			excess[exceeded] = above
		}
		if !conflictKnown {
			unknown = append(unknown, key{p.UID, d.UUID, v1alpha1.FindingMemoryConflict})
		}
		if p.NotAllocated && p.HasProcess {
			used := int64(0)
			if p.MemoryMiB != nil {
				used = *p.MemoryMiB
			}
			excess[key{p.UID, d.UUID, v1alpha1.FindingNotAllocated}] = used
		}
	}
	return excess, unknown
}
