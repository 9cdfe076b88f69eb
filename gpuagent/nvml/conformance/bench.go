// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// bench is a node under test: initialised, with the GPU that the cases use.
type bench struct {
	*testing.T
	nvml.Library
	attach   func(uint32, string, int64) error
	detach   func(uint32)
	readOnly bool
	gpus     []nvml.GPU
	// gpu is the first that can be cut, or else the first.
	gpu nvml.GPU
	// board is its kind, where it is known.
	board *mig.Board
}

func newBench(t *testing.T, target Target) *bench {
	t.Helper()
	node := target.New(t)
	b := &bench{T: t, Library: node.Library, attach: node.Attach, detach: node.Detach, readOnly: target.ReadOnly}
	b.must(b.Init())
	t.Cleanup(func() { _ = b.Shutdown() })
	gpus, err := b.GPUs()
	b.must(err)
	if len(gpus) == 0 {
		t.Fatal("the node has no GPU")
	}
	b.gpus, b.gpu = gpus, gpus[0]
	for _, gpu := range gpus {
		if _, _, err := b.MIGMode(gpu.UUID); err == nil {
			b.gpu = gpu
			break
		}
	}
	b.board, _ = mig.BoardOf(b.gpu.PCIDevice)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("refused: %v", err)
	}
}

// refused is for errors that have to be one of the driver's.
func (b *bench) refused(what string, err error, want ...nvml.Error) {
	b.Helper()
	var code nvml.Error
	if err == nil || !errors.As(err, &code) {
		b.Errorf("%s: got %v, want %v", what, err, want)
		return
	}
	for _, one := range want {
		if errors.Is(err, one) {
			return
		}
	}
	b.Errorf("%s: got %v (%d), want %v", what, err, uint32(code), want)
}

func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// into brings the GPU into a mode, with a reset where the board needs one.
func (b *bench) into(mode nvml.Mode) {
	b.Helper()
	activation, err := b.SetMIGMode(b.gpu.UUID, mode)
	b.must(err)
	if activation != nil && !errors.Is(activation, nvml.ErrResetRequired) {
		b.Fatalf("the mode was not taken: %v", activation)
	}
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.must(err)
	if pending != mode {
		b.Fatalf("the mode that is pending is %v, not %v, after it was asked for", pending, mode)
	}
	if current != mode {
		b.must(b.Reset(b.gpu.UUID))
	}
	current, pending, err = b.MIGMode(b.gpu.UUID)
	b.must(err)
	if current != mode || pending != mode {
		b.Fatalf("the mode is %v, pending %v; want %v", current, pending, mode)
	}
}

// cut brings the GPU into MIG mode and is what it can be cut into.
func (b *bench) cut() []nvml.Profile {
	b.Helper()
	b.into(nvml.Enabled)
	return b.profiles()
}

func (b *bench) profiles() []nvml.Profile {
	b.Helper()
	profiles, err := b.Profiles(b.gpu.UUID)
	b.must(err)
	if len(profiles) == 0 {
		b.Fatal("there are no profiles")
	}
	return profiles
}

// placed is a profile at a place where it may lie.
type placed struct {
	profile nvml.Profile
	at      nvml.Placement
}

func (p placed) overlaps(other placed) bool {
	return p.at.Start < other.at.Start+other.at.Size && other.at.Start < p.at.Start+p.at.Size
}

// places are all places of some profiles, by where they begin.
func (b *bench) places(profiles []nvml.Profile) []placed {
	b.Helper()
	var all []placed
	for _, profile := range profiles {
		places, err := b.Placements(b.gpu.UUID, profile.ID)
		b.must(err)
		if len(places) == 0 {
			b.Fatalf("profile %d may lie nowhere", profile.ID)
		}
		for _, at := range places {
			all = append(all, placed{profile, at})
		}
	}
	slices.SortStableFunc(all, func(p, q placed) int { return p.at.Start - q.at.Start })
	return all
}

// smallest is a place of the smallest profile, of which there is room for the most.
func (b *bench) smallest(profiles []nvml.Profile) placed {
	b.Helper()
	return slices.MinFunc(b.places(profiles), func(p, q placed) int {
		return cmp.Or(p.profile.Memory-q.profile.Memory, q.profile.Max-p.profile.Max, p.at.Start-q.at.Start)
	})
}

func (b *bench) create(p placed) nvml.Instance {
	b.Helper()
	made, err := b.CreateInstance(b.gpu.UUID, p.profile.ID, p.at)
	b.must(err)
	if made.Profile != p.profile.ID || made.Placement != p.at {
		b.Fatalf("asked for profile %d at %v, got %+v", p.profile.ID, p.at, made)
	}
	return made
}

// device makes an instance and its compute instance.
func (b *bench) device(p placed) (nvml.Instance, nvml.ComputeInstance) {
	b.Helper()
	made := b.create(p)
	compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.must(err)
	return made, compute
}

func (b *bench) instances() []nvml.Instance {
	b.Helper()
	instances, err := b.Instances(b.gpu.UUID)
	b.must(err)
	return instances
}

// layout is held to be exactly this.
func (b *bench) layout(want ...nvml.Instance) {
	b.Helper()
	slices.SortFunc(want, func(p, q nvml.Instance) int { return p.Placement.Start - q.Placement.Start })
	got := b.instances()
	if len(got) != 0 || len(want) != 0 {
		b.equal("instances", got, want)
	}
}

func (b *bench) destroy(instance nvml.Instance) {
	b.Helper()
	b.must(b.DestroyInstance(b.gpu.UUID, instance.ID))
}
