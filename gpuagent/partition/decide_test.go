// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// gpuBuilder builds a GPU in MIG mode.
type gpuBuilder struct{ observedGPU }

func newGPUBuilder(model string) *gpuBuilder {
	b, ok := mig.ModelByName(model)
	if !ok {
		panic(model)
	}
	d := &gpuBuilder{observedGPU{
		gpu: nvml.GPU{UUID: "GPU-1", Name: model, PCIDevice: uint32(b.Devices[0])<<16 | 0x10de}, model: b,
		migCapable: true, current: nvml.Enabled, pending: nvml.Enabled,
	}}
	for i := range b.Profiles {
		p := &b.Profiles[i]
		d.profiles = append(d.profiles, nvml.Profile{ID: nvml.ProfileID(p.ID), Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute})
	}
	return d
}

func (d *gpuBuilder) withMode(current, pending nvml.Mode) *gpuBuilder {
	d.current, d.pending = current, pending
	return d
}

// withInstance adds an instance: "ours" or "foreign", each also "half" or "held".
func (d *gpuBuilder) withInstance(profile v1alpha1.MIGProfile, start int, how string) *gpuBuilder {
	p, err := d.model.Profile(profile)
	if err != nil {
		panic(err)
	}
	id := uint32(len(d.instances) + 1)
	it := instance{id: id, profile: p, start: start, size: p.Memory, owned: strings.Contains(how, "ours")}
	if !strings.Contains(how, "half") {
		it.computes = []nvml.ComputeInstance{{ID: 0, UUID: fmt.Sprintf("MIG-%d", id), Slices: p.Compute}}
	}
	if strings.Contains(how, "held") {
		it.holder = &Holder{PID: 42}
	}
	d.instances = append(d.instances, it)
	return d
}

// describeDecision describes the steps in words.
func describeDecision(v decision) string {
	if len(v.steps) == 0 {
		return string(v.state) + " " + v.reason
	}
	var list []string
	for _, s := range v.steps {
		switch s.kind {
		case stepDestroy:
			list = append(list, fmt.Sprintf("-%s@%d", s.instance.profile.Name, s.instance.start))
		case stepComplete:
			list = append(list, fmt.Sprintf("~%s@%d", s.instance.profile.Name, s.instance.start))
		case stepCreate:
			list = append(list, fmt.Sprintf("+%s", s.slot.placement()))
		case stepSetMode:
			list = append(list, fmt.Sprintf("mode %v", s.mode))
		case stepReset:
			list = append(list, "reset")
		}
	}
	return strings.Join(list, " ")
}

func TestDecide(t *testing.T) {
	whole := v1alpha1.DesiredGPU{}
	resettable := func(d v1alpha1.DesiredGPU) v1alpha1.DesiredGPU { d.MayReset = true; return d }
	desired := func(p ...Placement) v1alpha1.DesiredGPU { return newDesiredGPU("", p...) }
	cases := []struct {
		name        string
		gpu         *gpuBuilder
		want        v1alpha1.DesiredGPU
		told        string
		wantMessage string
	}{
		{"nothing to do", newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "ours"), desired(placementAt("3g.20gb", 4)), "Applied Applied", ""},
		{
			"a desired instance stays, even held",
			newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "ours held").withInstance("1g.5gb", 0, "ours"),
			desired(placementAt("3g.20gb", 4), placementAt("2g.10gb", 0)), "-1g.5gb@0 +2g.10gb@0", "",
		},
		{
			"the same profile elsewhere is another instance", newGPUBuilder("A100-40GB").withInstance("3g.20gb", 0, "ours"),
			desired(placementAt("3g.20gb", 4)), "-3g.20gb@0 +3g.20gb@4", "",
		},
		{
			"destroying comes first", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 0, "ours").withInstance("1g.5gb", 6, "ours"),
			desired(placementAt("4g.20gb", 0), placementAt("3g.20gb", 4)), "-1g.5gb@0 -1g.5gb@6 +4g.20gb@0 +3g.20gb@4", "",
		},
		{"one that is held keeps all as it is", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 0, "ours").withInstance("1g.5gb", 6,
			"ours held"), desired(placementAt("4g.20gb", 0), placementAt("3g.20gb", 4)), "Reclaiming InUse", "process 42"},
		{
			"held and not in the way, but not desired", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "ours held"),
			desired(placementAt("4g.20gb", 0)), "Reclaiming InUse", "1g.5gb@6",
		},
		{
			"incomplete and desired", newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "ours half"), desired(placementAt("3g.20gb", 4)),
			"~3g.20gb@4", "",
		},
		{"incomplete and not desired", newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "ours half"), desired(), "-3g.20gb@4", ""},
		{
			"foreign, beside", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "foreign held"), desired(placementAt("4g.20gb", 0)),
			"+4g.20gb@0", "",
		},
		{
			"foreign, in the way", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "foreign"), desired(placementAt("3g.20gb", 4)),
			"Invalid InvalidLayout", "1g.5gb@6 (MIG-1)",
		},
		{
			"foreign, half made, in the way", newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "foreign half"),
			desired(placementAt("3g.20gb", 4)), "Invalid InvalidLayout", "without a device",
		},
		{
			"foreign, and the GPU has only one", newGPUBuilder("A100-40GB").withInstance("1g.5gb+me", 6, "foreign"),
			desired(placementAt("1g.5gb+me", 0)), "Invalid InvalidLayout", "at most 1",
		},
		{
			"foreign, with the one set of media engines", newGPUBuilder("A30").withInstance("1g.6gb+me", 3, "foreign"),
			desired(placementAt("2g.12gb+me", 0)), "Invalid InvalidLayout", "one set",
		},
		{
			"no such profile", newGPUBuilder("A30"), desired(placementAt("3g.20gb", 0)), "Invalid InvalidLayout",
			"[1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb]",
		},
		{"no such place", newGPUBuilder("A30"), desired(placementAt("2g.12gb", 1)), "Invalid InvalidLayout", "[0 2]"},
		{"overlapping", newGPUBuilder("A30"), desired(placementAt("2g.12gb", 0), placementAt("1g.6gb", 1)), "Invalid InvalidLayout", "overlaps"},
		{
			"media engines twice", newGPUBuilder("A30"), desired(placementAt("2g.12gb+me", 0), placementAt("1g.6gb+me", 2)),
			"Invalid InvalidLayout", "one set",
		},
		{
			"instances and no mode", newGPUBuilder("A30"),
			v1alpha1.DesiredGPU{Instances: []v1alpha1.DesiredInstance{{Profile: "4g.24gb"}}},
			"Invalid InvalidLayout", "migEnabled",
		},

		{"enabled at once", newGPUBuilder("H100-80GB").withMode(nvml.Disabled, nvml.Disabled), desired(), "mode true", ""},
		{"enabled, and pending from before", newGPUBuilder("H100-80GB").withMode(nvml.Disabled, nvml.Enabled), desired(), "mode true", ""},
		{"enabled, at a reset", newGPUBuilder("A30").withMode(nvml.Disabled, nvml.Disabled), desired(), "mode true", ""},
		{"pending", newGPUBuilder("A30").withMode(nvml.Disabled, nvml.Enabled), desired(), "ResetRequired ResetRequired", "spec.mig.resets"},
		{"pending, and may be reset", newGPUBuilder("A30").withMode(nvml.Disabled, nvml.Enabled), resettable(desired()), "reset", ""},
		{
			"an impossible layout does not change the mode", newGPUBuilder("A30").withMode(nvml.Disabled, nvml.Disabled),
			desired(placementAt("7g.40gb", 0)), "Invalid InvalidLayout", "",
		},
		{"left at once", newGPUBuilder("H100-80GB").withInstance("1g.10gb", 0, "ours"), whole, "-1g.10gb@0 mode false", ""},
		{"left, held", newGPUBuilder("H100-80GB").withInstance("1g.10gb", 0, "ours held"), whole, "Reclaiming InUse", "process 42"},
		{"left, foreign", newGPUBuilder("H100-80GB").withInstance("1g.10gb", 0, "foreign"), whole, "Invalid InvalidLayout", "1g.10gb@0"},
		{
			"left, where it needs a reset that may not be", newGPUBuilder("A100-80GB").withInstance("1g.10gb", 0, "ours"), whole,
			"ResetRequired ResetRequired", "",
		},
		{
			"left, where it needs a reset", newGPUBuilder("A100-80GB").withInstance("1g.10gb", 0, "ours"), resettable(whole),
			"-1g.10gb@0 mode false", "",
		},
		{"left, and pending", newGPUBuilder("A100-80GB").withMode(nvml.Enabled, nvml.Disabled), resettable(whole), "reset", ""},
		{"whole, and pending", newGPUBuilder("A100-80GB").withMode(nvml.Disabled, nvml.Enabled), whole, "mode false", ""},
		{"whole", newGPUBuilder("A100-80GB").withMode(nvml.Disabled, nvml.Disabled), whole, "Applied Applied", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			aim := resolveLayout(c.gpu.model, c.want)
			v := decide(&c.gpu.observedGPU, &aim)
			if diff := cmp.Diff(c.told, describeDecision(v)); diff != "" {
				t.Errorf("%s (%s)", diff, v.message)
			}
			if !strings.Contains(v.message, c.wantMessage) {
				t.Errorf("%q lacks %q", v.message, c.wantMessage)
			}
		})
	}
}

// With unknown holders the decision only creates instances that need no other one destroyed.
func TestDecideWithUnknownHolders(t *testing.T) {
	for how, gpu := range map[string]*gpuBuilder{
		"Reclaiming InUse":     newGPUBuilder("A100-40GB").withInstance("1g.5gb", 0, "ours"),
		"-1g.5gb@6 +4g.20gb@0": newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "ours half"),
		"+4g.20gb@0":           newGPUBuilder("A100-40GB"),
	} {
		gpu.holdersUnknown = errors.New("the kubelet does not answer")
		aim := resolveLayout(gpu.model, newDesiredGPU("", placementAt("4g.20gb", 0)))
		if got := describeDecision(decide(&gpu.observedGPU, &aim)); got != how {
			t.Errorf("%s, want %s", got, how)
		}
	}
	gpu := newGPUBuilder("A100-40GB").withInstance("1g.5gb", 6, "ours half")
	gpu.holdersUnknown = errors.New("no processes")
	gpu.processesUnknown = gpu.holdersUnknown
	aim := resolveLayout(gpu.model, newDesiredGPU(""))
	if got := describeDecision(decide(&gpu.observedGPU, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
	gpu = newGPUBuilder("H100-80GB").withMode(nvml.Disabled, nvml.Disabled)
	gpu.holdersUnknown = errors.New("the kubelet does not answer")
	if got := describeDecision(decide(&gpu.observedGPU, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
}

func TestPlanRollback(t *testing.T) {
	former := func(gpu *gpuBuilder, p ...Placement) []slot { return slotsOfPlacements(gpu.model, p) }
	gpu := newGPUBuilder("A100-40GB").withInstance("4g.20gb", 0, "ours").withInstance("1g.5gb", 4, "ours held").withInstance("1g.5gb",
		6, "foreign")
	got := describeDecision(decision{steps: planRollback(&gpu.observedGPU,
		former(gpu, placementAt("2g.10gb", 0), placementAt("2g.10gb", 2), placementAt("3g.20gb", 4)))})
	if want := "-4g.20gb@0 +2g.10gb@0 +2g.10gb@2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	gpu = newGPUBuilder("A100-40GB").withInstance("2g.10gb", 0, "ours half").withInstance("3g.20gb", 4, "ours").withMode(nvml.Enabled,
		nvml.Disabled)
	got = describeDecision(decision{steps: planRollback(&gpu.observedGPU, former(gpu, placementAt("2g.10gb", 0), placementAt("3g.20gb", 4)))})
	if want := "mode true ~2g.10gb@0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMarkOwned(t *testing.T) {
	one := OwnedInstance{Placement: placementAt("3g.20gb", 4), ID: 1, UUID: "MIG-1"}
	half, other := one, one
	half.UUID = ""
	other.UUID = "MIG-9"
	call := func(act Operation, it OwnedInstance) *PendingChange {
		return &PendingChange{Next: Call{Operation: act, Instance: it}}
	}
	cases := []struct {
		name     string
		there    string
		register []OwnedInstance
		begun    *PendingChange
		ours     bool
	}{
		{"unowned", "foreign", nil, nil, false},
		{"registered", "foreign", []OwnedInstance{one}, nil, true},
		{"the identifier was given to another", "foreign", []OwnedInstance{other}, nil, false},
		{"registered as incomplete, and another program created the device", "foreign", []OwnedInstance{half}, nil, false},
		{"registered as half made", "foreign half", []OwnedInstance{half}, nil, true},
		{"being made", "foreign half", nil, call(OpCreateInstance, OwnedInstance{Placement: one.Placement}), true},
		{
			"being made, but that could not have a device yet", "foreign", nil,
			call(OpCreateInstance, OwnedInstance{Placement: one.Placement}), false,
		},
		{"its device being made", "foreign", nil, call(OpCreateComputeInstance, half), true},
		{"its device being destroyed, not yet done", "foreign", nil, call(OpDestroyComputeInstance, one), true},
		{"its device being destroyed, done", "foreign half", nil, call(OpDestroyComputeInstance, one), true},
		{"its device was destroyed and another made", "foreign", nil, call(OpDestroyComputeInstance, other), false},
		{"being destroyed", "foreign half", nil, call(OpDestroyInstance, half), true},
		{"was destroyed and another made", "foreign", nil, call(OpDestroyInstance, half), false},
		{"the mode was being set", "foreign", nil, call(OpSetMIGMode, OwnedInstance{}), false},
	}
	for _, c := range cases {
		gpu := newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, c.there)
		markOwned(&gpu.observedGPU, c.register, c.begun, nil)
		if got := gpu.instances[0].owned; got != c.ours {
			t.Errorf("%s: ours is %v", c.name, got)
		}
	}
	gpu := newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "foreign")
	gpu.instances[0].computes = append(gpu.instances[0].computes, nvml.ComputeInstance{ID: 1, UUID: "MIG-2"})
	aim := resolveLayout(gpu.model, newDesiredGPU("", placementAt("3g.20gb", 4)))
	if markOwned(&gpu.observedGPU, nil, nil, &aim); gpu.instances[0].owned {
		t.Error("an instance with a foreign compute instance was adopted")
	}
	gpu = newGPUBuilder("A100-40GB").withInstance("3g.20gb", 4, "foreign")
	gpu.instances[0].computes[0].Slices = 1
	if markOwned(&gpu.observedGPU, []OwnedInstance{one}, nil, &aim); gpu.instances[0].owned {
		t.Error("an instance with the device 1c.3g.20gb was adopted")
	}
}

// A process without a known instance may use each of them.
func TestProcessOnWholeMIGGPUHoldsEachInstance(t *testing.T) {
	gpu := newGPUBuilder("A100-40GB").withInstance("1g.5gb", 0, "ours").withInstance("1g.5gb", 6, "ours half")
	gpu.noteProcess(nvml.Process{PID: 42, Instance: nvml.NoInstance})
	aim := resolveLayout(gpu.model, newDesiredGPU("", placementAt("3g.20gb", 4)))
	if got := describeDecision(decide(&gpu.observedGPU, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
	if steps := planRollback(&gpu.observedGPU, nil); len(steps) != 0 {
		t.Errorf("undone under a process: %+v", steps)
	}
}

// The GPUNode accepts the name of every driver profile. With an invalid name the API server would
// reject the whole status.
func TestUnknownProfileNamesAreValid(t *testing.T) {
	valid := regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)
	gpu := newGPUBuilder("A100-40GB")
	gpu.profiles = []nvml.Profile{
		{ID: 90, Compute: 2, MemoryMiB: 9856, Attribute: "+unknown17"},
		{ID: 91},
		{ID: 92, Compute: 12, MemoryMiB: 1 << 40},
	}
	for id, want := range map[nvml.ProfileID]v1alpha1.MIGProfile{90: "2g.10gb", 91: "1g.0gb", 92: "8g.9999gb", 93: "4g.0gb"} {
		if got := gpu.profileName(&instance{driverProfile: id, size: 4}); got != want || !valid.MatchString(string(got)) {
			t.Errorf("%d is called %s, want %s", id, got, want)
		}
	}
}
