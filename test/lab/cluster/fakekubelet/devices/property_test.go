// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// countedDevices returns how many devices the API server counts for a pod, by an
// independent computation: the most that are in use at any time.
func countedDevices(demands []Demand, resource string) int64 {
	var lasting, most int64
	for _, d := range demands {
		n := d.Amounts[resource]
		most = max(most, lasting+n)
		if d.Kind == LongRunning {
			lasting += n
		}
	}
	return most
}

func randomDemands(t *rapid.T) []Demand {
	var demands []Demand
	for i := range rapid.IntRange(1, 5).Draw(t, "containers") {
		demands = append(demands, Demand{
			Container: fmt.Sprintf("c%d", i),
			Kind:      rapid.SampledFrom([]Kind{Init, LongRunning}).Draw(t, "kind"),
			Amounts: map[string]int64{
				gpu:       rapid.Int64Range(0, 3).Draw(t, gpu),
				migDevice: rapid.Int64Range(0, 2).Draw(t, migDevice),
			},
		})
	}
	return demands
}

// In any sequence of operations no device has two pods, each container holds what it
// requested, and no device is lost.
func TestNoDeviceAllocatedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(inventory, nil)
		demanded := map[string][]Demand{}
		now := time.Unix(1_700_000_000, 0).UTC()
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				uid := fmt.Sprintf("pod-%d", len(demanded))
				demands := randomDemands(t)
				fits := true
				for resource, free := range s.free() {
					fits = fits && countedDevices(demands, resource) <= int64(len(free))
				}
				next, err := s.Admit(Pod{UID: uid, Namespace: "n", Name: uid}, demands)
				if (err == nil) != fits {
					t.Fatalf("fits %v: %t, but Admit returned %v", demands, fits, err)
				}
				if err == nil {
					demanded[uid] = demands
				}
				s = next
			},
			"end":     func(t *rapid.T) { s = s.End(randomUID(t, s), now) },
			"release": func(t *rapid.T) { s = releaseRandomPod(t, s) },
			"restart": func(t *rapid.T) { s = restartState(t, s) },
			"":        func(t *rapid.T) { checkInvariants(t, s, demanded) },
		})
	})
}

func randomUID(t *rapid.T, s State) string {
	uids := []string{"nobody"}
	for _, pod := range s.Pods() {
		uids = append(uids, pod.UID)
	}
	return rapid.SampledFrom(uids).Draw(t, "uid")
}

// releaseRandomPod releases an ended pod.
func releaseRandomPod(t *rapid.T, s State) State {
	over := slices.DeleteFunc(s.Pods(), Pod.Running)
	if len(over) == 0 {
		t.Skip("no pod has ended")
	}
	return s.Release(rapid.SampledFrom(over).Draw(t, "over").UID)
}

// restartState encodes the checkpoint and decodes it again.
func restartState(t *rapid.T, s State) State {
	raw, err := Encode("dgx-1", s)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := Decode("dgx-1", raw)
	if err != nil {
		t.Fatalf("checkpoint %s: %v", raw, err)
	}
	if diff := cmp.Diff(s.Pods(), pods, cmp.Transformer("nil", func(p []Pod) []Pod { return append([]Pod{}, p...) })); diff != "" {
		t.Fatalf("after a restart (-before +after):\n%s", diff)
	}
	return New(inventory, pods)
}

func checkInvariants(t *rapid.T, s State, demanded map[string][]Demand) {
	living, processes := map[string]string{}, map[string]string{}
	for _, pod := range s.Pods() {
		holders := living
		if !pod.Running() {
			holders = processes
		}
		for _, id := range pod.Devices() {
			if other, taken := holders[id]; taken {
				t.Fatalf("device %s is held by %s and %s", id, other, pod.UID)
			}
			holders[id] = pod.UID
		}
		checkGrants(t, pod, demanded[pod.UID])
	}
	for id, uid := range living {
		if other, shared := processes[id]; shared && !slices.Contains(s.BlockingPods(uid), other) {
			t.Fatalf("pod %s may start on device %s, where processes of %s are", uid, id, other)
		}
	}
	var free int
	for _, list := range s.free() {
		free += len(list)
	}
	if free+len(living) != len(inventory) {
		t.Fatalf("%d devices free and %d held, of %d", free, len(living), len(inventory))
	}
}

func checkGrants(t *rapid.T, pod Pod, demands []Demand) {
	given := map[string]map[string][]string{}
	for _, g := range pod.Grants {
		given[g.Container] = g.Devices
	}
	lasting, all := map[string]bool{}, map[string]map[string]bool{gpu: {}, migDevice: {}}
	for _, d := range demands {
		for resource, n := range d.Amounts {
			ids := given[d.Container][resource]
			if int64(len(ids)) != n {
				t.Fatalf("container %s requested %d of %s and holds %v", d.Container, n, resource, ids)
			}
			for _, id := range ids {
				if !slices.Contains(inventory, Device{id, resource}) {
					t.Fatalf("%s is not of resource %s", id, resource)
				}
				if lasting[id] {
					t.Fatalf("%s is held by two containers that run at the same time", id)
				}
				all[resource][id] = true
			}
		}
		if d.Kind == LongRunning {
			for _, ids := range given[d.Container] {
				for _, id := range ids {
					lasting[id] = true
				}
			}
		}
	}
	for resource, ids := range all {
		if want := countedDevices(demands, resource); int64(len(ids)) != want {
			t.Fatalf("pod %s holds %v of %s, the API server counts %d", pod.UID, slices.Sorted(maps.Keys(ids)), resource, want)
		}
	}
}
