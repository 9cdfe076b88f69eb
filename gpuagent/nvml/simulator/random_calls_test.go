// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// guideProfile is a profile from NVIDIA's guide, as an independent second table.
type guideProfile struct {
	id     nvml.ProfileID
	size   int
	starts []int
	most   int
	media  bool
}

var guideProfiles = map[string][]guideProfile{
	"A100-40GB": {
		{19, 1, []int{0, 1, 2, 3, 4, 5, 6}, 7, false},
		{20, 1, []int{0, 1, 2, 3, 4, 5, 6}, 1, true},
		{15, 2, []int{0, 2, 4, 6}, 4, false},
		{14, 2, []int{0, 2, 4}, 3, false},
		{9, 4, []int{0, 4}, 2, false},
		{5, 4, []int{0}, 1, false},
		{0, 8, []int{0}, 1, false},
	},
	"A30": {
		{14, 1, []int{0, 1, 2, 3}, 4, false},
		{21, 1, []int{0, 1, 2, 3}, 1, true},
		{5, 2, []int{0, 2}, 2, false},
		{6, 2, []int{0, 2}, 1, true},
		{0, 4, []int{0}, 1, false},
	},
}

// guideModel is a GPU according to the guide: the owner of each slice, and the instances.
type guideModel struct {
	kinds []guideProfile
	owner [8]int // an identifier, or -1
	lying map[uint32]guideInstance
}

type guideInstance struct {
	kind          guideProfile
	start         int
	compute, busy bool
	uuid          string
}

func (m *guideModel) isFree(start, size int) bool {
	for k := start; k < start+size; k++ {
		if m.owner[k] >= 0 {
			return false
		}
	}
	return true
}

func (m *guideModel) isAllowed(k guideProfile) bool {
	same := 0
	for _, l := range m.lying {
		if l.kind.id == k.id || k.media && l.kind.media {
			same++
		}
	}
	return same < k.most
}

// remainingCapacity counts how many more instances fit by trying all sets of places.
func (m *guideModel) remainingCapacity(k guideProfile) int {
	best := 0
	for set := range 1 << len(k.starts) {
		taken, n := m.owner, 0
		fits := true
		for i, start := range k.starts {
			if set>>i&1 == 0 {
				continue
			}
			n++
			for s := start; s < start+k.size; s++ {
				fits = fits && taken[s] < 0
				taken[s] = 99
			}
		}
		same := 0
		for _, l := range m.lying {
			if l.kind.id == k.id || k.media && l.kind.media {
				same++
			}
		}
		if fits && same+n <= k.most {
			best = max(best, n)
		}
	}
	return best
}

// TestRandomCalls makes random calls and compares the results with the model.
func TestRandomCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"A100-40GB", "A30"}).Draw(t, "model")
		n, err := simulator.New(simulator.Config{
			GPUs: []simulator.GPU{migGPU(name, first)}, Order: simulator.NoOrder,
			Clock: simulator.NewSkipClock(startTime),
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Init()
		m := &guideModel{kinds: guideProfiles[name], lying: map[uint32]guideInstance{}, owner: [8]int{-1, -1, -1, -1, -1, -1, -1, -1}}
		uuids := map[string]bool{}
		id := func(t *rapid.T) uint32 { return uint32(rapid.IntRange(0, 7).Draw(t, "id")) }
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				k := rapid.SampledFrom(m.kinds).Draw(t, "kind")
				start := rapid.IntRange(0, 8-k.size).Draw(t, "start")
				it, err := n.CreateInstance(first, k.id, nvml.Placement{Start: start, Size: k.size})
				want := nvml.Error(0)
				switch {
				case !slices.Contains(k.starts, start):
					want = nvml.ErrInvalidArgument
				case !m.isFree(start, k.size) || !m.isAllowed(k):
					want = nvml.ErrInsufficientResources
				}
				requireOneError(t, "create", err, want)
				if err == nil {
					if _, twice := m.lying[it.ID]; twice {
						t.Fatalf("identifier %d is given twice", it.ID)
					}
					m.lying[it.ID] = guideInstance{kind: k, start: start}
					for s := start; s < start+k.size; s++ {
						m.owner[s] = int(it.ID)
					}
				}
			},
			"createCompute": func(t *rapid.T) {
				id := id(t)
				c, err := n.CreateComputeInstance(first, id)
				l, there := m.lying[id]
				switch {
				case !there:
					requireOneError(t, "create compute", err, nvml.ErrNotFound)
				case l.compute:
					requireOneError(t, "create compute", err, nvml.ErrInsufficientResources)
				default:
					requireOneError(t, "create compute", err, 0)
					if uuids[c.UUID] {
						t.Fatalf("UUID %s is given twice", c.UUID)
					}
					uuids[c.UUID] = true
					l.compute, l.uuid = true, c.UUID
					m.lying[id] = l
				}
			},
			"attach": func(t *rapid.T) {
				id := id(t)
				if l, there := m.lying[id]; there && l.compute {
					requireOneError(t, "attach", n.Attach(id, l.uuid, 100, 10), 0)
					l.busy = true
					m.lying[id] = l
				}
			},
			"detach": func(t *rapid.T) {
				id := id(t)
				n.Detach(id)
				if l, there := m.lying[id]; there {
					l.busy = false
					m.lying[id] = l
				}
			},
			"destroyCompute": func(t *rapid.T) {
				id := id(t)
				err := n.DestroyComputeInstance(first, id, 0)
				l, there := m.lying[id]
				switch {
				case !there || !l.compute:
					requireOneError(t, "destroy compute", err, nvml.ErrNotFound)
				case l.busy:
					requireOneError(t, "destroy compute", err, nvml.ErrInUse)
				default:
					requireOneError(t, "destroy compute", err, 0)
					l.compute = false
					m.lying[id] = l
				}
			},
			"destroy": func(t *rapid.T) {
				id := id(t)
				err := n.DestroyInstance(first, id)
				l, there := m.lying[id]
				switch {
				case !there:
					requireOneError(t, "destroy", err, nvml.ErrNotFound)
				case l.compute:
					requireOneError(t, "destroy", err, nvml.ErrInUse)
				default:
					requireOneError(t, "destroy", err, 0)
					delete(m.lying, id)
					for s := l.start; s < l.start+l.kind.size; s++ {
						m.owner[s] = -1
					}
				}
			},
			"": func(t *rapid.T) {
				if err := n.Check(); err != nil {
					t.Fatal(err)
				}
				there, err := n.Instances(first)
				if err != nil || len(there) != len(m.lying) {
					t.Fatalf("Instances = %v, %v, want %v", there, err, m.lying)
				}
				var taken [8]bool
				for _, it := range there {
					l := m.lying[it.ID]
					if it.Profile != l.kind.id || it.Placement != (nvml.Placement{Start: l.start, Size: l.kind.size}) {
						t.Fatalf("got %+v, want %+v", it, l)
					}
					for s := it.Placement.Start; s < it.Placement.Start+it.Placement.Size; s++ {
						if taken[s] {
							t.Fatalf("slice %d is two instances'", s)
						}
						taken[s] = true
					}
				}
				for _, k := range m.kinds {
					left, err := n.RemainingCapacity(first, k.id)
					if err != nil || left != m.remainingCapacity(k) {
						t.Fatalf("RemainingCapacity of %d = %d, %v, want %d", k.id, left, err, m.remainingCapacity(k))
					}
				}
			},
		})
	})
}

func requireOneError(t *rapid.T, what string, err error, want nvml.Error) {
	t.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

// TestEmptyCapacity fills an empty GPU of each model with each profile: as many as reported, and
// not one more.
func TestEmptyCapacity(t *testing.T) {
	for _, name := range simulator.Models() {
		n := newInitializedNode(t, wholeGPU(name, first))
		if activation, err := n.SetMIGMode(first, nvml.Enabled); err != nil {
			continue // no MIG
		} else if activation != nil {
			n.Reset(first)
		}
		for _, p := range requireResult(n.Profiles(first))(t) {
			made := 0
			for _, at := range requireResult(n.Placements(first, p.ID))(t) {
				left := requireResult(n.RemainingCapacity(first, p.ID))(t)
				_, err := n.CreateInstance(first, p.ID, at)
				if (err == nil) != (left > 0) {
					t.Errorf("%s: profile %d at %v: %v, with room for %d", name, p.ID, at, err, left)
				}
				if err == nil {
					made++
				}
			}
			if made != p.Max {
				t.Errorf("%s: %d instances of profile %d, which has at most %d", name, made, p.ID, p.Max)
			}
			n.Reset(first)
		}
	}
}
