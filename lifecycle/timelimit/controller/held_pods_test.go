// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/lifecycle/podcache"
)

// heldPods exists for every GPU pod of the cluster for as long as it runs, so a whole Pod would be too much: that
// cost 45 MiB for 100,000 pods.
func TestHeldPodsAreSmall(t *testing.T) {
	const clocks, podsPerClock, maxBytes = 2_000, 5, 120
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	uids := make([]types.UID, clocks*podsPerClock) // the pod cache has them
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("0f3c1a52-7d1e-4a37-9d0a-%012d", i))
	}
	h := &heldPods{}
	before := live()
	for clock := range clocks {
		var bound []*podcache.Pod
		for _, uid := range uids[clock*podsPerClock:][:podsPerClock] {
			bound = append(bound, &podcache.Pod{UID: uid, Milli: 1000, BoundAt: time.Now()})
		}
		h.observe(types.NamespacedName{Namespace: "lab", Name: string(bound[0].UID)}, bound, time.Now())
	}
	if bytes := int(live()-before) / len(uids); bytes > maxBytes {
		t.Errorf("each pod takes %d bytes, want at most %d", bytes, maxBytes)
	}
	runtime.KeepAlive(h)
}
