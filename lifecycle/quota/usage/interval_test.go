// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/lifecycle/podcache"
)

// There is an interval for each GPU pod of the cluster. With a time.Time for each instant and strings of its own
// each took 378 bytes.
func TestIntervalsAreSmall(t *testing.T) {
	const workloads, podsPerWorkload, maxBytes = 2_000, 5, 300
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	uids := make([]types.UID, workloads*podsPerWorkload) // the pod cache has them
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("0f3c1a52-7d1e-4a37-9d0a-%012d", i))
	}
	var m podTracker
	before := live()
	for i, uid := range uids {
		controller := podcache.Owner{UID: uids[i/podsPerWorkload]}
		m.handleChange(podcache.Change{After: &podcache.Pod{
			Namespace: "lab", UID: uid, Node: "dgx-1", Controller: controller, Milli: 1000, Pool: "dgx", BoundAt: time.Now(),
		}})
	}
	for i, uid := range uids {
		s := m.namespaces["lab"].running[uid]
		s.setClock(fmt.Sprintf("job-train-of-the-thesis-in-the-lab-%d-0123456789", i/podsPerWorkload))
		s.attributeTo("anna.mueller@example.org", "")
	}
	if bytes := int(live()-before) / len(uids); bytes > maxBytes {
		t.Errorf("each pod takes %d bytes, want at most %d", bytes, maxBytes)
	}
	runtime.KeepAlive(&m)
}
