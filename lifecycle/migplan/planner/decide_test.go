// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// withSpecApplied sets a spec of generation 2 that the agent has observed, with this layout of GPU 0.
func withSpecApplied(s *testSnapshot, text string) *testSnapshot {
	return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Generation, o.Status.ObservedGeneration = 2, 2
		o.Status.GPUs[0] = newObservedGPU(s, "n1", 0, text)
		o.Spec.GPUs = []v1alpha1.DesiredGPU{
			{UUID: gpuUUID("n1", 0), MIGEnabled: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 0}}},
		}
	})
}

func setLayoutNotApplied(o *v1alpha1.GPUNode) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: "DriverError", Message: "create: insufficient resources",
	})
}

// setDeviceNodesMissing has the agent report an applied layout of which the device plugin was not told.
func setDeviceNodesMissing(o *v1alpha1.GPUNode) {
	setLayoutNotApplied(o)
	o.Status.Conditions[0].Reason, o.Status.Conditions[0].Message = v1alpha1.ReasonDeviceNodesMissing, "nvidia-cap66 does not exist"
}

func setDevicesShared(o *v1alpha1.GPUNode) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDevicesShared, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDevicesReplicated, Message: "replicas",
	})
}

func TestDecide(t *testing.T) {
	since := func(ago time.Duration) func(*podRequest) {
		return func(w *podRequest) { w.unschedulableSince = startTime.Add(-ago) }
	}
	tests := map[string]struct {
		scene func() *testSnapshot
		want  []string
	}{
		"no pending pod": {scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}) }},
		"a pending pod": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb") },
			want:  []string{"taint n1"},
		},
		"a GPU that only its driver describes": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "2g.30gb+gfx")
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Status.GPUs[0].DeviceID, o.Status.GPUs[0].MIGProfiles = "0x999910DE", []v1alpha1.MIGProfile{"2g.30gb+gfx"}
					o.Status.GPUs[0].MIGPlacements = []v1alpha1.MIGPlacement{{Profile: "2g.30gb+gfx", Size: 2, Starts: []int32{0, 2}, Max: 2}}
				})
			},
			want: []string{"taint n1"},
		},
		"unschedulable for less than the grace period": {scene: func() *testSnapshot {
			return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", since(unschedulableGracePeriod/2))
		}},
		"an idle instance exists": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).withPendingPod("p", "3g.20gb")
			},
		},
		"an idle instance was not used within the grace period": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				return s.withOffer("p", "n1", idleOfferGracePeriod)
			},
			want: []string{"taint n2"},
		},
		"no other resource that it needs is free": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", func(w *podRequest) { w.resources.memory = 4 << 40 })
			},
		},
		"the other resources are free on another node": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}, []string{"a100:"})
				s.nodes[1].free.memory = 1 << 40
				return s.withPendingPod("p", "3g.20gb", func(w *podRequest) { w.resources.memory = 1 << 40 })
			},
			want: []string{"taint n2"},
		},
		"the other resources suffice for one of two pods": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withTaint("n1", bindSettleTime, 1)
				s.nodes[0].free.memory = 1 << 40
				large := func(w *podRequest) { w.resources.memory = 1<<39 + 1 }
				return s.withPendingPod("p", "3g.20gb", large).withPendingPod("q", "1g.5gb", large)
			},
			want: []string{"write n1 [3g.20gb@4]"},
		},
		"a pod in its binding cycle holds the idle instance": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb").
					withPendingPod("r", "3g.20gb", func(w *podRequest) { w.unschedulableSince, w.nominated = time.Time{}, "n1" })
			},
		},
		"a pod in its binding cycle is no demand": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).
					withPendingPod("p", "3g.20gb", func(w *podRequest) { w.nominated = "n1" }).withOffer("p", "n1", time.Minute)
			},
		},
		"a nomination counts for a quarter of an hour": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb").
					withPendingPod("r", "3g.20gb", func(w *podRequest) { w.unschedulableSince, w.nominated = time.Time{}, "n1" }).
					withOffer("r", "n1", nominationPeriod)
				s.previousState.nominations = map[types.UID]nomination{"r": {"n1", startTime.Add(-nominationPeriod)}}
				return s
			},
			want: []string{"taint n1"},
		},
		"a pod that may be in its binding cycle holds the idle instance": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb").
					withPendingPod("r", "3g.20gb", func(w *podRequest) { w.unschedulableSince = time.Time{} }).
					withOffer("r", "n1", claimPeriod-time.Second)
			},
		},
		"but only for ten minutes": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb").
					withPendingPod("r", "3g.20gb", func(w *podRequest) { w.unschedulableSince = time.Time{} }).
					withOffer("r", "n1", claimPeriod)
			},
			want: []string{"taint n1"},
		},
		"an instance made for a pod is kept from others": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).withPendingPod("p", "4g.20gb").withMade("n1", "3g.20gb", 0, 0, time.Minute)
			},
		},
		"but not from a pod of higher priority": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb", func(w *podRequest) { w.priority = 1 }).withMade("n1", "3g.20gb", 0, 0, time.Minute)
			},
			want: []string{"taint n1"},
		},
		"and not for longer than ten minutes": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).withPendingPod("p", "4g.20gb").withMade("n1", "3g.20gb", 0, 0, madePeriod)
			},
			want: []string{"taint n1"},
		},
		"an offer that was ignored is not repeated": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.offers = map[types.UID]podOffers{"p": {"n1": {ignored: backoff{failures: 1, until: startTime.Add(time.Second)}}}}
				return s
			},
		},
		"an ignored offer is repeated after a while": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.offers = map[types.UID]podOffers{"p": {"n1": {ignored: backoff{failures: 1, until: startTime}}}}
				return s
			},
			want: []string{"taint n1"},
		},
		"but not for ever": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				same := s.nodes[0].observed.podsDigest
				s.previousState.offers = map[types.UID]podOffers{"p": {"n1": {ignored: backoff{failures: maxIgnoredOffers}, pods: same}}}
				return s
			},
		},
		"except if the node's pods have changed": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.offers = map[types.UID]podOffers{"p": {"n1": {ignored: backoff{failures: maxIgnoredOffers}, pods: 1}}}
				return s
			},
			want: []string{"taint n1"},
		},
		"the changes of an hour": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withChanges("n1", defaultMaxChangesPerHour, time.Minute)
			},
		},
		"the changes of the hour before": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withChanges("n1", defaultMaxChangesPerHour, time.Hour)
			},
			want: []string{"taint n1"},
		},
		"a large instance after a while": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 1g.5gb@0!q 1g.5gb@1!r"}, []string{"a100: 1g.5gb@0!s 1g.5gb@1"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay))
			},
			want: []string{"taint n2"},
		},
		"but not before": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 1g.5gb@0!q 1g.5gb@1!r"}, []string{"a100: 1g.5gb@0!s 1g.5gb@1"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay-time.Second))
			},
		},
		"no instance is made on an earmarked GPU": {
			scene: func() *testSnapshot {
				full := []string{"a100: 7g.40gb@0!"}
				s := newTestSnapshot(t, []string{"a100: 1g.5gb@0!q"}, []string{"a100: 4g.20gb@0!r 1g.5gb@4!s 1g.5gb@5!u"}, full, full).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).withPendingPod("v", "1g.5gb")
				s.previousState.earmarks = map[string]earmark{"dgx": {request: "p", gpu: gpuUUID("n1", 0)}}
				return s
			},
			want: []string{"taint n1", "taint n2"},
		},
		"an earmarked GPU drains for five minutes at a time": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 4g.20gb@0!q"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).withPendingPod("v", "4g.20gb").withTaint("n1", drainTimeout-time.Second, 1)
			},
		},
		"and then accepts pods again": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 4g.20gb@0!q"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).withPendingPod("v", "4g.20gb").withTaint("n1", drainTimeout, 1)
			},
			want: []string{"untaint n1 paused"},
		},
		"but only some times while no pod ends, also if another GPU was earmarked in between": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 4g.20gb@0!q"}, []string{"a100: 7g.40gb@0!r"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).withPendingPod("v", "4g.20gb")
				s.previousState.earmarks = map[string]earmark{"dgx": {request: "v", gpu: gpuUUID("n2", 0)}}
				s.previousState.holds = map[v1alpha1.GPUUUID]gpuHolds{gpuUUID("n1", 0): {maxHolds, s.nodes[0].observed.gpus[0].podsDigest()}}
				return s
			},
		},
		"and again once one has ended": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 4g.20gb@0!q"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).withPendingPod("v", "4g.20gb")
				s.previousState.holds = map[v1alpha1.GPUUUID]gpuHolds{gpuUUID("n1", 0): {maxHolds, 1}}
				return s
			},
			want: []string{"taint n1"},
		},
		"unless for a more urgent pod": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 1g.5gb@0!q"}, []string{"a100: 7g.40gb@0!r"}).
					withPendingPod("p", "7g.40gb", since(earmarkDelay)).
					withPendingPod("v", "1g.5gb", func(w *podRequest) { w.priority = 1 })
				s.previousState.earmarks = map[string]earmark{"dgx": {request: "p", gpu: gpuUUID("n1", 0)}}
				return s
			},
			want: []string{"taint n1"},
		},
		"no feasible node": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", func(w *podRequest) { w.feasible = []bool{false} })
			},
		},
		"bindings have not settled": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", time.Second, 1)
			},
		},
		"a recent binding": {
			scene: func() *testSnapshot {
				late := boundPod{uid: "q", bound: startTime.Add(-time.Second), wholeGPUs: 1}
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime+time.Second, 1, late)
			},
		},
		"a recent binding of a pod without GPUs": {
			scene: func() *testSnapshot {
				late := boundPod{uid: "q", bound: startTime.Add(-time.Second)}
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime+time.Second, 1, late)
			},
			want: []string{"write n1 [3g.20gb@4]"},
		},
		"bindings of GPU pods without end": {
			scene: func() *testSnapshot {
				late := boundPod{uid: "q", bound: startTime.Add(-time.Second), instanceRequests: []instanceRequest{oneInstance("1g.5gb")}}
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", settleTimeout, 1, late)
			},
			want: []string{"untaint n1 timed-out"},
		},
		"the pods are listed": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).
					withPendingPod("p", "3g.20gb").
					withPendingPod("q", "1g.5gb").
					withTaint("n1", bindSettleTime, 1)
			},
			want: []string{"write n1 [1g.5gb@3 3g.20gb@4]"},
		},
		"a bound pod needs the idle instance": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 7g.40gb@0"}).
					withPendingPod("p", "3g.20gb").
					withTaint("n1", bindSettleTime, 1, newClaim("q", oneInstance("7g.40gb")))
			},
			want: []string{"untaint n1 abandoned"},
		},
		"an instance held by the pod is not counted twice": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).
					withPendingPod("p", "4g.20gb").
					withTaint("n1", bindSettleTime, 1, newClaim("q", oneInstance("3g.20gb")))
			},
			want: []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"a taint without a time": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"taint n1"},
		},
		"a taint that is too old": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", time.Hour, 1)
			},
			want: []string{"taint n1"},
		},
		"no pending pod any more": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, 1) },
			want:  []string{"untaint n1 abandoned"},
		},
		"the agent applies the spec": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
		},
		"the agent does not report": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", taintMaxAge+agentTimeout, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"write n1 [] restored"},
		},
		"the agent does not report and the layout matches": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", taintMaxAge+agentTimeout, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"untaint n1 timed-out"},
		},
		"allocatable still has destroyed instances": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", time.Hour, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-3g.20gb", 1}, {"nvidia.com/mig-7g.40gb", 1}}
				return s
			},
		},
		"allocatable lacks the instance": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{}
				return s
			},
		},
		"allocatable lacks the instance after the timeout": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", taintMaxAge+agentTimeout+allocatableTimeout, 1)
				s.nodes[0].allocatable = deviceCounts{}
				return s
			},
			want: []string{"untaint n1 timed-out"},
		},
		"allocatable still has destroyed instances after the timeout": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-3g.20gb", 1}, {"nvidia.com/mig-7g.40gb", 1}}
				return s
			},
		},
		"a mode that the driver could not set, since the GPU was in use": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"h100 off"}).withPendingPod("p", "3g.40gb").
					updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.GPUs[0].MIG.Pending = v1alpha1.MIGModeEnabled })
			},
			want: []string{"taint n1"},
		},
		"containers cannot open the devices": {
			scene: func() *testSnapshot {
				return withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					updateGPUNode("n1", setDeviceNodesMissing).
					withTaint("n1", 10*time.Second, 1)
			},
		},
		"containers cannot open the devices, and the device plugin offers the former ones": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100: 3g.20gb@4"}), "a100: 3g.20gb@0 3g.20gb@4").
					updateGPUNode("n1", setDeviceNodesMissing).
					withTaint("n1", time.Hour, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-3g.20gb", 1}}
				return s
			},
		},
		"all instances are allocatable": {
			scene: func() *testSnapshot {
				return withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
			},
			want: []string{"untaint n1 done"},
		},
		"the layout could not be applied": {
			scene: func() *testSnapshot {
				return withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 7g.40gb@0").
					updateGPUNode("n1", setLayoutNotApplied).
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
			},
			want: []string{"write n1 [7g.40gb@0] restored"},
		},
		"the former layout is restored": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 7g.40gb@0").
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Spec.GPUs[0].Instances = []v1alpha1.DesiredInstance{{Profile: "7g.40gb"}}
					setLayoutNotApplied(o)
				})
			},
			want: []string{"untaint n1 failed"},
		},
		"its GPUNode was deleted": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, 1)
				s.nodes[0].observed = nil
				return s
			},
			want: []string{"untaint n1 abandoned"},
		},
		"a taint by another writer": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, -1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a node in a change comes first": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 1g.5gb@6!q"}, []string{"a100:"}).
					withPendingPod("p", "3g.20gb").
					withTaint("n2", bindSettleTime, 1)
			},
			want: []string{"write n2 [3g.20gb@4]"},
		},
		"half of a pool at a time": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}, []string{"a100:"}, []string{"a100:"}, []string{"a100:"}).
					withPendingPod("p", "7g.40gb").withPendingPod("q", "7g.40gb").withPendingPod("r", "7g.40gb").withPendingPod("s", "7g.40gb")
			},
			want: []string{"taint n1", "taint n2"},
		},
		"pods that can use the node as it is come first": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}).
					withPendingPod("p", "3g.20gb", since(2*time.Second)).
					withPendingPod("q", "2g.10gb", since(2*time.Second))
			},
		},
		"but only for a while": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}).
					withPendingPod("p", "3g.20gb").
					withPendingPod("q", "2g.10gb", since(idleUseTimeout))
			},
			want: []string{"taint n1"},
		},
		"backoff after a change": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.nodeBackoff = map[string]backoff{"n1": {until: startTime.Add(time.Second)}}
				return s
			},
		},
		"a lost GPU keeps its layout": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100 lost:"}).withPendingPod("p", "3g.20gb") },
		},
		"a foreign instance keeps its place": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 4g.20gb@0?"}).withPendingPod("p", "4g.20gb")
			},
		},
		"foreign instances are not in the spec": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 4g.20gb@0?"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1)
			},
			want: []string{"write n1 [3g.20gb@4]"},
		},
		"replicas of each device": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").updateGPUNode("n1", setDevicesShared)
			},
		},
		"replicas of the first device": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					updateGPUNode("n1", setDevicesShared).
					withPendingPod("p", "3g.20gb").
					withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-3g.20gb", 4}}
				return s
			},
			want: []string{"untaint n1 failed"},
		},
		"an agent that never reported": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Status.SampledAt = nil
				})
			},
		},
		"a silent agent": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Status.SampledAt = &metav1.Time{Time: startTime.Add(-agentSilenceTimeout)}
				})
			},
		},
		"a profile with another rounding of its memory": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").
					withPendingPod("p", "3g.19gb").
					withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{{"nvidia.com/mig-3g.19gb", 1}}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a GPU out of MIG mode last": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"h100 off", "h100: 3g.40gb@4!"}).
					withPendingPod("p", "3g.40gb").
					withPendingPod("q", "7g.80gb").
					withTaint("n1", bindSettleTime, 1)
			},
			want: []string{"write n1 [7g.80gb@0] 1[3g.40gb@0 3g.40gb@4]"},
		},
		"a GPU without holder changes its mode at once": {scene: func() *testSnapshot {
			return newTestSnapshot(t, []string{"h100 off held"}).withWholeGPUHeld().withPendingPod("p", "3g.40gb")
		}},
		"an unknown holder of a whole GPU": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"h100 off"}).
					withPendingPod("p", "3g.40gb").
					withTaint("n1", bindSettleTime, 1, boundPod{uid: "h", wholeGPUs: 1})
			},
			want: []string{"untaint n1 abandoned"},
		},
		"the unknown holder is remembered": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"h100 off"}).withPendingPod("p", "3g.40gb")
				s.previousState.unknownHoldersUntil = map[string]time.Time{"n1": startTime.Add(time.Second)}
				return s
			},
		},
		"resets are not allowed": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb") },
		},
		"resets are allowed": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1)
				s.pools[0].resets = v1alpha1.MIGResetsWhenIdle
				return s
			},
			want: []string{"write n1 [3g.20gb@4]reset"},
		},
		"a drain waits for the pods": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withWholeGPUHeld().withPendingPod("p", "3g.20gb").withTaint("n1", drainTimeout-time.Second, 1)
				s.pools[0].resets = v1alpha1.MIGResetsDrain
				return s
			},
		},
		"a drain ends after a while": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withWholeGPUHeld().withPendingPod("p", "3g.20gb").withTaint("n1", drainTimeout, 1)
				s.pools[0].resets = v1alpha1.MIGResetsDrain
				return s
			},
			want: []string{"untaint n1 timed-out"},
		},
		"several instances on one node": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 7g.40gb@0!"}, []string{"a100: 3g.20gb@4", "a100:"}).
					withPendingPod("p", "3g.20gb", func(w *podRequest) { w.instanceRequests[0].count = 3 }).withTaint("n2", bindSettleTime, 1)
			},
			want: []string{"write n2 [3g.20gb@0 3g.20gb@4] 1[3g.20gb@4]"},
		},
		"the preferred pool": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 7g.40gb@0!"}, []string{"a100:"})
				s.pools = append(s.pools, pool{name: "other"})
				s.addNode("o1", 1, []string{"a100:"})
				return s.withPendingPod("p", "3g.20gb", func(w *podRequest) { w.poolOrder = []int{1, 0} }).
					withPendingPod("q", "7g.40gb", func(w *podRequest) { w.poolOrder = []int{0, 1} })
			},
			want: []string{"taint n2", "taint o1"},
		},
		"the next pool if the preferred one has no room": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 7g.40gb@0!"})
				s.pools = append(s.pools, pool{name: "other"})
				s.addNode("o1", 1, []string{"a100:"})
				return s.withPendingPod("p", "3g.20gb", func(w *podRequest) { w.poolOrder = []int{0, 1} })
			},
			want: []string{"taint o1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.scene().decideActions()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// withOffer records that a node has had idle instances for a pod for some time.
func (s *testSnapshot) withOffer(pod, node string, ago time.Duration) *testSnapshot {
	s.previousState.offers = map[types.UID]podOffers{types.UID(pod): {node: {available: startTime.Add(-ago), usable: startTime.Add(-ago)}}}
	return s
}

// withMade records that an instance of GPU 0 was made for a request of a priority.
func (s *testSnapshot) withMade(node string, name v1alpha1.MIGProfile, start int, priority int32, ago time.Duration) *testSnapshot {
	profile, err := modelA100.Profile(name)
	if err != nil {
		s.Fatal(err)
	}
	s.previousState.made = map[place]madeInstance{{gpuUUID(node, 0), profile, start}: {startTime.Add(-ago), priority}}
	return s
}

// withChanges records a number of changes of a node.
func (s *testSnapshot) withChanges(node string, count int, ago time.Duration) *testSnapshot {
	s.pools[0].maxChangesPerHour = count
	return s.updateGPUNode(node, func(o *v1alpha1.GPUNode) {
		o.Annotations = map[string]string{v1alpha1.RepartitionedAnnotation: formatChanges(slices.Repeat([]time.Time{startTime.Add(-ago)}, count))}
	})
}

// withWholeGPUHeld adds a pod that holds GPU 0 of the first node.
func (s *testSnapshot) withWholeGPUHeld() *testSnapshot {
	return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Status.Pods = []v1alpha1.PodUsage{
			{PodReference: v1alpha1.PodReference{UID: "h", Namespace: "ns", Name: "h"}, Devices: []string{string(gpuUUID("n1", 0))}},
		}
	})
}
