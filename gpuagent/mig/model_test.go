// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

// placed is an instance of a plain profile at its start.
type placed struct{ profile, start int }

// allLayouts returns all layouts of a GPU model with plain profiles.
func allLayouts(b *Model) [][]placed {
	var all [][]placed
	var extend func(taken Mask, from int, now []placed)
	places := []placed{}
	for i := range b.Profiles {
		if b.isScored(&b.Profiles[i]) {
			for _, start := range b.Profiles[i].Starts {
				places = append(places, placed{i, start})
			}
		}
	}
	extend = func(taken Mask, from int, now []placed) {
		all = append(all, slices.Clone(now))
		for i := from; i < len(places); i++ {
			if mask := b.Profiles[places[i].profile].Mask(places[i].start); mask&taken == 0 {
				extend(taken|mask, i+1, append(now, places[i]))
			}
		}
	}
	extend(0, 0, nil)
	return all
}

// An independent exhaustive search for a model with seven slices found 298 layouts, 19 of them
// maximal, 38 multisets of profiles and 144 masks.
func TestSevenSliceLayouts(t *testing.T) {
	b, _ := ModelByName("H100-80GB")
	maximal, multisets, masks := 0, map[string]bool{}, map[Mask]bool{}
	all := allLayouts(b)
	for _, layout := range all {
		var taken Mask
		counts := make([]byte, len(b.Profiles))
		for _, it := range layout {
			taken |= b.Profiles[it.profile].Mask(it.start)
			counts[it.profile]++
		}
		masks[taken], multisets[string(counts)] = true, true
		if !slices.ContainsFunc(b.Profiles, func(p Profile) bool { return b.isScored(&p) && b.CanFit(taken, &p) }) {
			maximal++
		}
	}
	got := map[string]int{"layouts": len(all), "maximal": maximal, "multisets": len(multisets), "masks": len(masks)}
	if diff := cmp.Diff(map[string]int{"layouts": 298, "maximal": 19, "multisets": 38, "masks": 144}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Known properties of NVIDIA's placements: 3g belongs at 4, where it leaves room for 4g; small
// instances go high, where they block least.
func TestBestPlacement(t *testing.T) {
	b, _ := ModelByName("A100-40GB")
	tests := map[string]struct {
		taken   Mask
		profile v1alpha1.MIGProfile
		start   int
		none    bool
	}{
		"1g on an empty GPU":    {0, "1g.5gb", 6, false},
		"3g on an empty GPU":    {0, "3g.20gb", 4, false},
		"4g beside 3g":          {0b11110000, "4g.20gb", 0, false},
		"3g beside 4g":          {0b00001111, "3g.20gb", 4, false},
		"4g beside 1g at 6":     {0b01000000, "4g.20gb", 0, false},
		"7g beside anything":    {0b00000001, "7g.40gb", 0, true},
		"2g where only 4 is":    {0b11001111, "2g.10gb", 4, false},
		"1g double at the end":  {0b00111111, "1g.10gb", 6, false},
		"nothing is left":       {0b01111111, "1g.5gb", 0, true},
		"media engines as 1g":   {0, "1g.5gb+me", 6, false},
		"a name by other names": {0, "3g.19gb", 4, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := b.Profile(tc.profile)
			if err != nil {
				t.Fatal(err)
			}
			start, _, ok := b.BestPlacement(tc.taken, p)
			if ok == tc.none || ok && start != tc.start {
				t.Errorf("start %d, %v; want %d, %v", start, ok, tc.start, !tc.none)
			}
			if fits := b.CanFit(tc.taken, p); fits == tc.none {
				t.Errorf("CanFit = %v", fits)
			}
		})
	}
}

// On every GPU model each profile fits its slices, as often as NVML reports.
func TestModelsAreConsistent(t *testing.T) {
	names, devices := map[string]bool{}, map[uint16]bool{}
	for _, b := range Models() {
		if names[b.Name] {
			t.Errorf("%s is listed twice", b.Name)
		}
		names[b.Name] = true
		for _, device := range b.Devices {
			if devices[device] {
				t.Errorf("%s: device %#x belongs to another GPU model, too", b.Name, device)
			}
			devices[device] = true
			if got, ok := ModelByPCIDevice(uint32(device)<<16 | 0x10de); !ok || got != b {
				t.Errorf("%s is not found by %#x", b.Name, device)
			}
		}
		ids := map[uint32]bool{}
		for i := range b.Profiles {
			p := &b.Profiles[i]
			if ids[p.ID] {
				t.Errorf("%s: two profiles have id %d", b.Name, p.ID)
			}
			ids[p.ID] = true
			var taken Mask
			n := 0
			for _, start := range p.Starts {
				if p.Mask(start)&^b.allSlices() != 0 {
					t.Errorf("%s: %s at %d exceeds the GPU", b.Name, p.Name, start)
				}
				if p.Mask(start)&taken == 0 {
					taken |= p.Mask(start)
					n++
				}
			}
			if p.Attribute == "" && n != p.Max {
				t.Errorf("%s: %d instances of %s fit, and at most %d are allowed", b.Name, n, p.Name, p.Max)
			}
		}
	}
}

func TestProfileNames(t *testing.T) {
	want := map[string][]v1alpha1.MIGProfile{
		"A100-40GB":     {"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
		"A30":           {"1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"},
		"H100-NVL-94GB": {"1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"},
		"H200-141GB":    {"1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"},
		"A100-64GB":     {"1g.8gb", "1g.8gb+me", "1g.16gb", "2g.16gb", "3g.32gb", "4g.32gb", "7g.64gb"},
		"GH200-144GB":   {"1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"},
		"GB200-186GB":   {"1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"},
		"B300-269GB":    {"1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"},
		"GB300-278GB":   {"1g.35gb", "1g.35gb+me", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"},
		"RTX-PRO-6000": {
			"1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me",
			"4g.96gb", "4g.96gb+gfx",
		},
		"B200-180GB": {"1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"},
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		b, ok := ModelByName(strings.ToLower(name))
		if !ok {
			t.Fatalf("no %s", name)
		}
		if diff := cmp.Diff(want[name], b.profileNames()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	b, _ := ModelByName("H100-80GB")
	for _, name := range []v1alpha1.MIGProfile{"", "3g", "3g.40gb+gfx", "1c.3g.40gb", "3g.80gb", "9g.10gb", "1g.99999gb", "3g.40gb "} {
		if p, err := b.Profile(name); err == nil {
			t.Errorf("%q is %s", name, p.Name)
		} else if !strings.Contains(err.Error(), "7g.80gb") {
			t.Errorf("%q: %v; the error lacks the profiles", name, err)
		}
	}
}

// The device plugin computes its resources by this rule from what the driver reports, which is less than
// the part of the GPU's memory in the name.
func TestProfileName(t *testing.T) {
	for want, of := range map[v1alpha1.MIGProfile][2]int64{
		"1g.10gb": {9984, 81559}, "1g.18gb": {16384, 143771}, "1g.23gb": {20992, 183359}, "2g.45gb": {45312, 183359}, "3g.40gb": {40448, 81559},
		"7g.80gb": {81152, 81559}, "1g.24gb+gfx": {23674, 97887}, "4g.96gb": {97280, 97887}, "1g.0gb": {5, 0}, "3g.71gb": {71168, 143771},
	} {
		compute := int(want[0] - '0')
		_, attribute, found := strings.Cut(string(want), "+")
		if found {
			attribute = "+" + attribute
		}
		if got := ProfileName(Shape{compute, 1, attribute}, of[0], of[1]); got != want {
			t.Errorf("%d of %d MiB: %s, want %s", of[0], of[1], got, want)
		}
	}
}

// The identifiers are those of the outputs of nvidia-smi that are named beside the models.
func TestPublishedIdentifiers(t *testing.T) {
	for model, ids := range map[string]map[v1alpha1.MIGProfile]uint32{
		"B200-180GB":   {"1g.23gb": 19, "1g.23gb+me": 20, "1g.45gb": 15, "2g.45gb": 14},
		"RTX-PRO-6000": {"1g.24gb": 14, "1g.24gb+me": 21, "1g.24gb+gfx": 47, "1g.24gb+me.all": 65, "1g.24gb-me": 67},
	} {
		b, ok := ModelByName(model)
		if !ok {
			t.Fatalf("no %s", model)
		}
		for name, id := range ids {
			if p, err := b.Profile(name); err != nil || p.ID != id || p.Name != name {
				t.Errorf("%s: %s is %+v (%v), want %d", model, name, p, err, id)
			}
		}
	}
}

func TestExcludedProfiles(t *testing.T) {
	b, _ := ModelByName("RTX-PRO-6000")
	for text, allowed := range map[string]bool{
		"1g.24gb+me 1g.24gb": true, "1g.24gb+me 1g.24gb+me": false, "1g.24gb+me.all 1g.24gb": false, "1g.24gb+me.all 1g.24gb-me": true,
		"1g.24gb+me.all 1g.24gb+me": false, "1g.24gb+gfx 1g.24gb+gfx": true,
		"1g.24gb-me 2g.48gb-me": true, "2g.48gb+me.all 1g.24gb+me.all": false,
	} {
		names := strings.Fields(text)
		p, _ := b.Profile(v1alpha1.MIGProfile(names[0]))
		other, _ := b.Profile(v1alpha1.MIGProfile(names[1]))
		layout := GPU{Model: b, Instances: []Instance{{Profile: p, Start: 0}, {Profile: other, Start: 2}}}
		if err := layout.Check(); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", text, err, allowed)
		}
	}
}

func FuzzProfileName(f *testing.F) {
	f.Add(1, int64(9984), int64(81559), "+me")
	f.Fuzz(func(t *testing.T, compute int, instance, gpu int64, attribute string) {
		name := ProfileName(Shape{Compute: compute, Attribute: attribute}, instance, gpu)
		if instance < 0 || instance > gpu || gpu > 1<<23 || compute < 1 || compute > 8 {
			return
		}
		if plain := strings.TrimSuffix(string(name), attribute); !profilePattern.MatchString(plain) {
			t.Errorf("%q", name)
		}
	})
}

func FuzzProfile(f *testing.F) {
	f.Add("3g.39gb")
	f.Add("1g.0gb+me.all")
	f.Fuzz(func(t *testing.T, name string) {
		for _, b := range Models() {
			if p, err := b.Profile(v1alpha1.MIGProfile(name)); err == nil && p.index >= len(b.Profiles) {
				t.Fatal(p)
			}
		}
	})
}

// An A30 has two profiles with the media engines, which exist once.
func TestMediaEnginesAreExclusive(t *testing.T) {
	b, _ := ModelByName("A30")
	small, _ := b.Profile("1g.6gb+me")
	large, _ := b.Profile("2g.12gb+me")
	one := GPU{Model: b, Instances: []Instance{{Profile: large, Start: 0}}}
	if err := one.Check(); err != nil {
		t.Errorf("one instance with the media engines: %v", err)
	}
	both := GPU{Model: b, Instances: append(one.Instances, Instance{Profile: small, Start: 3})}
	if err := both.Check(); err == nil || !strings.Contains(err.Error(), "media engines") {
		t.Errorf("two instances with the media engines: %v, want an error", err)
	}
	if change := Plan([]GPU{{Model: b, Instances: []Instance{{Profile: large, Start: 0, Use: InUse}}}},
		[]v1alpha1.MIGProfile{"1g.6gb+me"}); len(change.Unmet) != 1 {
		t.Errorf("planned beside one in use: %+v, want no room", change)
	}
}

// Equal observations are one model, and a difference in any field that the model depends on is another one.
func TestObservedModelIsCached(t *testing.T) {
	observe := func(change func(*v1alpha1.ObservedGPU)) *Model {
		gpu := &v1alpha1.ObservedGPU{DeviceID: "0x123410DE", Model: "X", MemoryMiB: 81559, MIGPlacements: []v1alpha1.MIGPlacement{
			{Profile: "1g.10gb", Size: 1, Starts: []int32{0, 1}, Max: 2}, {Profile: "7g.80gb", Size: 8, Starts: []int32{0}, Max: 1},
		}}
		change(gpu)
		return ObservedModel(gpu)
	}
	first := observe(func(*v1alpha1.ObservedGPU) {})
	if again := observe(func(*v1alpha1.ObservedGPU) {}); again != first {
		t.Error("an equal observation is another model")
	}
	for name, change := range map[string]func(*v1alpha1.ObservedGPU){
		"device":  func(g *v1alpha1.ObservedGPU) { g.DeviceID = "0x233010DE" },
		"model":   func(g *v1alpha1.ObservedGPU) { g.Model = "Y" },
		"memory":  func(g *v1alpha1.ObservedGPU) { g.MemoryMiB = 40960 },
		"profile": func(g *v1alpha1.ObservedGPU) { g.MIGPlacements[0].Profile = "1g.12gb" },
		"size":    func(g *v1alpha1.ObservedGPU) { g.MIGPlacements[0].Size = 2 },
		"starts":  func(g *v1alpha1.ObservedGPU) { g.MIGPlacements[0].Starts[1] = 2 },
		"most":    func(g *v1alpha1.ObservedGPU) { g.MIGPlacements[0].Max = 1 },
	} {
		if observe(change) == first {
			t.Errorf("another %s is the same model", name)
		}
	}
}

// FuzzObservedModel reads descriptions that only a broken agent or driver reports: a plan on them never
// leaves the GPU.
func FuzzObservedModel(f *testing.F) {
	f.Add("3g.40gb", int32(4), int32(0), int32(4), int32(2))
	f.Add("1g.24gb+me.all", int32(1), int32(3), int32(1), int32(1))
	f.Add("2g.20gb", int32(2), int32(4), int32(4), int32(2))
	f.Add("9g.1gb", int32(9), int32(-1), int32(0), int32(0))
	f.Fuzz(func(t *testing.T, name string, size, start, other, most int32) {
		gpu := &v1alpha1.ObservedGPU{DeviceID: "0x123410DE", MIGPlacements: []v1alpha1.MIGPlacement{
			{Profile: v1alpha1.MIGProfile(name), Size: size, Starts: []int32{start, other}, Max: most},
			{Profile: "7g.80gb", Size: 8, Starts: []int32{0}, Max: 1},
		}}
		b := ObservedModel(gpu)
		if b == nil {
			return // the bound of models
		}
		if b.Slices > 8 || len(b.Profiles) == 0 {
			t.Fatalf("%+v", b)
		}
		for i := range b.Profiles {
			p := &b.Profiles[i]
			if len(slices.Compact(slices.Clone(p.Starts))) != len(p.Starts) || !slices.IsSorted(p.Starts) {
				t.Errorf("%s starts at %v, which a GPUNode rejects", p.Name, p.Starts)
			}
			if place, _, ok := b.BestPlacement(0, p); ok && p.Mask(place)&^b.allSlices() != 0 {
				t.Errorf("%s at %d exceeds the GPU", p.Name, place)
			}
		}
	})
}

// The documentation lists the built-in models.
func TestDocumentedModels(t *testing.T) {
	page, err := os.ReadFile("../../docs/platform/gpus.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- models -->")
	list, _, _ := strings.Cut(rest, "<!-- end of models -->")
	var want []string
	for _, b := range Models() {
		name := b.Name
		if b.Estimated {
			name += " (estimated)"
		}
		want = append(want, name)
	}
	if got := strings.Join(strings.Fields(list), " "); got != strings.Join(want, ", ")+"." {
		t.Errorf("docs/platform/gpus.md lists %q, want %q", got, strings.Join(want, ", ")+".")
	}
}
