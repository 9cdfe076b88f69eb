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
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// drawn is a GPU in MIG mode as a picture.
type drawn struct{ picture }

func draw(board string) *drawn {
	b, ok := mig.BoardNamed(board)
	if !ok {
		panic(board)
	}
	d := &drawn{picture{
		gpu: nvml.GPU{UUID: "GPU-1", Name: board, PCIDevice: uint32(b.Devices[0])<<16 | 0x10de}, board: b,
		capable: true, current: nvml.Enabled, pending: nvml.Enabled,
	}}
	for i := range b.Profiles {
		p := &b.Profiles[i]
		d.profiles = append(d.profiles, nvml.Profile{ID: nvml.ProfileID(p.ID), Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute})
	}
	return d
}

func (d *drawn) mode(current, pending nvml.Mode) *drawn {
	d.current, d.pending = current, pending
	return d
}

// with adds an instance: "ours", "foreign", each also "half" or "held".
func (d *drawn) with(profile v1alpha1.MIGProfile, start int, how string) *drawn {
	p, err := d.board.Named(profile)
	if err != nil {
		panic(err)
	}
	id := uint32(len(d.instances) + 1)
	it := instance{id: id, profile: p, start: start, size: p.Memory, ours: strings.Contains(how, "ours")}
	if !strings.Contains(how, "half") {
		it.computes = []nvml.ComputeInstance{{ID: 0, UUID: fmt.Sprintf("MIG-%d", id), Slices: p.Compute}}
	}
	if strings.Contains(how, "held") {
		it.holder = &Holder{PID: 42}
	}
	d.instances = append(d.instances, it)
	return d
}

// steps in words.
func told(v verdict) string {
	if len(v.steps) == 0 {
		return string(v.state) + " " + v.reason
	}
	var list []string
	for _, s := range v.steps {
		switch s.act {
		case destroy:
			list = append(list, fmt.Sprintf("-%s@%d", s.instance.profile.Name, s.instance.start))
		case complete:
			list = append(list, fmt.Sprintf("~%s@%d", s.instance.profile.Name, s.instance.start))
		case create:
			list = append(list, fmt.Sprintf("+%s", s.slot.placement()))
		case setMode:
			list = append(list, fmt.Sprintf("mode %v", s.mode))
		case reset:
			list = append(list, "reset")
		}
	}
	return strings.Join(list, " ")
}

func TestDecide(t *testing.T) {
	whole := v1alpha1.DesiredGPU{}
	resettable := func(d v1alpha1.DesiredGPU) v1alpha1.DesiredGPU { d.MayReset = true; return d }
	cut := func(p ...Placement) v1alpha1.DesiredGPU { return want("", p...) }
	cases := []struct {
		name string
		gpu  *drawn
		want v1alpha1.DesiredGPU
		told string
		says string
	}{
		{"nothing to do", draw("A100-40GB").with("3g.20gb", 4, "ours"), cut(at("3g.20gb", 4)), "Applied Applied", ""},
		{"what is there and wanted stays, even held", draw("A100-40GB").with("3g.20gb", 4, "ours held").with("1g.5gb", 0, "ours"), cut(at("3g.20gb", 4), at("2g.10gb", 0)), "-1g.5gb@0 +2g.10gb@0", ""},
		{"the same profile elsewhere is another instance", draw("A100-40GB").with("3g.20gb", 0, "ours"), cut(at("3g.20gb", 4)), "-3g.20gb@0 +3g.20gb@4", ""},
		{"all that goes comes first", draw("A100-40GB").with("1g.5gb", 0, "ours").with("1g.5gb", 6, "ours"), cut(at("4g.20gb", 0), at("3g.20gb", 4)), "-1g.5gb@0 -1g.5gb@6 +4g.20gb@0 +3g.20gb@4", ""},
		{"one that is held keeps all as it is", draw("A100-40GB").with("1g.5gb", 0, "ours").with("1g.5gb", 6, "ours held"), cut(at("4g.20gb", 0), at("3g.20gb", 4)), "Reclaiming InUse", "process 42"},
		{"held and in nobody's way, but not wanted", draw("A100-40GB").with("1g.5gb", 6, "ours held"), cut(at("4g.20gb", 0)), "Reclaiming InUse", "1g.5gb@6"},
		{"half made and wanted", draw("A100-40GB").with("3g.20gb", 4, "ours half"), cut(at("3g.20gb", 4)), "~3g.20gb@4", ""},
		{"half made and not wanted", draw("A100-40GB").with("3g.20gb", 4, "ours half"), cut(), "-3g.20gb@4", ""},
		{"foreign, beside", draw("A100-40GB").with("1g.5gb", 6, "foreign held"), cut(at("4g.20gb", 0)), "+4g.20gb@0", ""},
		{"foreign, in the way", draw("A100-40GB").with("1g.5gb", 6, "foreign"), cut(at("3g.20gb", 4)), "Invalid InvalidLayout", "1g.5gb@6 (MIG-1)"},
		{"foreign, half made, in the way", draw("A100-40GB").with("1g.5gb", 6, "foreign half"), cut(at("3g.20gb", 4)), "Invalid InvalidLayout", "without a device"},
		{"foreign, and there can be only one", draw("A100-40GB").with("1g.5gb+me", 6, "foreign"), cut(at("1g.5gb+me", 0)), "Invalid InvalidLayout", "at most 1"},
		{"foreign, with the one set of media engines", draw("A30").with("1g.6gb+me", 3, "foreign"), cut(at("2g.12gb+me", 0)), "Invalid InvalidLayout", `"+me"`},
		{"no such profile", draw("A30"), cut(at("3g.20gb", 0)), "Invalid InvalidLayout", "[1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb]"},
		{"no such place", draw("A30"), cut(at("2g.12gb", 1)), "Invalid InvalidLayout", "[0 2]"},
		{"overlapping", draw("A30"), cut(at("2g.12gb", 0), at("1g.6gb", 1)), "Invalid InvalidLayout", "overlaps"},
		{"media engines twice", draw("A30"), cut(at("2g.12gb+me", 0), at("1g.6gb+me", 2)), "Invalid InvalidLayout", "once"},
		{"instances and no mode", draw("A30"), v1alpha1.DesiredGPU{Instances: []v1alpha1.DesiredInstance{{Profile: "4g.24gb"}}}, "Invalid InvalidLayout", "migEnabled"},

		{"enabled at once", draw("H100-80GB").mode(nvml.Disabled, nvml.Disabled), cut(), "mode true", ""},
		{"enabled, and pending from before", draw("H100-80GB").mode(nvml.Disabled, nvml.Enabled), cut(), "mode true", ""},
		{"enabled, at a reset", draw("A30").mode(nvml.Disabled, nvml.Disabled), cut(), "mode true", ""},
		{"pending", draw("A30").mode(nvml.Disabled, nvml.Enabled), cut(), "ResetRequired ResetRequired", "spec.mig.resets"},
		{"pending, and may be reset", draw("A30").mode(nvml.Disabled, nvml.Enabled), resettable(cut()), "reset", ""},
		{"an impossible layout does not change the mode", draw("A30").mode(nvml.Disabled, nvml.Disabled), cut(at("7g.40gb", 0)), "Invalid InvalidLayout", ""},
		{"left at once", draw("H100-80GB").with("1g.10gb", 0, "ours"), whole, "-1g.10gb@0 mode false", ""},
		{"left, held", draw("H100-80GB").with("1g.10gb", 0, "ours held"), whole, "Reclaiming InUse", "process 42"},
		{"left, foreign", draw("H100-80GB").with("1g.10gb", 0, "foreign"), whole, "Invalid InvalidLayout", "1g.10gb@0"},
		{"left, where it needs a reset that may not be", draw("A100-80GB").with("1g.10gb", 0, "ours"), whole, "ResetRequired ResetRequired", ""},
		{"left, where it needs a reset", draw("A100-80GB").with("1g.10gb", 0, "ours"), resettable(whole), "-1g.10gb@0 mode false", ""},
		{"left, and pending", draw("A100-80GB").mode(nvml.Enabled, nvml.Disabled), resettable(whole), "reset", ""},
		{"whole, and pending", draw("A100-80GB").mode(nvml.Disabled, nvml.Enabled), whole, "mode false", ""},
		{"whole", draw("A100-80GB").mode(nvml.Disabled, nvml.Disabled), whole, "Applied Applied", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			aim := resolve(c.gpu.board, c.want)
			v := decide(&c.gpu.picture, &aim)
			if diff := cmp.Diff(c.told, told(v)); diff != "" {
				t.Errorf("%s (%s)", diff, v.message)
			}
			if !strings.Contains(v.message, c.says) {
				t.Errorf("%q does not say %q", v.message, c.says)
			}
		})
	}
}

// Where nobody can tell who has what only that is made which takes nothing away.
func TestDecideWithoutKnowing(t *testing.T) {
	for how, gpu := range map[string]*drawn{
		"Reclaiming InUse":     draw("A100-40GB").with("1g.5gb", 0, "ours"),
		"-1g.5gb@6 +4g.20gb@0": draw("A100-40GB").with("1g.5gb", 6, "ours half"),
		"+4g.20gb@0":           draw("A100-40GB"),
	} {
		gpu.unknown = errors.New("the kubelet does not answer")
		aim := resolve(gpu.board, want("", at("4g.20gb", 0)))
		if got := told(decide(&gpu.picture, &aim)); got != how {
			t.Errorf("%s, want %s", got, how)
		}
	}
	gpu := draw("A100-40GB").with("1g.5gb", 6, "ours half")
	gpu.unknown = errors.New("no processes")
	gpu.unknownProcesses = gpu.unknown
	aim := resolve(gpu.board, want(""))
	if got := told(decide(&gpu.picture, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
	gpu = draw("H100-80GB").mode(nvml.Disabled, nvml.Disabled)
	gpu.unknown = errors.New("the kubelet does not answer")
	if got := told(decide(&gpu.picture, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
}

func TestUndo(t *testing.T) {
	former := func(gpu *drawn, p ...Placement) []slot { return slotsOf(gpu.board, p) }
	gpu := draw("A100-40GB").with("4g.20gb", 0, "ours").with("1g.5gb", 4, "ours held").with("1g.5gb", 6, "foreign")
	got := told(verdict{steps: undo(&gpu.picture, former(gpu, at("2g.10gb", 0), at("2g.10gb", 2), at("3g.20gb", 4)))})
	if want := "-4g.20gb@0 +2g.10gb@0 +2g.10gb@2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	gpu = draw("A100-40GB").with("2g.10gb", 0, "ours half").with("3g.20gb", 4, "ours").mode(nvml.Enabled, nvml.Disabled)
	got = told(verdict{steps: undo(&gpu.picture, former(gpu, at("2g.10gb", 0), at("3g.20gb", 4)))})
	if want := "mode true ~2g.10gb@0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhoseItIs(t *testing.T) {
	one := journal.Instance{Placement: at("3g.20gb", 4), ID: 1, UUID: "MIG-1"}
	half, other := one, one
	half.UUID = ""
	other.UUID = "MIG-9"
	call := func(act journal.Act, it journal.Instance) *journal.Change {
		return &journal.Change{Next: journal.Call{Act: act, Instance: it}}
	}
	cases := []struct {
		name     string
		there    string
		register []journal.Instance
		begun    *journal.Change
		ours     bool
	}{
		{"nobody's", "foreign", nil, nil, false},
		{"registered", "foreign", []journal.Instance{one}, nil, true},
		{"the identifier was given to another", "foreign", []journal.Instance{other}, nil, false},
		{"registered as half made, and now somebody has made a device", "foreign", []journal.Instance{half}, nil, false},
		{"registered as half made", "foreign half", []journal.Instance{half}, nil, true},
		{"being made", "foreign half", nil, call(journal.CreateInstance, journal.Instance{Placement: one.Placement}), true},
		{"being made, but that could not have a device yet", "foreign", nil, call(journal.CreateInstance, journal.Instance{Placement: one.Placement}), false},
		{"its device being made", "foreign", nil, call(journal.CreateCompute, half), true},
		{"its device being destroyed, not yet done", "foreign", nil, call(journal.DestroyCompute, one), true},
		{"its device being destroyed, done", "foreign half", nil, call(journal.DestroyCompute, one), true},
		{"its device was destroyed and another made", "foreign", nil, call(journal.DestroyCompute, other), false},
		{"being destroyed", "foreign half", nil, call(journal.DestroyInstance, half), true},
		{"was destroyed and another made", "foreign", nil, call(journal.DestroyInstance, half), false},
		{"the mode was being set", "foreign", nil, call(journal.SetMode, journal.Instance{}), false},
	}
	for _, c := range cases {
		gpu := draw("A100-40GB").with("3g.20gb", 4, c.there)
		claim(&gpu.picture, c.register, c.begun, nil)
		if got := gpu.instances[0].ours; got != c.ours {
			t.Errorf("%s: ours is %v", c.name, got)
		}
	}
	gpu := draw("A100-40GB").with("3g.20gb", 4, "foreign")
	gpu.instances[0].computes = append(gpu.instances[0].computes, nvml.ComputeInstance{ID: 1, UUID: "MIG-2"})
	aim := resolve(gpu.board, want("", at("3g.20gb", 4)))
	if claim(&gpu.picture, nil, nil, &aim); gpu.instances[0].ours {
		t.Error("one that somebody has cut further was adopted")
	}
	gpu = draw("A100-40GB").with("3g.20gb", 4, "foreign")
	gpu.instances[0].computes[0].Slices = 1
	if claim(&gpu.picture, []journal.Instance{one}, nil, &aim); gpu.instances[0].ours {
		t.Error("one whose device is 1c.3g.20gb was adopted")
	}
}

// A process of which the driver does not say on which instance it is may be on each.
func TestProcessOnTheWholeOfACutGPUHoldsEachInstance(t *testing.T) {
	gpu := draw("A100-40GB").with("1g.5gb", 0, "ours").with("1g.5gb", 6, "ours half")
	gpu.note(nvml.Process{PID: 42, Instance: nvml.NoInstance})
	aim := resolve(gpu.board, want("", at("3g.20gb", 4)))
	if got := told(decide(&gpu.picture, &aim)); got != "Reclaiming InUse" {
		t.Error(got)
	}
	if steps := undo(&gpu.picture, nil); len(steps) != 0 {
		t.Errorf("undone under a process: %+v", steps)
	}
}

// Whatever the driver calls an instance, the GPUNode takes its name: with one that it
// refuses nothing of the node would be reported.
func TestNamesOfUnknownProfilesAreValid(t *testing.T) {
	valid := regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)
	gpu := draw("A100-40GB")
	gpu.profiles = []nvml.Profile{{ID: 90, Compute: 2, MemoryMiB: 9856, Attribute: "+unknown17"}, {ID: 91}, {ID: 92, Compute: 12, MemoryMiB: 1 << 40}}
	for id, want := range map[nvml.ProfileID]v1alpha1.MIGProfile{90: "2g.10gb", 91: "1g.0gb", 92: "8g.9999gb", 93: "4g.0gb"} {
		if got := gpu.nameOf(&instance{driver: id, size: 4}); got != want || !valid.MatchString(string(got)) {
			t.Errorf("%d is called %s, want %s", id, got, want)
		}
	}
}
