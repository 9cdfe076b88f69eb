// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

var testStart = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

const gpuMemory = 40000

// newPod returns a pod with a share of 10000 MiB that uses so much memory.
func newPod(uid types.UID, usedMiB int64) PodUse {
	last := testStart
	return PodUse{
		UID: uid, Governed: true, MemoryMiB: &usedMiB, HasProcess: true, LastActive: &last,
		Allowance: Allowance{ShareMiB: 10000, Shared: true},
	}
}

// withLimit lets a pod burst.
func withLimit(p PodUse, limitMiB int64) PodUse {
	p.Allowance.LimitMiB = limitMiB
	return p
}

func newGPU(pods ...PodUse) DeviceUse {
	return DeviceUse{Device: Device{UUID: "GPU-0", MemoryMiB: gpuMemory}, OtherMiB: new(int64), Pods: pods}
}

// run adds a sample each second, from the second after the last one, and returns the last findings.
type run struct {
	Tracker
	at      time.Time // of the clock, which may be set
	elapsed time.Duration
}

func newRun() *run { return &run{at: testStart} }

// pass lets time pass without a sample.
func (r *run) pass(d time.Duration) { r.at, r.elapsed = r.at.Add(d), r.elapsed+d }

func (r *run) add(seconds int, devices ...DeviceUse) (findings []v1alpha1.Finding) {
	for range seconds {
		r.pass(time.Second)
		findings = r.Add(Sample{At: r.at, Elapsed: r.elapsed, Devices: devices})
	}
	return findings
}

func requireFindings(t *testing.T, got []v1alpha1.Finding, want ...string) {
	t.Helper()
	var have []string
	for _, f := range got {
		have = append(have, fmt.Sprintf("%s %s %s %d", f.PodUID, f.Reason, f.Device, f.ExcessMiB))
	}
	if !slices.Equal(have, want) {
		t.Errorf("findings\n%q, want\n%q", have, want)
	}
}

// A pod exceeds its share by more than 5 % and 512 MiB.
func TestMargins(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  PodUse
		want bool
	}{
		"within":                       {newPod("a", 10000), false},
		"5 % above":                    {newPod("a", 10500), false},
		"512 MiB above":                {newPod("a", 10512), false},
		"above both":                   {newPod("a", 10513), true},
		"5 % above a large share":      {PodUse{UID: "a", Governed: true, MemoryMiB: new(int64(21000)), Allowance: Allowance{ShareMiB: 20000, Shared: true}}, false},
		"above 5 % of a large share":   {PodUse{UID: "a", Governed: true, MemoryMiB: new(int64(21001)), Allowance: Allowance{ShareMiB: 20000, Shared: true}}, true},
		"512 MiB above a small share":  {PodUse{UID: "a", Governed: true, MemoryMiB: new(int64(612)), Allowance: Allowance{ShareMiB: 100, Shared: true}}, false},
		"up to its limit":              {withLimit(newPod("a", 20000), 20000), false},
		"above its limit":              {withLimit(newPod("a", 22000), 20000), true},
		"unknown memory":               {PodUse{UID: "a", Governed: true, Allowance: Allowance{ShareMiB: 10000, Shared: true}}, false},
		"an unknown share":             {PodUse{UID: "a", Governed: true, MemoryMiB: new(int64(30000)), Allowance: Allowance{Shared: true}}, false},
		"a device that it has alone":   {PodUse{UID: "a", Governed: true, MemoryMiB: new(int64(30000)), Allowance: Allowance{ShareMiB: 10000}}, false},
		"a pod outside of projects":    {PodUse{UID: "a", MemoryMiB: new(int64(30000)), Allowance: Allowance{ShareMiB: 10000, Shared: true}}, false},
		"a pod without UID":            {PodUse{Governed: true, MemoryMiB: new(int64(30000)), Allowance: Allowance{ShareMiB: 10000, Shared: true}}, false},
		"a burst with room for others": {withLimit(newPod("a", 15000), 20000), false},
	} {
		if got := newRun().add(61, newGPU(tt.pod)); (len(got) == 1) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	mig := newGPU(newPod("a", 30000))
	mig.MIG = true
	requireFindings(t, newRun().add(61, mig))
}

// A finding needs a minute without a gap, and ends with the first sample that shows that it is over.
func TestConfirmation(t *testing.T) {
	over, within, unknown := newGPU(newPod("a", 30000)), newGPU(newPod("a", 9000)), newGPU(newPod("a", 0))
	unknown.Pods[0].MemoryMiB = nil
	found := "a ShareExceeded GPU-0 20000"
	r := newRun()
	requireFindings(t, r.add(60, over))
	got := r.add(1, over)
	requireFindings(t, got, found)
	if since := got[0].Since.Time; !since.Equal(testStart.Add(time.Second)) {
		t.Errorf("since %s", since)
	}
	requireFindings(t, r.add(1, within))
	requireFindings(t, r.add(60, over))
	requireFindings(t, r.add(1, over), found)

	t.Run("unknown memory", func(t *testing.T) {
		r := newRun()
		r.add(59, over)
		r.add(1, unknown)
		requireFindings(t, r.add(60, over))
		requireFindings(t, r.add(1, over), found)
		requireFindings(t, r.add(10, unknown), found) // a GPU that did not answer at once ends no finding
		requireFindings(t, r.add(1, unknown))
		requireFindings(t, r.add(1, over))
	})
	t.Run("a gap", func(t *testing.T) {
		r := newRun()
		r.add(59, over)
		r.pass(10 * time.Second)
		requireFindings(t, r.add(60, over))
		requireFindings(t, r.add(1, over), found)
		r.pass(9 * time.Second)
		requireFindings(t, r.add(1, over), found)
	})
	t.Run("steps of the clock", func(t *testing.T) {
		for _, step := range []time.Duration{-time.Hour, -time.Second, time.Minute, time.Hour} {
			r := newRun()
			r.add(30, over)
			r.at = r.at.Add(step)
			requireFindings(t, r.add(30, over)) // no step is evidence
			requireFindings(t, r.add(1, over), found)
			r.at = r.at.Add(step)
			got := r.add(1, over)
			requireFindings(t, got, found)
			if since := got[0].Since.Time; !since.Equal(testStart.Add(time.Second)) {
				t.Errorf("since %s after a step of %s", since, step)
			}
			requireFindings(t, r.add(1, within))
		}
	})
	t.Run("a pod that vanishes and returns", func(t *testing.T) {
		r := newRun()
		r.add(61, over)
		requireFindings(t, r.add(1, newGPU()))
		requireFindings(t, r.add(60, over)) // a UID that was used again, too
		requireFindings(t, r.add(1, over), found)
		requireFindings(t, r.add(1))
	})
	t.Run("another device", func(t *testing.T) {
		r := newRun()
		r.add(60, over)
		other := over
		other.UUID = "GPU-1"
		requireFindings(t, r.add(60, other))
		requireFindings(t, r.add(1, other), "a ShareExceeded GPU-1 20000")
	})
	t.Run("a slow agent", func(t *testing.T) {
		r := newRun()
		r.MaxGap = 62 * time.Second
		r.add(1, over)
		r.pass(29 * time.Second)
		r.add(1, over)
		r.pass(29 * time.Second)
		requireFindings(t, r.add(1, over), found)
	})
}

// A finding of a former agent continues if the first sample confirms it.
func TestRestore(t *testing.T) {
	over, within := newGPU(newPod("a", 30000)), newGPU(newPod("a", 9000))
	published := newRun().add(61, over)
	restored := func(after time.Duration) *run {
		r := &run{at: testStart.Add(61*time.Second + after)}
		r.Restore(published, testStart.Add(61*time.Second))
		return r
	}
	r := restored(time.Minute)
	got := r.add(1, over)
	requireFindings(t, got, "a ShareExceeded GPU-0 20000")
	if !got[0].Since.Equal(&published[0].Since) {
		t.Errorf("since %s, want %s", got[0].Since, published[0].Since)
	}
	requireFindings(t, restored(time.Minute).add(1, within))
	requireFindings(t, restored(time.Minute).add(1, newGPU()))
	requireFindings(t, restored(4*time.Minute).add(1, over))
	requireFindings(t, restored(-time.Hour).add(1, over), "a ShareExceeded GPU-0 20000") // the clock was set back
	requireFindings(t, restored(-time.Hour).add(1, within))
	unknown := newGPU(PodUse{UID: "a", Governed: true, Allowance: Allowance{ShareMiB: 10000, Shared: true}})
	requireFindings(t, restored(time.Second).add(1, unknown))
	// The clock was set back after the finding, so that it lasts since a time ahead.
	r = newRun()
	r.Restore([]v1alpha1.Finding{{PodUID: "a", Reason: v1alpha1.FindingShareExceeded}, published[0]}, testStart.Add(-time.Minute))
	got = r.add(1, over)
	requireFindings(t, got, "a ShareExceeded GPU-0 20000")
	if since := got[0].Since.Time; !since.Equal(testStart.Add(-time.Minute)) {
		t.Errorf("since %s, want not later than the sample", since)
	}
}

// A burst is a conflict once it takes what pods within their shares were promised. The pod to give way has
// the lowest priority, then it was idle longest.
func TestMemoryConflict(t *testing.T) {
	burst := func(uid types.UID, used int64, priority int32, idle time.Duration) PodUse {
		p := withLimit(newPod(uid, used), 30000)
		last := testStart.Add(-idle)
		p.Priority, p.LastActive = priority, &last
		return p
	}
	unknownUse := func(p PodUse) PodUse { p.LastActive = nil; return p }
	other := func(d DeviceUse, used int64) DeviceUse { d.OtherMiB = &used; return d }
	unknown := newPod("b", 0)
	unknown.MemoryMiB = nil
	outside := burst("a", 25000, 0, 0)
	outside.Governed = false
	for name, tt := range map[string]struct {
		device DeviceUse
		want   []string
	}{
		"room for the promised memory":   {newGPU(burst("a", 25000, 0, 0), newPod("b", 1000)), nil},
		"promised memory is missing":     {newGPU(burst("a", 28000, 0, 0), newPod("b", 1000), newPod("c", 1000)), []string{"a MemoryConflict GPU-0 18000"}},
		"nobody else was promised any":   {newGPU(burst("a", 29000, 0, 0)), nil},
		"others use what was promised":   {newGPU(burst("a", 20000, 0, 0), newPod("b", 10000), newPod("c", 10000)), nil},
		"less is missing than a context": {newGPU(burst("a", 20512, 0, 0), newPod("b", 1000), newPod("c", 1000)), nil},
		"the lowest priority":            {newGPU(burst("a", 15000, 0, time.Hour), burst("b", 15000, -8, 0), newPod("c", 0), newPod("d", 0)), []string{"b MemoryConflict GPU-0 5000"}},
		"the longest idle":               {newGPU(burst("a", 15000, -8, time.Minute), burst("b", 15000, -8, time.Hour), newPod("c", 0), newPod("d", 0)), []string{"b MemoryConflict GPU-0 5000"}},
		"unknown use is no idle time":    {newGPU(unknownUse(burst("a", 15000, -8, 0)), burst("b", 15000, -8, 0), newPod("c", 0), newPod("d", 0)), []string{"b MemoryConflict GPU-0 5000"}},
		"the larger burst":               {newGPU(burst("a", 14000, -8, 0), burst("b", 16000, -8, 0), newPod("c", 0), newPod("d", 0)), []string{"b MemoryConflict GPU-0 6000"}},
		"processes outside of pods":      {other(newGPU(burst("a", 25000, 0, 0), newPod("b", 1000)), 9000), []string{"a MemoryConflict GPU-0 15000"}},
		"unknown memory of a pod":        {newGPU(burst("a", 28000, 0, 0), unknown, newPod("c", 1000)), nil},
		"unknown memory outside of pods": {DeviceUse{Device: newGPU().Device, Pods: newGPU(burst("a", 28000, 0, 0), newPod("b", 1000), newPod("c", 1000)).Pods}, nil},
		"a pod outside of projects":      {newGPU(outside, newPod("b", 1000), newPod("c", 1000)), nil},
		"a pod above its limit goes first": {
			newGPU(burst("a", 16000, 0, 0), newPod("b", 17000), newPod("c", 0)), []string{"b ShareExceeded GPU-0 7000"},
		},
		"both, where that does not suffice": {
			newGPU(burst("a", 20000, 0, 0), newPod("b", 11000), newPod("c", 0), newPod("d", 0)),
			[]string{"a MemoryConflict GPU-0 10000", "b ShareExceeded GPU-0 1000"},
		},
	} {
		if tt.want == nil {
			tt.want = []string{}
		}
		t.Run(name, func(t *testing.T) { requireFindings(t, newRun().add(61, tt.device), tt.want...) })
	}
	// The pod to give way stays the same while both pods are in use.
	r := newRun()
	for i := range 61 {
		r.add(1, newGPU(burst("a", 15000, -8, time.Duration(i%2)), burst("b", 15000, -8, time.Duration(1-i%2)), newPod("c", 0), newPod("d", 0)))
	}
	requireFindings(t, r.findings(), "b MemoryConflict GPU-0 5000")
}

func TestNotAllocated(t *testing.T) {
	p := newPod("a", 300)
	p.NotAllocated, p.Allowance = true, Allowance{}
	requireFindings(t, newRun().add(61, newGPU(p)), "a NotAllocated GPU-0 300")
	p.MemoryMiB = nil
	requireFindings(t, newRun().add(61, newGPU(p)), "a NotAllocated GPU-0 0")
	p.HasProcess = false
	requireFindings(t, newRun().add(61, newGPU(p)))
}

// The worst comes first, and thousands of pods are no problem.
func TestManyPods(t *testing.T) {
	r := newRun()
	var devices []DeviceUse
	for i := range 16 {
		d := newGPU()
		d.UUID = fmt.Sprintf("GPU-%02d", i)
		for j := range 300 {
			d.Pods = append(d.Pods, newPod(types.UID(fmt.Sprintf("%d-%d", i, j)), int64(9000+100*j)))
		}
		devices = append(devices, d)
	}
	start := time.Now()
	got := r.add(61, devices...)
	took := time.Since(start) / 61
	if len(got) != 16*(300-16) || got[0].ExcessMiB != 28900 || !slices.IsSortedFunc(got, compareFindings) {
		t.Errorf("%d findings, the first %+v", len(got), got[0])
	}
	t.Logf("%s for a sample of %d pods", took, 16*300)
}

// In random histories each finding had a minute of samples before it that all show the excess, unless they
// are unknown for less than the longest gap. Steps of the clock change nothing.
func TestFindingsHaveEvidence(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 22))
		r := newRun()
		type moment struct {
			at      time.Time
			elapsed time.Duration
		}
		excessSince := map[types.UID]moment{}
		level := map[types.UID]int64{"a": 9000, "b": 9000, "c": 9000}
		for range 300 {
			if random.IntN(100) == 0 {
				r.at = r.at.Add(time.Duration(random.IntN(7200)-3600) * time.Second)
			}
			var pods []PodUse
			for _, uid := range []types.UID{"a", "b", "c"} {
				if random.IntN(40) == 0 {
					level[uid] = []int64{0, 9000, 10400, 12000, 30000}[random.IntN(5)]
				}
				p := newPod(uid, level[uid])
				switch random.IntN(60) {
				case 0:
					p.MemoryMiB = nil // neither evidence nor counter-evidence
				case 1:
					delete(excessSince, uid)
					continue
				default:
					if level[uid] <= 10512 {
						delete(excessSince, uid)
					} else if excessSince[uid].at.IsZero() {
						excessSince[uid] = moment{r.at.Add(time.Second), r.elapsed + time.Second}
					}
				}
				pods = append(pods, p)
			}
			for _, f := range r.add(1, newGPU(pods...)) {
				if f.Reason != v1alpha1.FindingShareExceeded {
					continue
				}
				since := excessSince[f.PodUID]
				if since.at.IsZero() || r.elapsed-since.elapsed < confirmation || f.ExcessMiB <= marginMiB {
					t.Fatalf("seed %d: at %s pod %s is above its share since %s, found %+v", seed, r.at, f.PodUID, since.at, f)
				}
			}
		}
	}
}
