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

// fixture is an initialized node with the GPU under test.
type fixture struct {
	*testing.T
	nvml.Library
	attach   func(uint32, string, int64) error
	detach   func(uint32)
	readOnly bool
	gpus     []nvml.GPU
	// gpu is the first GPU with MIG, or the first.
	gpu nvml.GPU
	// model is its GPU model, if known.
	model *mig.Model
}

func newFixture(t *testing.T, target Target) *fixture {
	t.Helper()
	node := target.New(t)
	b := &fixture{T: t, Library: node.Library, attach: node.Attach, detach: node.Detach, readOnly: target.ReadOnly}
	b.requireNoError(b.Init())
	t.Cleanup(func() { _ = b.Shutdown() })
	gpus, err := b.GPUs()
	b.requireNoError(err)
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
	b.model, _ = mig.ModelByPCIDevice(b.gpu.PCIDevice)
	return b
}

func (b *fixture) requireNoError(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("refused: %v", err)
	}
}

// requireError fails unless an error is one of the driver's codes.
func (b *fixture) requireError(what string, err error, want ...nvml.Error) {
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

func (b *fixture) requireEqual(what string, got, want any) {
	b.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// enterMode sets the GPU's mode, with a reset if necessary.
func (b *fixture) enterMode(mode nvml.Mode) {
	b.Helper()
	activation, err := b.SetMIGMode(b.gpu.UUID, mode)
	b.requireNoError(err)
	if activation != nil && !errors.Is(activation, nvml.ErrResetRequired) {
		b.Fatalf("the activation failed: %v", activation)
	}
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	if pending != mode {
		b.Fatalf("the pending mode is %v, want the requested %v", pending, mode)
	}
	if current != mode {
		b.requireNoError(b.Reset(b.gpu.UUID))
	}
	current, pending, err = b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	if current != mode || pending != mode {
		b.Fatalf("the mode is %v, pending %v; want %v", current, pending, mode)
	}
}

// enableMIG enables MIG mode and returns the profiles.
func (b *fixture) enableMIG() []nvml.Profile {
	b.Helper()
	b.enterMode(nvml.Enabled)
	return b.listProfiles()
}

func (b *fixture) listProfiles() []nvml.Profile {
	b.Helper()
	profiles, err := b.Profiles(b.gpu.UUID)
	b.requireNoError(err)
	if len(profiles) == 0 {
		b.Fatal("there are no profiles")
	}
	return profiles
}

// placedProfile is a profile at a possible place.
type placedProfile struct {
	profile nvml.Profile
	at      nvml.Placement
}

func (p placedProfile) overlaps(other placedProfile) bool {
	return p.at.Start < other.at.Start+other.at.Size && other.at.Start < p.at.Start+p.at.Size
}

// allPlacements returns all places of the profiles by start.
func (b *fixture) allPlacements(profiles []nvml.Profile) []placedProfile {
	b.Helper()
	var all []placedProfile
	for _, profile := range profiles {
		places, err := b.Placements(b.gpu.UUID, profile.ID)
		b.requireNoError(err)
		if len(places) == 0 {
			b.Fatalf("profile %d may lie nowhere", profile.ID)
		}
		for _, at := range places {
			all = append(all, placedProfile{profile, at})
		}
	}
	slices.SortStableFunc(all, func(p, q placedProfile) int { return p.at.Start - q.at.Start })
	return all
}

// smallestPlacement returns a place of the smallest profile, of which most instances fit.
func (b *fixture) smallestPlacement(profiles []nvml.Profile) placedProfile {
	b.Helper()
	return slices.MinFunc(b.allPlacements(profiles), func(p, q placedProfile) int {
		return cmp.Or(p.profile.Memory-q.profile.Memory, q.profile.Max-p.profile.Max, p.at.Start-q.at.Start)
	})
}

func (b *fixture) createInstance(p placedProfile) nvml.Instance {
	b.Helper()
	made, err := b.CreateInstance(b.gpu.UUID, p.profile.ID, p.at)
	b.requireNoError(err)
	if made.Profile != p.profile.ID || made.Placement != p.at {
		b.Fatalf("requested profile %d at %v, got %+v", p.profile.ID, p.at, made)
	}
	return made
}

// createDevice creates an instance and its compute instance.
func (b *fixture) createDevice(p placedProfile) (nvml.Instance, nvml.ComputeInstance) {
	b.Helper()
	made := b.createInstance(p)
	compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.requireNoError(err)
	return made, compute
}

func (b *fixture) listInstances() []nvml.Instance {
	b.Helper()
	instances, err := b.Instances(b.gpu.UUID)
	b.requireNoError(err)
	return instances
}

// requireLayout fails unless the GPU has exactly these instances.
func (b *fixture) requireLayout(want ...nvml.Instance) {
	b.Helper()
	slices.SortFunc(want, func(p, q nvml.Instance) int { return p.Placement.Start - q.Placement.Start })
	got := b.listInstances()
	if len(got) != 0 || len(want) != 0 {
		b.requireEqual("instances", got, want)
	}
}

func (b *fixture) destroyInstance(instance nvml.Instance) {
	b.Helper()
	b.requireNoError(b.DestroyInstance(b.gpu.UUID, instance.ID))
}
