// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	gpu       = "nvidia.com/gpu"
	migDevice = "nvidia.com/mig-1g.5gb"
)

var inventory = []Device{
	{"GPU-0", gpu},
	{"GPU-1", gpu},
	{"GPU-2", gpu},
	{"GPU-3", gpu},
	{"MIG-0", migDevice},
	{"MIG-1", migDevice},
}

func newDemand(container string, kind Kind, resource string, n int64) Demand {
	return Demand{Container: container, Kind: kind, Amounts: map[string]int64{resource: n}}
}

func newGrants(list ...Grant) []Grant { return list }

func newGrant(container, resource string, ids ...string) Grant {
	return Grant{Container: container, Devices: map[string][]string{resource: ids}}
}

func TestAdmit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		demands []Demand
		want    []Grant
		wantErr string
	}{
		{name: "nothing", demands: []Demand{newDemand("main", LongRunning, gpu, 0)}},
		{
			name:    "the first free devices",
			demands: []Demand{newDemand("main", LongRunning, gpu, 2)},
			want:    newGrants(newGrant("main", gpu, "GPU-0", "GPU-1")),
		},
		{
			name: "separate devices for each container",
			demands: []Demand{
				newDemand("a", LongRunning, gpu, 1), newDemand("b", LongRunning, gpu, 2),
				newDemand("c", LongRunning, migDevice, 1),
			},
			want: newGrants(newGrant("a", gpu, "GPU-0"), newGrant("b", gpu, "GPU-1", "GPU-2"), newGrant("c", migDevice, "MIG-0")),
		},
		{
			name:    "an init container passes on its devices",
			demands: []Demand{newDemand("init", Init, gpu, 2), newDemand("a", LongRunning, gpu, 1), newDemand("b", LongRunning, gpu, 3)},
			want: newGrants(newGrant("init", gpu, "GPU-0", "GPU-1"), newGrant("a", gpu, "GPU-0"),
				newGrant("b", gpu, "GPU-1", "GPU-2", "GPU-3")),
		},
		{
			name:    "also to the next init container",
			demands: []Demand{newDemand("one", Init, gpu, 1), newDemand("two", Init, gpu, 3), newDemand("main", LongRunning, gpu, 1)},
			want: newGrants(newGrant("one", gpu, "GPU-0"), newGrant("two", gpu, "GPU-0", "GPU-1", "GPU-2"),
				newGrant("main", gpu, "GPU-0")),
		},
		{
			name: "a sidecar keeps its devices",
			demands: []Demand{
				newDemand("init", Init, gpu, 1), newDemand("sidecar", LongRunning, gpu, 1),
				newDemand("main", LongRunning, gpu, 1),
			},
			want: newGrants(newGrant("init", gpu, "GPU-0"), newGrant("sidecar", gpu, "GPU-0"), newGrant("main", gpu, "GPU-1")),
		},
		{
			name:    "more than available",
			demands: []Demand{newDemand("a", LongRunning, gpu, 3), newDemand("b", LongRunning, gpu, 2)},
			wantErr: "requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1",
		},
		{
			name:    "far more than available",
			demands: []Demand{newDemand("a", LongRunning, migDevice, 1<<62)},
			wantErr: "requested number of devices unavailable for nvidia.com/mig-1g.5gb. Requested: 4611686018427387904, Available: 2",
		},
		{
			name:    "a resource that the node does not have",
			demands: []Demand{newDemand("a", LongRunning, "nvidia.com/mig-7g.40gb", 1)},
			wantErr: "cannot allocate unregistered device nvidia.com/mig-7g.40gb",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := New(inventory, nil)
			after, err := before.Admit(Pod{UID: "a"}, tc.demands)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tc.wantErr {
				t.Fatalf("error %q, want %q", message, tc.wantErr)
			}
			pod, kept := after.Pod("a")
			if diff := cmp.Diff(tc.want, pod.Grants); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
			if kept != (tc.want != nil) {
				t.Errorf("the state keeps the pod: %t", kept)
			}
			if len(before.Pods()) != 0 {
				t.Error("Admit changed its receiver")
			}
		})
	}
}

// The device plugin reports other devices: pods keep theirs.
func TestInventoryChange(t *testing.T) {
	request := func(s State, uid, resource string, n int64) (State, error) {
		return s.Admit(Pod{UID: uid}, []Demand{newDemand("main", LongRunning, resource, n)})
	}
	s, err := request(New(inventory, nil), "old", migDevice, 2)
	if err != nil {
		t.Fatal(err)
	}
	before := s
	s = s.WithInventory([]Device{{"GPU-0", gpu}, {"MIG-1", migDevice}, {"MIG-2", migDevice}})
	if diff := cmp.Diff(map[string]int{gpu: 1, migDevice: 2}, s.Capacity()); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if pod, _ := s.Pod("old"); !cmp.Equal(pod.Devices(), []string{"MIG-0", "MIG-1"}) {
		t.Errorf("the pod holds %v, want its devices", pod.Devices())
	}
	if got := before.Capacity()[migDevice]; got != 2 || len(before.Inventory()) != len(inventory) {
		t.Error("WithInventory changed its receiver")
	}
	s, err = request(s, "next", migDevice, 1)
	if pod, _ := s.Pod("next"); err != nil || !cmp.Equal(pod.Devices(), []string{"MIG-2"}) {
		t.Errorf("the next pod holds %v (%v), want the new device", pod.Devices(), err)
	}
	if _, err := request(s, "late", migDevice, 1); err == nil {
		t.Error("a held device was assigned again")
	}
	for _, gone := range []State{s.WithInventory([]Device{{"GPU-0", gpu}}), s.WithInventory(nil)} {
		want := "no healthy devices present; cannot allocate unhealthy devices " + migDevice
		if _, err := request(gone, "late", migDevice, 1); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestProcessesOutlivePod(t *testing.T) {
	gone := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	admit := func(s State, uid string, n int64) State {
		t.Helper()
		next, err := s.Admit(Pod{UID: uid}, []Demand{newDemand("main", LongRunning, gpu, n)})
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	held := func(s State, uid string) []string {
		pod, _ := s.Pod(uid)
		return pod.Devices()
	}
	s := admit(New(inventory, nil), "old", 2).End("old", gone)
	s = admit(s, "beside", 2)
	if diff := cmp.Diff([]string{"GPU-2", "GPU-3"}, held(s, "beside")); diff != "" {
		t.Errorf("devices with processes were assigned before free ones (-want +got):\n%s", diff)
	}
	s = admit(s, "next", 1)
	if diff := cmp.Diff([]string{"GPU-0"}, held(s, "next")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"old"}, s.BlockingPods("next")); diff != "" {
		t.Errorf("pods that block the next pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"next"}, s.BlockedPods("old")); diff != "" {
		t.Errorf("pods that wait for the old pod (-want +got):\n%s", diff)
	}
	if blockers := s.BlockingPods("beside"); blockers != nil {
		t.Errorf("a pod on free devices is blocked by %v", blockers)
	}
	if _, err := s.Admit(Pod{UID: "late"}, []Demand{newDemand("main", LongRunning, gpu, 2)}); err == nil {
		t.Error("a device was assigned to two waiting pods")
	}
	if _, kept := s.End("next", gone).Pod("next"); kept {
		t.Error("a pod that never started has left processes")
	}
	if pod, _ := s.End("old", gone.Add(time.Hour)).Pod("old"); !pod.ReleaseAt.Equal(gone) {
		t.Errorf("after a second End the processes end at %s, want %s", pod.ReleaseAt, gone)
	}
	s = s.Release("old")
	if blockers := s.BlockingPods("next"); blockers != nil {
		t.Errorf("after the end of the processes the next pod is blocked by %v", blockers)
	}
}
