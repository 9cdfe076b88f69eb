// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

var occupiedAt = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// newReport returns the report of a node with a whole GPU and a MIG instance, of which a gone pod holds
// these devices.
func newReport(devices ...string) *v1alpha1.GPUNode {
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n-whole"}}
	node.Status.GPUs = []v1alpha1.ObservedGPU{{
		UUID: "GPU-1", Instances: []v1alpha1.ObservedInstance{{Profile: "3g.20gb", UUID: "MIG-1"}, {Profile: "7g.80gb", UUID: "MIG-2"}},
	}}
	node.Status.Pods = []v1alpha1.PodUsage{
		{PodReference: v1alpha1.PodReference{UID: "work/forced", Namespace: "work", Name: "forced"}, Devices: devices},
		{PodReference: v1alpha1.PodReference{UID: "u1", Namespace: "work", Name: "running"}, Devices: []string{"GPU-2"}},
	}
	return node
}

// Guards invariant 3 of the design: a GPU that a node still reports as held by a force-deleted pod is
// no free quota, for as long as the report is fresh.
func TestFindOccupied(t *testing.T) {
	pools := newTestPools()
	whole, mig := &pools[0], &pools[1]
	replicas := *whole
	replicas.Products = append(replicas.Products[:0:0], replicas.Products...)
	replicas.Products[0].Replicas = 4
	sampled := func(after time.Duration) func(*v1alpha1.GPUNode) {
		return func(node *v1alpha1.GPUNode) { node.Status.SampledAt = &metav1.Time{Time: occupiedAt.Add(after)} }
	}
	held := func(pool string, milli int64) []UncountedPod {
		return []UncountedPod{{Pod: "forced", Pool: pool, Uncharged: workload.Milli(milli), Preemptible: true, Gone: true}}
	}
	for name, tc := range map[string]struct {
		node     *v1alpha1.GPUNode
		change   func(*v1alpha1.GPUNode)
		pool     int
		after    time.Duration
		want     []UncountedPod
		settling bool
	}{
		"just reported":         {node: newReport("GPU-1"), after: time.Second, settling: true},
		"a GPU":                 {node: newReport("GPU-1"), after: occupiedSettleTime, want: held("whole", 1000)},
		"two GPUs":              {node: newReport("GPU-1", "GPU-3"), after: time.Minute, want: held("whole", 2000)},
		"a MIG instance":        {node: newReport("MIG-1"), pool: 1, after: time.Minute, want: held("mig", 500)},
		"one of unknown price":  {node: newReport("MIG-2"), pool: 1, after: time.Minute, want: held("mig", 1000)},
		"a replica":             {node: newReport("GPU-1"), pool: 2, after: time.Minute, want: held("whole", 250)},
		"without a device":      {node: newReport(), after: time.Minute},
		"in another pool":       {node: newReport("GPU-1"), pool: 3, after: time.Minute},
		"an agent that is gone": {node: newReport("GPU-1"), after: occupiedMaxAge},
		"a fresh sample":        {node: newReport("GPU-1"), change: sampled(time.Hour), after: time.Hour + time.Minute, want: held("whole", 1000)},
		"an old sample":         {node: newReport("GPU-1"), change: sampled(time.Hour), after: time.Hour + occupiedMaxAge},
		"a sample from before":  {node: newReport("GPU-1"), change: sampled(-time.Hour), after: time.Minute, want: held("whole", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.node)
			}
			since := map[types.UID]time.Time{"work/forced": occupiedAt}
			pool := whole
			switch tc.pool {
			case 1:
				pool = mig
			case 2:
				pool = &replicas
			case 3:
				pool = nil
			}
			got, settling := FindOccupied(tc.node, pool, since, occupiedAt.Add(tc.after))
			if diff := cmp.Diff(tc.want, got); diff != "" || settling != tc.settling {
				t.Errorf("settling %v (-want +got)\n%s", settling, diff)
			}
		})
	}
}

// The time of the first report stays until the report ends.
func TestOccupiedSince(t *testing.T) {
	var o occupied
	observe := func(minute int, gone ...types.UID) map[types.UID]time.Time {
		return o.observe("n", "work", gone, occupiedAt.Add(time.Duration(minute)*time.Minute))
	}
	observe(0, "work/a")
	o.observe("n", "other", []types.UID{"other/x"}, occupiedAt)
	if got := observe(1, "work/a", "work/b"); !got["work/a"].Equal(occupiedAt) || !got["work/b"].Equal(occupiedAt.Add(time.Minute)) {
		t.Errorf("reported since %v", got)
	}
	observe(2, "work/b")
	if got := observe(3, "work/a"); !got["work/a"].Equal(occupiedAt.Add(3 * time.Minute)) {
		t.Errorf("a new report since %v", got)
	}
	if len(o.since) != 2 {
		t.Errorf("remembered %v, want one pod of each namespace", o.since)
	}
}
