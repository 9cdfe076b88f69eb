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

// carriesOut has the spec of generation 2 carried out, with this layout of GPU 0.
func carriesOut(s *scene, text string) *scene {
	return s.object("n1", func(o *v1alpha1.GPUNode) {
		o.Generation, o.Status.ObservedGeneration = 2, 2
		o.Status.GPUs[0] = observed(s, "n1", 0, text)
		o.Spec.GPUs = []v1alpha1.DesiredGPU{{UUID: uuid("n1", 0), MIGEnabled: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 0}}}}
	})
}

func notApplied(o *v1alpha1.GPUNode) {
	o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: "DriverError", Message: "create: insufficient resources",
	})
}

func TestDecide(t *testing.T) {
	since := func(ago time.Duration) func(*want) { return func(w *want) { w.since = start.Add(-ago) } }
	tests := map[string]struct {
		scene func() *scene
		want  []string
	}{
		"nobody waits": {scene: func() *scene { return cluster(t, []string{"a100: 3g.20gb@4"}) }},
		"a pod waits": {
			scene: func() *scene { return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb") },
			want:  []string{"taint n1"},
		},
		"not yet for long": {scene: func() *scene { return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb", since(ripe/2)) }},
		"its instance is there": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).wanting("p", "3g.20gb")
			},
		},
		"its instance was there for long and was not used": {
			scene: func() *scene {
				s := cluster(t, []string{"a100: 3g.20gb@4"}, []string{"a100:"}).wanting("p", "3g.20gb")
				s.past.offered = map[types.UID]time.Time{"p": start.Add(-grace)}
				return s
			},
			want: []string{"taint n2"},
		},
		"its scheduler misses something else": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb", func(w *want) { w.excused = true })
			},
		},
		"nobody may have it there": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb", func(w *want) { w.where = []bool{false} })
			},
		},
		"the node's pods are still bound": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").tainted("n1", time.Second, 1)
			},
		},
		"one was bound a moment ago": {
			scene: func() *scene {
				late := claim{uid: "q", bound: start.Add(-time.Second)}
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").tainted("n1", settle+time.Second, 1, late)
			},
		},
		"all are counted": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").wanting("q", "1g.5gb").tainted("n1", settle, 1)
			},
			want: []string{"write n1 [1g.5gb@3 3g.20gb@4]"},
		},
		"a bound pod needs what is idle": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 7g.40gb@0"}).wanting("p", "3g.20gb").tainted("n1", settle, 1, holds("q", one("7g.40gb")))
			},
			want: []string{"untaint n1 abandoned"},
		},
		"what it has is not counted twice": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 3g.20gb@4!q 3g.20gb@0"}).wanting("p", "4g.20gb").tainted("n1", settle, 1, holds("q", one("3g.20gb")))
			},
			want: []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"nobody says when it was tainted": {
			scene: func() *scene {
				s := cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").tainted("n1", settle, 1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"taint n1"},
		},
		"it was tainted for long": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").tainted("n1", time.Hour, 1)
			},
			want: []string{"taint n1"},
		},
		"nobody waits any more": {
			scene: func() *scene { return cluster(t, []string{"a100:"}).tainted("n1", time.Second, 1) },
			want:  []string{"untaint n1 abandoned"},
		},
		"the agent is at work": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100:").wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
				return s.object("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
		},
		"the agent does not answer": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100:").wanting("p", "3g.20gb").tainted("n1", fresh+agentTime, 1)
				return s.object("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"write n1 [] restored"},
		},
		"it would have nothing to do any more": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", fresh+agentTime, 1)
				return s.object("n1", func(o *v1alpha1.GPUNode) { o.Status.ObservedGeneration = 1 })
			},
			want: []string{"untaint n1 timed-out"},
		},
		"the plugin promises what is gone": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", time.Hour, 1)
				s.nodes[0].published = amounts{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-7g.40gb": 1}
				return s
			},
		},
		"the plugin has not seen it": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
				s.nodes[0].published = amounts{}
				return s
			},
		},
		"the plugin does not see it": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", fresh+agentTime+publishTime, 1)
				s.nodes[0].published = amounts{}
				return s
			},
			want: []string{"untaint n1 timed-out"},
		},
		"the plugin still has what is gone": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
				s.nodes[0].published = amounts{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-7g.40gb": 1}
				return s
			},
		},
		"all is done": {
			scene: func() *scene {
				return carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
			},
			want: []string{"untaint n1 done"},
		},
		"it could not be done": {
			scene: func() *scene {
				return carriesOut(cluster(t, []string{"a100:"}), "a100: 7g.40gb@0").object("n1", notApplied).wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
			},
			want: []string{"write n1 [7g.40gb@0] restored"},
		},
		"what was there is there": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 7g.40gb@0").wanting("p", "3g.20gb").tainted("n1", 10*time.Second, 1)
				return s.object("n1", func(o *v1alpha1.GPUNode) {
					o.Spec.GPUs[0].Instances = []v1alpha1.DesiredInstance{{Profile: "7g.40gb"}}
					notApplied(o)
				})
			},
			want: []string{"untaint n1 failed"},
		},
		"its GPUNode has gone": {
			scene: func() *scene {
				s := cluster(t, []string{"a100:"}).tainted("n1", time.Second, 1)
				s.nodes[0].machine = nil
				return s
			},
			want: []string{"untaint n1 abandoned"},
		},
		"somebody else put the taint on": {
			scene: func() *scene {
				s := cluster(t, []string{"a100:"}).tainted("n1", time.Second, -1)
				s.nodes[0].taint.since = time.Time{}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a node that is being changed before others": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 1g.5gb@6!q"}, []string{"a100:"}).wanting("p", "3g.20gb").tainted("n2", settle, 1)
			},
			want: []string{"write n2 [3g.20gb@4]"},
		},
		"half of a pool at a time": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}, []string{"a100:"}, []string{"a100:"}, []string{"a100:"}).
					wanting("p", "7g.40gb").wanting("q", "7g.40gb").wanting("r", "7g.40gb").wanting("s", "7g.40gb")
			},
			want: []string{"taint n1", "taint n2"},
		},
		"who can use the node as it is goes first": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 3g.20gb@4"}).wanting("p", "3g.20gb", since(2*time.Second)).wanting("q", "2g.10gb", since(2*time.Second))
			},
		},
		"but not for ever": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 3g.20gb@4"}).wanting("p", "3g.20gb").wanting("q", "2g.10gb", since(patience))
			},
			want: []string{"taint n1"},
		},
		"a node rests after a change": {
			scene: func() *scene {
				s := cluster(t, []string{"a100:"}).wanting("p", "3g.20gb")
				s.past.resting = map[string]pause{"n1": {until: start.Add(time.Second)}}
				return s
			},
		},
		"nothing on a lost GPU": {scene: func() *scene { return cluster(t, []string{"a100 lost:"}).wanting("p", "3g.20gb") }},
		"nothing in a foreign instance's place": {
			scene: func() *scene { return cluster(t, []string{"a100: 4g.20gb@0?"}).wanting("p", "4g.20gb") },
		},
		"foreign instances are not in the spec": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 4g.20gb@0?"}).wanting("p", "3g.20gb").tainted("n1", settle, 1)
			},
			want: []string{"write n1 [3g.20gb@4]"},
		},
		"a silent agent": {
			scene: func() *scene {
				return cluster(t, []string{"a100:"}).wanting("p", "3g.20gb").object("n1", func(o *v1alpha1.GPUNode) {
					o.Status.SampledAt = &metav1.Time{Time: start.Add(-silent)}
				})
			},
		},
		"a profile whose memory is rounded otherwise": {
			scene: func() *scene {
				s := carriesOut(cluster(t, []string{"a100:"}), "a100: 3g.20gb@0").wanting("p", "3g.19gb").tainted("n1", 10*time.Second, 1)
				s.nodes[0].published = amounts{"nvidia.com/mig-3g.19gb": 1}
				return s
			},
			want: []string{"untaint n1 done"},
		},
		"a GPU out of MIG mode last": {
			scene: func() *scene {
				return cluster(t, []string{"h100 off", "h100: 3g.40gb@4!"}).wanting("p", "3g.40gb").wanting("q", "7g.80gb").tainted("n1", settle, 1)
			},
			want: []string{"write n1 [7g.80gb@0] 1[3g.40gb@0 3g.40gb@4]"},
		},
		"nobody has such a GPU": {scene: func() *scene { return cluster(t, []string{"h100 off held"}).wholeHeld().wanting("p", "3g.40gb") }},
		"somebody has such a GPU, and nobody says which": {
			scene: func() *scene {
				return cluster(t, []string{"h100 off"}).wanting("p", "3g.40gb").tainted("n1", settle, 1, claim{uid: "h", whole: 1})
			},
			want: []string{"untaint n1 abandoned"},
		},
		"and that is remembered": {
			scene: func() *scene {
				s := cluster(t, []string{"h100 off"}).wanting("p", "3g.40gb")
				s.past.whole = map[string]time.Time{"n1": start.Add(time.Second)}
				return s
			},
		},
		"resets are not allowed": {
			scene: func() *scene { return cluster(t, []string{"a100 off"}).wanting("p", "3g.20gb") },
		},
		"resets are allowed": {
			scene: func() *scene {
				s := cluster(t, []string{"a100 off"}).wanting("p", "3g.20gb").tainted("n1", settle, 1)
				s.pools[0].resets = v1alpha1.MIGResetsWhenIdle
				return s
			},
			want: []string{"write n1 [3g.20gb@4]reset"},
		},
		"its pods are waited for": {
			scene: func() *scene {
				s := cluster(t, []string{"a100 off"}).wholeHeld().wanting("p", "3g.20gb").tainted("n1", time.Hour, 1)
				s.pools[0].resets = v1alpha1.MIGResetsDrain
				return s
			},
		},
		"several at once are on one node": {
			scene: func() *scene {
				return cluster(t, []string{"a100: 7g.40gb@0!"}, []string{"a100: 3g.20gb@4", "a100:"}).
					wanting("p", "3g.20gb", func(w *want) { w.asks[0].count = 3 }).tainted("n2", settle, 1)
			},
			want: []string{"write n2 [3g.20gb@0 3g.20gb@4] 1[3g.20gb@4]"},
		},
		"the pool that it likes": {
			scene: func() *scene {
				s := cluster(t, []string{"a100: 7g.40gb@0!"}, []string{"a100:"})
				s.pools = append(s.pools, pool{name: "other"})
				s.node("o1", 1, []string{"a100:"})
				return s.wanting("p", "3g.20gb", func(w *want) { w.order = []int{1, 0} }).wanting("q", "7g.40gb", func(w *want) { w.order = []int{0, 1} })
			},
			want: []string{"taint n2", "taint o1"},
		},
		"the next pool where the first has no room": {
			scene: func() *scene {
				s := cluster(t, []string{"a100: 7g.40gb@0!"})
				s.pools = append(s.pools, pool{name: "other"})
				s.node("o1", 1, []string{"a100:"})
				return s.wanting("p", "3g.20gb", func(w *want) { w.order = []int{0, 1} })
			},
			want: []string{"taint o1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.scene().does()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// wholeHeld has a pod that has GPU 0 of the first node.
func (s *scene) wholeHeld() *scene {
	return s.object("n1", func(o *v1alpha1.GPUNode) {
		o.Status.Pods = []v1alpha1.PodUse{{PodReference: v1alpha1.PodReference{UID: "h", Namespace: "ns", Name: "h"}, Devices: []string{string(uuid("n1", 0))}}}
	})
}
