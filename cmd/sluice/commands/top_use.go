// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// gpuUse is the use of GPUs at the time of a sample.
type gpuUse string

const (
	useBusy    gpuUse = "Busy"
	useIdle    gpuUse = "Idle"
	useUnknown gpuUse = "Unknown"
)

// useFigures are how GPUs are used. Unknown figures are nil.
type useFigures struct {
	// ShareMiB is the memory that the pods may use, and MemoryMiB the memory that they use.
	ShareMiB  *int64 `json:"shareMiB,omitempty"`
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`
	Use       gpuUse `json:"use"`
	// LastActive is the last use, also while the GPUs are busy.
	LastActive *time.Time `json:"lastActive,omitempty"`
	// IdleSeconds is the idle time; nil if the GPUs are not idle.
	IdleSeconds *int64     `json:"idleSeconds,omitempty"`
	SampledAt   *time.Time `json:"sampledAt,omitempty"`
	// Old reports whether the sample is missing or too old to show the present use.
	Old bool `json:"old"`
}

// newUseFigures returns figures with the use that a sample shows. GPUs are busy if their last use is in the
// sample itself.
func newUseFigures(shareMiB, memoryMiB *int64, lastActive, sampledAt *metav1.Time) useFigures {
	f := useFigures{
		ShareMiB: knownMiB(shareMiB), MemoryMiB: knownMiB(memoryMiB),
		Use: useUnknown, LastActive: optionalTime(lastActive), SampledAt: optionalTime(sampledAt),
	}
	switch {
	case f.LastActive == nil || f.SampledAt == nil:
	case f.LastActive.Before(*f.SampledAt):
		f.Use, f.IdleSeconds = useIdle, ptr.To(wholeSeconds(f.SampledAt.Sub(*f.LastActive)))
	default:
		f.Use = useBusy
	}
	return f
}

// markOld marks figures whose sample is older than maxAge.
func (f *useFigures) markOld(now time.Time, maxAge time.Duration) {
	f.Old = f.SampledAt == nil || now.Sub(*f.SampledAt) > maxAge
}

// knownMiB returns a figure unless it is negative, which no agent writes.
func knownMiB(figure *int64) *int64 {
	if figure == nil || *figure < 0 {
		return nil
	}
	return figure
}

// combineFigures returns the figures of several pods: busy if one is, and else idle if all are known to be.
func combineFigures(all []useFigures) useFigures {
	if len(all) == 0 {
		return useFigures{Use: useUnknown}
	}
	sum := all[0]
	for _, f := range all[1:] {
		sum.ShareMiB, sum.MemoryMiB = addMiB(sum.ShareMiB, f.ShareMiB), addMiB(sum.MemoryMiB, f.MemoryMiB)
		switch {
		case sum.Use == useBusy || f.Use == useBusy:
			sum.Use = useBusy
		case f.Use == useUnknown:
			sum.Use = useUnknown
		}
		sum.LastActive = pickTime(sum.LastActive, f.LastActive, time.Time.After)
		sum.SampledAt = pickTime(sum.SampledAt, f.SampledAt, time.Time.Before)
		if sum.IdleSeconds == nil || f.IdleSeconds != nil && *f.IdleSeconds < *sum.IdleSeconds {
			sum.IdleSeconds = f.IdleSeconds
		}
		sum.Old = sum.Old || f.Old
	}
	if sum.Use != useIdle {
		sum.IdleSeconds = nil
	}
	if sum.Use == useUnknown {
		sum.LastActive = nil
	}
	return sum
}

// addMiB returns the sum of two figures, or nil if one is unknown.
func addMiB(a, b *int64) *int64 {
	if a == nil || b == nil || *a > *a+*b {
		return nil
	}
	return ptr.To(*a + *b)
}

// pickTime returns the known time that comes first.
func pickTime(a, b *time.Time, comes func(time.Time, time.Time) bool) *time.Time {
	if a == nil || b != nil && comes(*b, *a) {
		return b
	}
	return a
}
