// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package preemption

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

var testTime = time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)

// newPod returns a training pod that has run for an hour.
func newPod(uid types.UID, changes ...func(*Pod)) Pod {
	p := Pod{
		UID: uid, Name: types.NamespacedName{Namespace: "lab", Name: string(uid)}, Priority: v1alpha1.PriorityTrain, Preemptible: true, Governed: true,
		Running: true, StartedAt: testTime.Add(-time.Hour), Root: string(uid), Milli: 143,
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func model(t interface{ Fatal(...any) }) *mig.Model {
	m, ok := mig.ModelByName("A100-40GB")
	if !ok {
		t.Fatal("the model is unknown")
	}
	return m
}

// newGPU returns a GPU with one instance in each slice, which these pods hold; "" for idle.
func newGPU(t interface{ Fatal(...any) }, node string, profile v1alpha1.MIGProfile, holders ...types.UID) GPU {
	m := model(t)
	want, err := m.Profile(profile)
	if err != nil {
		t.Fatal(err)
	}
	small, err := m.Profile("1g.5gb")
	if err != nil {
		t.Fatal(err)
	}
	g := GPU{Node: node, UUID: v1alpha1.GPUUUID("GPU-" + node), Model: m, Profile: want, MinimumRuntime: v1alpha1.DefaultMinimumRuntime}
	for start, holder := range holders {
		use := mig.InUse
		if holder == "" {
			use = mig.Idle
		}
		g.Instances = append(g.Instances, Instance{mig.Instance{Profile: small, Start: start, Use: use}, holder})
	}
	return g
}

func lookup(pods ...Pod) func(types.UID) (Pod, bool) {
	return func(uid types.UID) (Pod, bool) {
		for _, p := range pods {
			if p.UID == uid {
				return p, true
			}
		}
		return Pod{}, false
	}
}

func TestChoose(t *testing.T) {
	interactive := func(p *Pod) { p.Priority, p.Preemptible = v1alpha1.PriorityInteractive, false }
	middle := func(p *Pod) { p.Priority = v1alpha1.PriorityInteractivePreemptible }
	recent := func(p *Pod) { p.StartedAt = testTime.Add(-9 * time.Minute) }
	group := func(p *Pod) { p.Root = "gang" }
	tests := map[string]struct {
		gpus    []GPU
		pods    []Pod
		want    string // node and victims
		refusal string
	}{
		"idle slices first": {
			gpus: []GPU{newGPU(t, "n", "3g.20gb", "a", "b", "c", "d", "e", "", "")}, pods: []Pod{newPod("a"), newPod("b"), newPod("c"), newPod("d"), newPod("e")},
			want: "n@4 [e]",
		},
		"the lowest priority before the fewest": {
			gpus: []GPU{newGPU(t, "n", "3g.20gb", "a", "b", "c", "d", "e", "", "")},
			pods: []Pod{newPod("a"), newPod("b"), newPod("c"), newPod("d"), newPod("e", middle)},
			want: "n@0 [a b c d]",
		},
		"a group counts once": {
			gpus: []GPU{newGPU(t, "n", "3g.20gb", "a", "b", "c", "d", "e", "f", "")},
			pods: []Pod{newPod("a", group), newPod("b", group), newPod("c", group), newPod("d", group), newPod("e"), newPod("f")},
			want: "n@0 [a b c d]",
		},
		"over its share first": {
			gpus: []GPU{newGPU(t, "n1", "7g.40gb", "a"), newGPU(t, "n2", "7g.40gb", "b")},
			pods: []Pod{newPod("a"), newPod("b", middle, func(p *Pod) { p.OverShare = true })},
			want: "n2@0 [b]",
		},
		"the least lost work": {
			gpus: []GPU{newGPU(t, "n1", "7g.40gb", "a"), newGPU(t, "n2", "7g.40gb", "b")},
			pods: []Pod{newPod("a"), newPod("b", func(p *Pod) { p.StartedAt = testTime.Add(-30 * time.Minute) })},
			want: "n2@0 [b]",
		},
		"a terminating pod is no victim and not in the way": {
			gpus: []GPU{newGPU(t, "n1", "7g.40gb", "a"), newGPU(t, "n2", "7g.40gb", "b")},
			pods: []Pod{newPod("a"), newPod("b", func(p *Pod) { p.Terminating = true })},
			want: "n2@0 []",
		},
		"a pod that does not terminate": {
			gpus:    []GPU{newGPU(t, "n1", "7g.40gb", "b")},
			pods:    []Pod{newPod("b", func(p *Pod) { p.Terminating, p.GraceEndsAt = true, testTime.Add(-stuckAfter) })},
			refusal: "does not terminate",
		},
		"a pod that still terminates": {
			gpus: []GPU{newGPU(t, "n1", "7g.40gb", "b")},
			pods: []Pod{newPod("b", func(p *Pod) { p.Terminating, p.GraceEndsAt = true, testTime.Add(-stuckAfter/2) })},
			want: "n1@0 []",
		},
		"a pod that cannot be preempted": {
			gpus: []GPU{newGPU(t, "n", "7g.40gb", "a", "b")}, pods: []Pod{newPod("a"), newPod("b", interactive)}, refusal: "node n cannot be preempted",
		},
		"a preemptible pod of equal priority": {
			gpus: []GPU{newGPU(t, "n", "7g.40gb", "a")}, pods: []Pod{newPod("a", func(p *Pod) { p.Priority = 0 })}, refusal: "no lower priority",
		},
		"before the minimum runtime": {
			gpus: []GPU{newGPU(t, "n", "7g.40gb", "a")}, pods: []Pod{newPod("a", recent)}, refusal: "from 2026-10-01T08:01:00Z on",
		},
		"a pod outside of projects": {
			gpus: []GPU{newGPU(t, "n", "7g.40gb", "a")}, pods: []Pod{newPod("a", func(p *Pod) { p.Governed = false })}, refusal: "no project",
		},
		"a pod that starts": {
			gpus: []GPU{newGPU(t, "n", "7g.40gb", "a")}, pods: []Pod{newPod("a", func(p *Pod) { p.Running = false })}, refusal: "is starting",
		},
		"an unknown holder": {gpus: []GPU{newGPU(t, "n", "7g.40gb", "a")}, refusal: "no preemptible pod is known"},
		"no GPU":            {refusal: "no GPU"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			choice, refusal := Choose(v1alpha1.PriorityInteractive, test.gpus, lookup(test.pods...), testTime)
			if refusal != nil {
				if test.refusal == "" || !strings.Contains(refusal.Reason, test.refusal) {
					t.Errorf("refused: %+v; want %q", refusal, test.refusal)
				}
				return
			}
			var names []types.UID
			for _, v := range choice.Victims {
				names = append(names, v.UID)
			}
			if got := fmt.Sprintf("%s@%d %v", choice.Node, choice.Start, names); got != test.want {
				t.Errorf("chose %s, want %s (refusal %q)", got, test.want, test.refusal)
			}
		})
	}
}

// Guards: each victim may be preempted, holds a slice of the place, and the profile fits there without the victims.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		profile := rapid.SampledFrom([]v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}).Draw(t, "profile")
		var pods []Pod
		var gpus []GPU
		for g := range rapid.IntRange(1, 3).Draw(t, "GPUs") {
			var holders []types.UID
			for s := range 7 {
				uid := types.UID(fmt.Sprint("p", g, s))
				if rapid.IntRange(0, 4).Draw(t, "idle") == 0 {
					uid = ""
				} else {
					pods = append(pods, newPod(uid, func(p *Pod) {
						p.Priority = rapid.SampledFrom([]int32{-8, -4, 0}).Draw(t, "priority")
						p.Preemptible, p.Governed = rapid.IntRange(0, 4).Draw(t, "class") > 0, rapid.IntRange(0, 9).Draw(t, "project") > 0
						p.Running, p.Terminating = rapid.IntRange(0, 9).Draw(t, "running") > 0, rapid.IntRange(0, 9).Draw(t, "deleted") == 0
						p.StartedAt = testTime.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "age")) * time.Minute)
						p.Root = strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "root"))
					}))
				}
				holders = append(holders, uid)
			}
			gpus = append(gpus, newGPU(t, fmt.Sprint("n", g), profile, holders...))
		}
		find := lookup(pods...)
		choice, refusal := Choose(0, gpus, find, testTime)
		if refusal != nil {
			if refusal.Reason == "" {
				t.Fatal("refused without a reason")
			}
			return
		}
		var g *GPU
		for i := range gpus {
			if gpus[i].UUID == choice.GPU {
				g = &gpus[i]
			}
		}
		gone := map[types.UID]bool{}
		for _, v := range choice.Victims {
			if gone[v.UID] = true; !v.Preemptible || !v.Governed || !v.Running || v.Terminating || v.Priority >= 0 || testTime.Sub(v.StartedAt) < v1alpha1.DefaultMinimumRuntime {
				t.Fatalf("%+v is no victim", v)
			}
		}
		mask := g.Profile.Mask(choice.Start)
		layout := mig.GPU{Model: g.Model, Instances: []mig.Instance{{Profile: g.Profile, Start: choice.Start, Use: mig.InUse}}}
		for i := range g.Instances {
			it := &g.Instances[i]
			pod, _ := find(it.Holder)
			overlaps := it.Mask()&mask != 0
			if gone[it.Holder] && !overlaps {
				t.Fatalf("%s holds no slice of the place", it.Holder)
			}
			if overlaps && !gone[it.Holder] && it.Holder != "" && !pod.Terminating {
				t.Fatalf("%s is in the way and no victim", it.Holder)
			}
			if !overlaps {
				layout.Instances = append(layout.Instances, it.Instance)
			}
		}
		if err := layout.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
