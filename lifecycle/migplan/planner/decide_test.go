// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// withSpecApplied has the spec of generation 2 carried out, with this layout of GPU 0.
func withSpecApplied(s *testSnapshot, text string) *testSnapshot {
	return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Generation, o.Status.ObservedGeneration = 2, 2
		o.Status.GPUs[0] = newObservedGPU(s, "n1", 0, text)
		o.Spec.GPUs = []v1alpha1.DesiredGPU{{UUID: gpuUUID("n1", 0), MIGEnabled: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 0}}}}
	})
}

func setLayoutNotApplied(o *v1alpha1.GPUNode) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: "DriverError", Message: "create: insufficient resources",
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
		"nobody waits": {scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}) }},
		"a pod waits": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb") },
			want:  []string{"taint n1"},
		},
		"not yet for long": {scene: func() *testSnapshot {
			return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", since(unschedulableGracePeriod/2))
		}},
		"its instance is there": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).withPendingPod("p", "3g.20gb")
			},
		},
		"its instance was there for long and was not used": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.offeredSince = map[types.UID]time.Time{"p": startTime.Add(-idleOfferGracePeriod)}
				return s
			},
			want: []string{"taint n2"},
		},
		"its scheduler misses something else": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", func(w *podRequest) { w.missesOtherResource = true })
			},
		},
		"nobody may have it there": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb", func(w *podRequest) { w.feasible = []bool{false} })
			},
		},
		"the node's pods are still bound": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", time.Second, 1)
			},
		},
		"one was bound a moment ago": {
			scene: func() *testSnapshot {
				late := boundPod{uid: "q", bound: startTime.Add(-time.Second)}
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime+time.Second, 1, late)
			},
		},
		"all are counted": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withPendingPod("q", "1g.5gb").withTaint("n1", bindSettleTime, 1)
			},
			want: []string{"write n1 [1g.5gb@3 3g.20gb@4]"},
		},
		"a bound pod needs what is idle": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 7g.40gb@0"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1, newClaim("q", oneInstance("7g.40gb")))
			},
			want: []string{"untaint n1 abandoned"},
		},
		"what it has is not counted twice": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).withPendingPod("p", "4g.20gb").withTaint("n1", bindSettleTime, 1, newClaim("q", oneInstance("3g.20gb")))
			},
			want: []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"nobody says when it was tainted": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", bindSettleTime, 1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"taint n1"},
		},
		"it was tainted for long": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n1", time.Hour, 1)
			},
			want: []string{"taint n1"},
		},
		"nobody waits any more": {
			scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, 1) },
			want:  []string{"untaint n1 abandoned"},
		},
		"the agent is at work": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
		},
		"the agent does not answer": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100:").withPendingPod("p", "3g.20gb").withTaint("n1", taintMaxAge+agentTimeout, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"write n1 [] restored"},
		},
		"it would have nothing to do any more": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", taintMaxAge+agentTimeout, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"untaint n1 timed-out"},
		},
		"the plugin promises what is gone": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", time.Hour, 1)
				s.nodes[0].allocatable = deviceCounts{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-7g.40gb": 1}
				return s
			},
		},
		"the plugin has not seen it": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{}
				return s
			},
		},
		"the plugin does not see it": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", taintMaxAge+agentTimeout+allocatableTimeout, 1)
				s.nodes[0].allocatable = deviceCounts{}
				return s
			},
			want: []string{"untaint n1 timed-out"},
		},
		"the plugin still has what is gone": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-7g.40gb": 1}
				return s
			},
		},
		"all is done": {
			scene: func() *testSnapshot {
				return withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
			},
			want: []string{"untaint n1 done"},
		},
		"it could not be done": {
			scene: func() *testSnapshot {
				return withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 7g.40gb@0").updateGPUNode("n1", setLayoutNotApplied).withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
			},
			want: []string{"write n1 [7g.40gb@0] restored"},
		},
		"what was there is there": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 7g.40gb@0").withPendingPod("p", "3g.20gb").withTaint("n1", 10*time.Second, 1)
				return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Spec.GPUs[0].Instances = []v1alpha1.DesiredInstance{{Profile: "7g.40gb"}}
					setLayoutNotApplied(o)
				})
			},
			want: []string{"untaint n1 failed"},
		},
		"its GPUNode has gone": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, 1)
				s.nodes[0].observed = nil
				return s
			},
			want: []string{"untaint n1 abandoned"},
		},
		"somebody else put the taint on": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withTaint("n1", time.Second, -1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a node that is being changed before others": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 1g.5gb@6!q"}, []string{"a100:"}).withPendingPod("p", "3g.20gb").withTaint("n2", bindSettleTime, 1)
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
		"who can use the node as it is goes first": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}).withPendingPod("p", "3g.20gb", since(2*time.Second)).withPendingPod("q", "2g.10gb", since(2*time.Second))
			},
		},
		"but not for ever": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 3g.20gb@4"}).withPendingPod("p", "3g.20gb").withPendingPod("q", "2g.10gb", since(idleUseTimeout))
			},
			want: []string{"taint n1"},
		},
		"a node rests after a change": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb")
				s.previousState.nodeBackoff = map[string]backoff{"n1": {until: startTime.Add(time.Second)}}
				return s
			},
		},
		"nothing on a lost GPU": {scene: func() *testSnapshot { return newTestSnapshot(t, []string{"a100 lost:"}).withPendingPod("p", "3g.20gb") }},
		"nothing in a foreign instance's place": {
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
		"a silent agent": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100:"}).withPendingPod("p", "3g.20gb").updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
					o.Status.SampledAt = &metav1.Time{Time: startTime.Add(-agentSilenceTimeout)}
				})
			},
		},
		"a profile whose memory is rounded otherwise": {
			scene: func() *testSnapshot {
				s := withSpecApplied(newTestSnapshot(t, []string{"a100:"}), "a100: 3g.20gb@0").withPendingPod("p", "3g.19gb").withTaint("n1", 10*time.Second, 1)
				s.nodes[0].allocatable = deviceCounts{"nvidia.com/mig-3g.19gb": 1}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a GPU out of MIG mode last": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"h100 off", "h100: 3g.40gb@4!"}).withPendingPod("p", "3g.40gb").withPendingPod("q", "7g.80gb").withTaint("n1", bindSettleTime, 1)
			},
			want: []string{"write n1 [7g.80gb@0] 1[3g.40gb@0 3g.40gb@4]"},
		},
		"nobody has such a GPU": {scene: func() *testSnapshot {
			return newTestSnapshot(t, []string{"h100 off held"}).withWholeGPUHeld().withPendingPod("p", "3g.40gb")
		}},
		"somebody has such a GPU, and nobody says which": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"h100 off"}).withPendingPod("p", "3g.40gb").withTaint("n1", bindSettleTime, 1, boundPod{uid: "h", wholeGPUs: 1})
			},
			want: []string{"untaint n1 abandoned"},
		},
		"and that is remembered": {
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
		"its pods are waited for": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100 off"}).withWholeGPUHeld().withPendingPod("p", "3g.20gb").withTaint("n1", time.Hour, 1)
				s.pools[0].resets = v1alpha1.MIGResetsDrain
				return s
			},
		},
		"several at once are on one node": {
			scene: func() *testSnapshot {
				return newTestSnapshot(t, []string{"a100: 7g.40gb@0!"}, []string{"a100: 3g.20gb@4", "a100:"}).
					withPendingPod("p", "3g.20gb", func(w *podRequest) { w.instanceRequests[0].count = 3 }).withTaint("n2", bindSettleTime, 1)
			},
			want: []string{"write n2 [3g.20gb@0 3g.20gb@4] 1[3g.20gb@4]"},
		},
		"the pool that it likes": {
			scene: func() *testSnapshot {
				s := newTestSnapshot(t, []string{"a100: 7g.40gb@0!"}, []string{"a100:"})
				s.pools = append(s.pools, pool{name: "other"})
				s.addNode("o1", 1, []string{"a100:"})
				return s.withPendingPod("p", "3g.20gb", func(w *podRequest) { w.poolOrder = []int{1, 0} }).withPendingPod("q", "7g.40gb", func(w *podRequest) { w.poolOrder = []int{0, 1} })
			},
			want: []string{"taint n2", "taint o1"},
		},
		"the next pool where the first has no room": {
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

// withWholeGPUHeld has a pod that has GPU 0 of the first node.
func (s *testSnapshot) withWholeGPUHeld() *testSnapshot {
	return s.updateGPUNode("n1", func(o *v1alpha1.GPUNode) {
		o.Status.Pods = []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "h", Namespace: "ns", Name: "h"}, Devices: []string{string(gpuUUID("n1", 0))}}}
	})
}
