// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// TestConditions checks which requests a condition reports, and what would help.
func TestConditions(t *testing.T) {
	preemptibleAre := func(names ...string) preemptibleFunc {
		return func(pod v1alpha1.PodReference) bool {
			for _, name := range names {
				if pod.Name == name {
					return true
				}
			}
			return false
		}
	}
	tests := map[string]struct {
		scene *testSnapshot
		may   preemptibleFunc
		want  string
	}{
		"no pending pod": {scene: newTestSnapshot(t, []string{"a100:"}), want: "True Planned no pending pod lacks an instance"},
		"an instance is being created": {
			scene: newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb"), want: "True Repartitioning repartitioning GPUs on n1",
		},
		"an unknown profile": {
			scene: newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.40gb"),
			want: "False UnknownProfile ns/p requests 3g.40gb: no GPU model of this pool has profile 3g.40gb; " +
				"available are 1g.10gb, 1g.5gb, 1g.5gb+me, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb",
		},
		"no GPUs": {
			scene: newTestSnapshot(t, nil).withPendingPod("p", "3g.40gb"),
			want:  "False InsufficientCapacity ns/p requests 3g.40gb: no agent of a feasible node has reported GPUs with MIG",
		},
		"preemption would help": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@4!a 2g.10gb@0!b 1g.5gb@3"}).
				withPendingPod("p", "4g.20gb"),
			may:  preemptibleAre("a", "b"),
			want: "False InsufficientCapacity ns/p requests 4g.20gb: it fits on node n1 after preempting 1 preemptible pods (ns/b)",
		},
		"preemption would not help": {
			scene: newTestSnapshot(t, []string{"a100: 7g.40gb@0!a"}).
				withPendingPod("p", "4g.20gb").
				withPendingPod("q", "1g.5gb"),
			may: preemptibleAre(),
			want: "False InsufficientCapacity ns/p requests 4g.20gb: pods that are not preempted hold all suitable slices; " +
				"it fits after enough of them have ended; " +
				"ns/q requests 1g.5gb: pods that are not preempted hold all suitable slices; it fits after enough of them have ended",
		},
		"a reset would help": {
			scene: newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "4g.20gb"),
			want: "False ResetRequired ns/p requests 4g.20gb: GPU 0 of node n1 is not in MIG mode, which only a reset changes: " +
				"enable it (nvidia-smi -i 0 -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain",
		},
		"a program holds the GPU": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb")
				s.pools[0].resets = v1alpha1.MIGResetsWhenIdle
				s.previousState.gpuBackoff = map[v1alpha1.GPUUUID]backoff{
					gpuUUID("n1", 0): {until: startTime.Add(time.Second), reason: "InUse: process nvidia-persistenced (812)"},
				}
				return s
			}(),
			want: "False AgentFailed ns/p requests 3g.20gb: GPU 0 of node n1 could not be repartitioned and will be retried: " +
				"InUse: process nvidia-persistenced (812)",
		},
		"a drain waits before a reset": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withWholeGPUHeld().withPendingPod("p", "3g.20gb").withTaint("n1", time.Hour, 1)
				s.pools[0].resets = v1alpha1.MIGResetsDrain
				return s
			}(),
			want: "True Repartitioning repartitioning GPUs on n1 (after the pods have ended that hold a GPU to be reset)",
		},
		"no node has another resource": {
			scene: newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "4g.20gb", func(w *podRequest) { w.resources.memory = 1 }),
			want:  "False OtherResourceMissing ns/p requests 4g.20gb: no node has enough memory for it, such as node n1",
		},
		"the changes of an hour": {
			scene: newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "4g.20gb").withChanges("n1", 2, time.Minute),
			want: "False ChangeLimitReached ns/p requests 4g.20gb: node n1: it was repartitioned 2 times within an hour, and " +
				"spec.mig.maxChangesPerHour of the node pool is 2; the next change is possible at 2026-11-21T12:59:00Z",
		},
		"a node that has no GPUNode yet": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, nil, []string{"a100: 7g.40gb@0!a"}).withPendingPod("p", "4g.20gb")
				s.nodes[0].observed, s.pools[0].maxChangesPerHour = nil, defaultMaxChangesPerHour
				return s
			}(),
			want: "False InsufficientCapacity ns/p requests 4g.20gb: there is no room now; node n1: it has no GPUNode",
		},
		"bindings without end": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "4g.20gb")
				s.previousState.nodeBackoff = map[string]backoff{"n1": {until: startTime.Add(time.Second), reason: "GPU pods were still bound"}}
				return s
			}(),
			want: "False InsufficientCapacity ns/p requests 4g.20gb: there is no room now; node n1: it is in backoff: GPU pods were still bound",
		},
		"an agent that does not report": {
			scene: withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").
				updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 }),
			want: "False AgentFailed the agent of node n1 has not applied the last layout; check that it runs",
		},
		"an agent that failed": {
			scene: withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").updateGPUNode("n1", setLayoutNotApplied),
			want:  "False AgentFailed node n1 could not be repartitioned: DriverError: create: insufficient resources",
		},
		"allocatable still has destroyed instances": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withTaint("n1", time.Hour, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-7g.40gb", 1}}
				return s
			}(),
			want: "False AgentFailed node n1 accepts no pods, since its allocatable still has destroyed instances; restart its device plugin",
		},
		"containers cannot open the devices": {
			scene: withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").updateGPUNode("n1", setDeviceNodesMissing).
				withTaint("n1", time.Minute, 1),
			want: "False AgentFailed node n1 accepts no pods: DeviceNodesMissing: nvidia-cap66 does not exist",
		},
		"another strategy": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"})
				s.nodes[0].unsuitableReason = unsuitableReason(
					&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"nvidia.com/mig.strategy": "single"}}},
				)
				return s
			}(),
			want: `False NodesUnsuitable node n1: its device plugin has the MIG strategy "single"; only mixed lets a pod request a profile`,
		},
		"more pods than a message lists": {
			scene: newTestSnapshot(t, []string{"a100: 7g.40gb@0!"}).
				withPendingPod("p", "9g.1gb").
				withPendingPod("q", "9g.1gb").
				withPendingPod("r", "9g.1gb").
				withPendingPod("s", "9g.1gb").withPendingPod("t", "9g.1gb").withPendingPod("u", "9g.1gb").withSingleProfile(),
			want: "False UnknownProfile ns/p requests 9g.1gb: no GPU model of this pool has profile 9g.1gb; available are 7g.40gb; " +
				"ns/q requests 9g.1gb: no GPU model of this pool has profile 9g.1gb; available are 7g.40gb; " +
				"ns/r requests 9g.1gb: no GPU model of this pool has profile 9g.1gb; available are 7g.40gb; " +
				"ns/s requests 9g.1gb: no GPU model of this pool has profile 9g.1gb; available are 7g.40gb; and 2 more",
		},
		"a static pool": {
			scene: newTestSnapshot(t, []string{"a100: 7g.40gb@0"}).withStaticLayout(layoutOf(map[v1alpha1.MIGProfile]int32{"7g.40gb": 1})),
			want:  "True Planned the GPUs have the layout of spec.mig.layout",
		},
		"a static pool with an impossible layout": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(map[v1alpha1.MIGProfile]int32{"7g.40gb": 2})),
			want:  "False LayoutImpossible GPU 0 of node n1 (A100-40GB) cannot be partitioned into 7g.40gb: 2: no room for 7g.40gb",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(&tt.scene.snapshot, startTime)
			c := d.conditions(tt.may)[0]
			if diff := cmp.Diff(tt.want, string(c.Status)+" "+c.Reason+" "+c.Message); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// withSingleProfile limits the driver to one profile.
func (s *testSnapshot) withSingleProfile() *testSnapshot {
	return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.GPUs[0].MIGProfiles = []v1alpha1.MIGProfile{"7g.40gb"} })
}
