// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	apiworkload "sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

const (
	// gpuUsageInterval is the shortest time between two writes for the GPU usage alone, in policy time.
	gpuUsageInterval = 5 * time.Minute
	// gpuUsageMaxInterval is the longest time for which measured GPU time is not counted, in policy
	// time. The activity of pods is kept for longer.
	gpuUsageMaxInterval = time.Hour
)

// PodActivity reports the activity of pods.
type PodActivity interface {
	// ActivityOf returns how long a pod was active and idle between two instants of policy time.
	// The rest was not measured.
	ActivityOf(pod types.UID, from, to time.Time) (active, idle time.Duration)
}

// gpuSample is the use of the GPUs of a workload's running pods. Figures that are unknown for any pod
// are nil.
type gpuSample struct {
	shareMiB, memoryMiB   *int64
	lastActive, sampledAt *metav1.Time
}

// addPod adds the usage of a pod to the sums of memory; nil if the pod has no fresh sample.
func (s *gpuSample) addPod(pod *v1alpha1.PodUsage) {
	share, memory := (*int64)(nil), (*int64)(nil)
	if pod != nil {
		memory = pod.MemoryMiB
		if pod.ShareMiB > 0 {
			share = &pod.ShareMiB
		}
	}
	s.shareMiB, s.memoryMiB = addKnown(s.shareMiB, share), addKnown(s.memoryMiB, memory)
}

// addKnown returns the sum of two figures; nil if any of them is unknown.
func addKnown(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	return ptr.To(*a + *b)
}

// matches reports whether the recorded figures are still valid: the memory within a twentieth.
func (s *gpuSample) matches(recorded *v1alpha1.ClockGPUUsage) bool {
	memory, was := s.memoryMiB, recorded.MemoryMiB
	if (memory == nil) != (was == nil) || (s.sampledAt == nil) != (recorded.SampledAt == nil) {
		return false
	}
	if memory != nil && *memory != *was && max(*memory-*was, *was-*memory)*20 >= *was {
		return false
	}
	return ptr.Equal(s.shareMiB, recorded.ShareMiB) && s.lastActive.Equal(recorded.LastActive)
}

// gpuHold is a time in which a pod held GPUs. The pod is empty if it is unknown.
type gpuHold struct {
	timelimit.GPUHold
	pod   types.UID
	ended bool
}

// gpuHolds returns for how long pods held GPUs since the recorded usage was counted. Pods that ended
// while lifecycle was away count until now, as in the running time.
func (r *Reconciler) gpuHolds(w *workload, recorded *v1alpha1.ClockGPUUsage) (holds []gpuHold) {
	counted := time.Time{}
	if recorded != nil && recorded.CountedUntil != nil {
		counted = recorded.CountedUntil.UTC()
	} else if w.tenant != nil {
		counted = r.gpuTimeOrigin(w)
	}
	counted = latest(counted, timelimit.OldestClockDay(w.now))
	add := func(pod heldPod, until time.Time, ended bool) {
		from := latest(r.toPolicyTime(time.Unix(pod.since, 0).UTC()).Truncate(time.Second), counted)
		if from.Before(until) {
			holds = append(holds, gpuHold{timelimit.GPUHold{Milli: pod.milli, From: from, To: until}, pod.uid, ended})
		}
	}
	held, ended := r.heldPods.observe(client.ObjectKeyFromObject(w.clock), w.boundPods(), w.now)
	for _, pod := range held {
		add(pod, w.now, false)
	}
	for _, e := range ended {
		add(e.heldPod, e.at, true)
	}
	if recorded == nil || recorded.CountedUntil == nil || w.recorded.GPUs == nil {
		return holds
	}
	unknown := w.recorded.GPUs.MilliValue()
	for i := range holds {
		if !holds[i].From.After(counted) {
			unknown -= int64(holds[i].Milli)
		}
	}
	if unknown > 0 && counted.Before(w.now) {
		holds = append(holds, gpuHold{timelimit.GPUHold{Milli: apiworkload.Milli(unknown), From: counted, To: w.now}, "", true})
	}
	return holds
}

// gpuTimeOrigin returns when the GPU time of a clock without any begins: with its project, with its root if
// the clock starts at zero, and now if its pods ran under another clock, which has their time.
func (r *Reconciler) gpuTimeOrigin(w *workload) time.Time {
	if len(w.roots) > 0 {
		if _, ran := r.Workloads.formerClock(w.roots[0]); ran {
			return w.now
		}
	}
	origin := w.project.CreationTimestamp.Time
	if w.createdAt.After(origin) {
		origin = w.createdAt
	}
	return r.toPolicyTime(origin).Truncate(time.Second)
}

// isGPUUsageDue reports whether the GPU usage must be written although nothing else changed. Without a
// change of the figures it is only if measured time would be forgotten.
func isGPUUsageDue(recorded *v1alpha1.ClockGPUUsage, sample *gpuSample, holds []gpuHold, now time.Time) bool {
	if recorded == nil || recorded.CountedUntil == nil {
		return len(holds) > 0 && sample.sampledAt != nil // a clock of an earlier version
	}
	elapsed := now.Sub(recorded.CountedUntil.Time)
	if elapsed < gpuUsageInterval {
		return false
	}
	isNew := sample.sampledAt != nil && !sample.sampledAt.Equal(recorded.SampledAt)
	return !sample.matches(recorded) || slices.ContainsFunc(holds, func(h gpuHold) bool { return h.ended }) ||
		isNew && elapsed >= gpuUsageMaxInterval
}

// countGPUUsage returns the GPU usage of a clock with the time of the holds and the present sample. It
// returns nil if no pod ever held GPUs.
func (r *Reconciler) countGPUUsage(w *workload, recorded *v1alpha1.ClockGPUUsage, holds []gpuHold) *v1alpha1.ClockGPUUsage {
	if recorded == nil && len(w.boundPods()) == 0 && len(holds) == 0 {
		return nil
	}
	next := &v1alpha1.ClockGPUUsage{
		ShareMiB: w.sample.shareMiB, MemoryMiB: w.sample.memoryMiB, LastActive: w.sample.lastActive, SampledAt: w.sample.sampledAt,
		CountedUntil: &metav1.Time{Time: w.now},
	}
	var parts []timelimit.GPUHold
	for _, h := range holds {
		for _, part := range h.SplitByDay() {
			if h.pod != "" && r.Activity != nil {
				part.Active, part.Idle = r.Activity.ActivityOf(h.pod, part.From, part.To)
			}
			parts = append(parts, part)
		}
	}
	if recorded != nil {
		next.Days = recorded.Days
	}
	next.Days = timelimit.AddToDays(next.Days, parts, w.now)
	return next
}

// recordedGPUUsage returns the GPU usage that the clock has of the workload's user. It is nil if the clock
// counts for another user's workload now.
func (w *workload) recordedGPUUsage() *v1alpha1.ClockGPUUsage {
	was, is := &w.recorded, &w.clock.Status
	if was.CreatedBy == "" || was.CreatedBy == is.CreatedBy || was.CreatedBy == is.InheritedFrom {
		return was.GPUUsage
	}
	return nil
}

func (w *workload) boundPods() []*podcache.Pod { return slices.Concat(w.runningPods, w.startingPods) }

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// heldPods remembers which pods of each workload held GPUs when it was last reconciled, so that the time of
// those that ended is counted. It is empty after a restart.
type heldPods struct {
	mu     sync.Mutex
	clocks map[types.NamespacedName]*heldState
}

// heldState is the state of one workload. It exists for each workload of the cluster, so it has of each pod
// only what its GPU time needs.
type heldState struct {
	held  []heldPod
	ended []endedPod
}

// heldPod is a pod that holds GPUs.
type heldPod struct {
	uid   types.UID
	milli apiworkload.Milli
	since int64 // its binding, else its start, in Unix seconds of machine time
}

func newHeldPod(pod *podcache.Pod) heldPod {
	since := pod.BoundAt
	if since.IsZero() {
		since = pod.EffectiveStart()
	}
	return heldPod{pod.UID, pod.Milli, since.Unix()}
}

// endedPod is a pod that held GPUs until a policy time.
type endedPod struct {
	heldPod
	at time.Time
}

// observe records the pods that hold GPUs, and returns them and those that ended and are not counted.
func (h *heldPods) observe(clock types.NamespacedName, bound []*podcache.Pod, now time.Time) ([]heldPod, []endedPod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.clocks[clock]
	if s == nil {
		if len(bound) == 0 {
			return nil, nil
		}
		if h.clocks == nil {
			h.clocks = map[types.NamespacedName]*heldState{}
		}
		s = &heldState{}
		h.clocks[clock] = s
	}
	held, present := make([]heldPod, len(bound)), make(map[types.UID]bool, len(bound))
	for i, pod := range bound {
		held[i], present[pod.UID] = newHeldPod(pod), true
	}
	for _, pod := range s.held {
		if !present[pod.uid] {
			s.ended = append(s.ended, endedPod{pod, now})
		}
	}
	s.held = held
	return held, slices.Clone(s.ended)
}

// counted forgets the pods that ended: their time is recorded.
func (h *heldPods) counted(clock types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.clocks[clock]; s != nil {
		if s.ended = nil; len(s.held) == 0 {
			delete(h.clocks, clock)
		}
	}
}

// forget forgets a clock that does not exist.
func (h *heldPods) forget(clock types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clocks, clock)
}
