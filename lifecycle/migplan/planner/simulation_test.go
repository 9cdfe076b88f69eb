// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// TestSimulatedClusters checks in random histories: no spec drops an instance that a bound pod
// holds, needs or is about to be bound to (invariant 7), no pod fails, no node without agent is
// tainted, every taint is removed and the labels of NVIDIA's GPU clients are as before (invariant 8), no
// MIG mode changes beside a client that can be paused, every pod that fits gets an instance, and then
// the planner writes nothing, although some pods can never run.
func TestSimulatedClusters(t *testing.T) {
	for name, late := range map[string]bool{"bindings in time": false, "late bindings": true} {
		t.Run(name, func(t *testing.T) { checkSimulations(t, late) })
	}
}

func checkSimulations(t *testing.T, late bool) {
	rapid.Check(t, func(t *rapid.T) {
		h := newSimulation(t)
		h.late = late
		for range rapid.IntRange(20, 400).Draw(t, "steps") {
			if h.oneIn(8) {
				h.addPod()
			}
			h.advance()
		}
		h.calm = true
		for end := h.now.Add(4 * time.Hour); h.now.Before(end); { // longer than the repeated offers to pods that can never run
			h.advance()
		}
		for _, n := range h.nodes {
			if n.taint != nil {
				h.failf("%s stays tainted", n.name)
			}
		}
		h.checkLabels()
		for _, pod := range h.pods {
			if pod.node == nil && !pod.over && !pod.avoids && pod.memory <= nodeMemory && h.hasRoomFor(pod) {
				h.failf("%s is pending for %s although it fits", pod.name, pod.profile)
			}
		}
		before := h.writes
		for range 100 {
			h.advance()
		}
		if h.writes != before {
			h.failf("%d writes without changes", h.writes-before)
		}
	})
}

// hasRoomFor reports whether a pod fits beside the instances that pods hold, apart from a GPU that is
// earmarked for another pod.
func (h *simulation) hasRoomFor(pod *simulatedPod) bool {
	for _, n := range h.nodes {
		if n.dead {
			continue
		}
		for i, instances := range n.real {
			if kept := h.state.earmarks["dgx"]; kept.gpu == gpuUUID(n.name, i) && kept.request != types.UID(pod.name) {
				continue
			}
			g := mig.GPU{Model: modelA100}
			for _, it := range instances {
				if it.pod != nil {
					g.Instances = append(g.Instances, mig.Instance{Profile: it.profile, Start: it.start, Use: mig.InUse})
				}
			}
			if change := mig.Plan([]mig.GPU{g}, []v1alpha1.MIGProfile{pod.profile}); len(change.Unmet) == 0 {
				return true
			}
		}
	}
	return false
}

// BenchmarkDecide measures a decision for many nodes without pending pods, and with pods that fit
// with or without destroying idle instances.
func BenchmarkDecide(b *testing.B) {
	for _, nodes := range []int{1, 1000} {
		for name, pending := range map[string]int{"quiet": 0, "1-pod": 1, "100-pods": 100} {
			b.Run(fmt.Sprintf("%d-nodes/%s", nodes, name), func(b *testing.B) {
				var gpus [][]string
				for range nodes {
					gpus = append(gpus, []string{
						"h100: 3g.40gb@4! 1g.10gb@0", "h100: 7g.80gb@0!", "h100: 4g.40gb@0! 3g.40gb@4!", "h100: 3g.40gb@4! 2g.20gb@0!",
						"h100: 1g.10gb@6! 1g.10gb@5!", "h100: 7g.80gb@0!", "h100: 2g.20gb@0! 2g.20gb@2! 3g.40gb@4!", "h100: 3g.40gb@4!",
					})
				}
				s := newTestSnapshot(b, gpus...)
				for i := range pending {
					s.withPendingPod(fmt.Sprintf("p%d", i), "2g.20gb")
				}
				b.ReportAllocs()
				before := processorTime(b)
				for b.Loop() {
					decide(&s.snapshot, startTime)
				}
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

// processorTime returns the processor time of this process, which a busy machine changes less than the
// duration.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
