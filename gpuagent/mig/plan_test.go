// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// parseGPU parses a GPU: "3g.20gb@4 1g.5gb@0!" on an A100 with 40 GB. An instance with ! is in use,
// one with ? is preemptible.
func parseGPU(t testing.TB, text string) GPU {
	t.Helper()
	b, _ := ModelByName("A100-40GB")
	g := GPU{Model: b}
	for _, field := range strings.Fields(text) {
		it := Instance{}
		plain := strings.TrimRight(field, "!?")
		switch field[len(plain):] {
		case "!":
			it.Use = InUse
		case "?":
			it.Use = Preemptible
		}
		name, start, _ := strings.Cut(plain, "@")
		var err error
		if it.Profile, err = b.Profile(v1alpha1.MIGProfile(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(start, &it.Start); err != nil {
			t.Fatal(field, err)
		}
		g.Instances = append(g.Instances, it)
	}
	if err := g.Check(); err != nil {
		t.Fatal(text, err)
	}
	return g
}

func (s Step) describe() string { return fmt.Sprintf("%d:%s@%d", s.GPU, s.Profile.Name, s.Start) }

func describeSteps(steps []Step) []string {
	var texts []string
	for _, s := range steps {
		texts = append(texts, s.describe())
	}
	return texts
}

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		gpus            []string
		wants           []v1alpha1.MIGProfile
		destroy, create []string
		unmet           []int
	}{
		"no requests": {gpus: []string{"3g.20gb@4"}},
		"an empty GPU": {
			gpus: []string{""}, wants: []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb"},
			create: []string{"0:1g.5gb@6", "0:2g.10gb@4", "0:3g.20gb@0"},
		},
		"idle instances are used": {
			gpus:  []string{"3g.20gb@4", "3g.20gb@0"},
			wants: []v1alpha1.MIGProfile{"3g.20gb", "3g.20gb"},
		},
		"free slices before idle instances": {
			gpus: []string{"7g.40gb@0", ""}, wants: []v1alpha1.MIGProfile{"4g.20gb"},
			create: []string{"1:4g.20gb@0"},
		},
		"an idle instance is destroyed": {
			gpus: []string{"7g.40gb@0"}, wants: []v1alpha1.MIGProfile{"1g.5gb"},
			destroy: []string{"0:7g.40gb@0"}, create: []string{"0:1g.5gb@6"},
		},
		"as few instances as possible are destroyed": {
			gpus:  []string{"1g.5gb@0 1g.5gb@1 2g.10gb@4 1g.5gb@6!"},
			wants: []v1alpha1.MIGProfile{"2g.10gb", "2g.10gb"}, create: []string{"0:2g.10gb@2"},
		},
		"instances in use stay": {
			gpus:  []string{"3g.20gb@0!"},
			wants: []v1alpha1.MIGProfile{"7g.40gb", "4g.20gb", "3g.20gb"}, create: []string{"0:3g.20gb@4"}, unmet: []int{0, 1},
		},
		"preemptible instances stay": {gpus: []string{"7g.40gb@0?"}, wants: []v1alpha1.MIGProfile{"1g.5gb"}, unmet: []int{0}},
		"an unknown profile":         {gpus: []string{""}, wants: []v1alpha1.MIGProfile{"3g.71gb"}, unmet: []int{0}},
		"one set of media engines": {
			gpus: []string{""}, wants: []v1alpha1.MIGProfile{"1g.5gb+me", "1g.5gb+me"},
			create: []string{"0:1g.5gb+me@6"}, unmet: []int{1},
		},
		"a claimed idle instance stays": {
			gpus:  []string{"4g.20gb@0 3g.20gb@4"},
			wants: []v1alpha1.MIGProfile{"1g.5gb", "3g.20gb"}, destroy: []string{"0:4g.20gb@0"}, create: []string{"0:1g.5gb@3"},
		},
		"no GPUs at all": {wants: []v1alpha1.MIGProfile{"1g.5gb"}, unmet: []int{0}},
		"on the GPU with the least harm": {
			gpus: []string{"", "2g.10gb@0! 2g.10gb@2!"}, wants: []v1alpha1.MIGProfile{"3g.20gb"},
			create: []string{"1:3g.20gb@4"},
		},
		"a name that is rounded otherwise is known": {gpus: []string{"3g.20gb@4"}, wants: []v1alpha1.MIGProfile{"3g.19gb"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var gpus []GPU
			for _, text := range tc.gpus {
				gpus = append(gpus, parseGPU(t, text))
			}
			got := Plan(gpus, tc.wants)
			if diff := cmp.Diff([][]string{tc.destroy, tc.create}, [][]string{describeSteps(got.Destroy), describeSteps(got.Create)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(got.Unmet, tc.unmet) {
				t.Errorf("unmet %v, want %v", got.Unmet, tc.unmet)
			}
		})
	}
}

func TestPlanPreemption(t *testing.T) {
	tests := map[string]struct {
		gpus    []string
		want    v1alpha1.MIGProfile
		at      string
		victims []int
	}{
		"the fewest":                  {[]string{"1g.5gb@0? 1g.5gb@1? 2g.10gb@4!", "2g.10gb@0? 2g.10gb@4!"}, "4g.20gb", "1:4g.20gb@0", []int{0}},
		"of as many the smallest":     {[]string{"4g.20gb@0? 3g.20gb@4!", "1g.5gb@1? 1g.5gb@3! 3g.20gb@4!"}, "2g.10gb", "1:2g.10gb@0", []int{0}},
		"no victims with free slices": {[]string{"4g.20gb@0?"}, "3g.20gb", "0:3g.20gb@4", nil},
		"no victims help":             {[]string{"1g.5gb@0! 1g.5gb@4?"}, "7g.40gb", "", nil},
		"idle ones go besides":        {[]string{"1g.5gb@0 1g.5gb@1? 3g.20gb@4!"}, "4g.20gb", "0:4g.20gb@0", []int{1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var gpus []GPU
			for _, text := range tc.gpus {
				gpus = append(gpus, parseGPU(t, text))
			}
			at, victims, ok := PlanPreemption(gpus, tc.want)
			if ok != (tc.at != "") {
				t.Fatalf("found %v", ok)
			}
			if ok && at.describe() != tc.at || !slices.Equal(victims, tc.victims) {
				t.Errorf("at %s, victims %v; want %s, %v", at.describe(), victims, tc.at, tc.victims)
			}
		})
	}
}

// For every layout and all requests: instances in use stay, the new layout is possible, each
// satisfied request has an instance of its own, an unmet request could not be satisfied, and no
// instance was destroyed in vain.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(Models()).Draw(t, "model")
		gpus := make([]GPU, rapid.IntRange(1, 3).Draw(t, "GPUs"))
		for i := range gpus {
			gpus[i] = drawGPU(t, b)
		}
		wants := make([]v1alpha1.MIGProfile, rapid.IntRange(0, 6).Draw(t, "wants"))
		for i := range wants {
			wants[i] = rapid.SampledFrom(b.profileNames()).Draw(t, "want")
		}
		change := Plan(gpus, wants)
		after := applyChange(t, gpus, change)
		have := map[v1alpha1.MIGProfile]int{}
		for i := range after {
			if err := after[i].Check(); err != nil {
				t.Fatalf("GPU %d became %s: %v", i, after[i].String(), err)
			}
			for _, it := range after[i].Instances {
				if it.Use == Idle {
					have[it.Profile.Name]++
				}
			}
		}
		for i, want := range wants {
			if slices.Contains(change.Unmet, i) {
				continue
			}
			if have[want]--; have[want] < 0 {
				t.Fatalf("want %d, %s, has no instance of its own in %v", i, want, after)
			}
		}
		if again := Plan(after, wants); len(change.Unmet) == 0 && !again.IsEmpty() {
			t.Fatalf("a second plan changes %v and %v", describeSteps(again.Destroy), describeSteps(again.Create))
		}
		if len(change.Create) == 0 && len(change.Destroy) > 0 {
			t.Fatalf("destroyed in vain: %v", describeSteps(change.Destroy))
		}
	})
}

// drawGPU draws a layout and its use.
func drawGPU(t *rapid.T, b *Model) GPU {
	g := GPU{Model: b}
	for range rapid.IntRange(0, 7).Draw(t, "instances") {
		p := &b.Profiles[rapid.IntRange(0, len(b.Profiles)-1).Draw(t, "profile")]
		it := Instance{p, rapid.SampledFrom(p.Starts).Draw(t, "start"), Use(rapid.IntRange(0, 2).Draw(t, "use"))}
		if it.Mask()&g.Occupied() == 0 && g.allowsProfile(p, 0) {
			g.Instances = append(g.Instances, it)
		}
	}
	return g
}

// applyChange returns the GPUs after the change, which may destroy only idle instances.
func applyChange(t *rapid.T, gpus []GPU, change Change) []GPU {
	after := make([]GPU, len(gpus))
	for i := range gpus {
		after[i] = GPU{Model: gpus[i].Model, Instances: slices.Clone(gpus[i].Instances)}
	}
	for _, step := range change.Destroy {
		g := &after[step.GPU]
		at := slices.IndexFunc(g.Instances, func(it Instance) bool { return it.Profile == step.Profile && it.Start == step.Start })
		if at < 0 || g.Instances[at].Use != Idle {
			t.Fatalf("destroys %s, which is missing or not idle", step.describe())
		}
		g.Instances = slices.Delete(g.Instances, at, at+1)
	}
	for _, step := range change.Create {
		after[step.GPU].Instances = append(after[step.GPU].Instances, Instance{step.Profile, step.Start, Idle})
	}
	return after
}

// BenchmarkPlan measures one placement on a node of eight GPUs and on a thousand of them, and the
// plan of a node for three requests, one of which needs the room of an idle instance.
func BenchmarkPlan(b *testing.B) {
	model, _ := ModelByName("H100-80GB")
	random := rand.New(rand.NewPCG(1, 2))
	for name, nodes := range map[string]int{"Choose/1-node": 1, "Choose/1000-nodes": 1000} {
		taken := make([]Mask, 8*nodes)
		for i := range taken {
			taken[i] = Mask(random.IntN(256))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				model.BestGPU(taken, &model.Profiles[i%len(model.Profiles)])
			}
		})
	}
	gpus := make([]GPU, 8)
	for i := range gpus {
		gpus[i] = GPU{Model: model, Instances: []Instance{
			{&model.Profiles[4], 4, InUse}, {&model.Profiles[3], 0, Use(i%2) * InUse}, {&model.Profiles[0], 3, InUse},
		}}
	}
	wants := []v1alpha1.MIGProfile{"1g.10gb", "2g.20gb", "2g.20gb"}
	b.Run("Plan/1-node", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Plan(gpus, wants)
		}
	})
}
