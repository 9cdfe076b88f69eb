// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	gpu   = "nvidia.com/gpu"
	slice = "nvidia.com/mig-1g.5gb"
)

var inventory = []Device{
	{"GPU-0", gpu},
	{"GPU-1", gpu},
	{"GPU-2", gpu},
	{"GPU-3", gpu},
	{"MIG-0", slice},
	{"MIG-1", slice},
}

func demand(container string, kind Kind, resource string, n int64) Demand {
	return Demand{Container: container, Kind: kind, Amounts: map[string]int64{resource: n}}
}

func grants(list ...Grant) []Grant { return list }

func grant(container, resource string, ids ...string) Grant {
	return Grant{Container: container, Devices: map[string][]string{resource: ids}}
}

func TestAdmit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		demands []Demand
		want    []Grant
		wantErr string
	}{
		{name: "nothing", demands: []Demand{demand("main", Lasting, gpu, 0)}},
		{
			name:    "the first free ones",
			demands: []Demand{demand("main", Lasting, gpu, 2)},
			want:    grants(grant("main", gpu, "GPU-0", "GPU-1")),
		},
		{
			name:    "each container its own",
			demands: []Demand{demand("a", Lasting, gpu, 1), demand("b", Lasting, gpu, 2), demand("c", Lasting, slice, 1)},
			want:    grants(grant("a", gpu, "GPU-0"), grant("b", gpu, "GPU-1", "GPU-2"), grant("c", slice, "MIG-0")),
		},
		{
			name:    "an init container passes its devices on",
			demands: []Demand{demand("init", Init, gpu, 2), demand("a", Lasting, gpu, 1), demand("b", Lasting, gpu, 3)},
			want:    grants(grant("init", gpu, "GPU-0", "GPU-1"), grant("a", gpu, "GPU-0"), grant("b", gpu, "GPU-1", "GPU-2", "GPU-3")),
		},
		{
			name:    "to the next init container too",
			demands: []Demand{demand("one", Init, gpu, 1), demand("two", Init, gpu, 3), demand("main", Lasting, gpu, 1)},
			want:    grants(grant("one", gpu, "GPU-0"), grant("two", gpu, "GPU-0", "GPU-1", "GPU-2"), grant("main", gpu, "GPU-0")),
		},
		{
			name:    "a sidecar keeps what it was given",
			demands: []Demand{demand("init", Init, gpu, 1), demand("sidecar", Lasting, gpu, 1), demand("main", Lasting, gpu, 1)},
			want:    grants(grant("init", gpu, "GPU-0"), grant("sidecar", gpu, "GPU-0"), grant("main", gpu, "GPU-1")),
		},
		{
			name:    "more than there are",
			demands: []Demand{demand("a", Lasting, gpu, 3), demand("b", Lasting, gpu, 2)},
			wantErr: "requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1",
		},
		{
			name:    "far more than there are",
			demands: []Demand{demand("a", Lasting, slice, 1<<62)},
			wantErr: "requested number of devices unavailable for nvidia.com/mig-1g.5gb. Requested: 4611686018427387904, Available: 2",
		},
		{
			name:    "what the node does not have",
			demands: []Demand{demand("a", Lasting, "nvidia.com/mig-7g.40gb", 1)},
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
				t.Errorf("the pod is kept: %t", kept)
			}
			if len(before.Pods()) != 0 {
				t.Error("Admit changed the state that it was given")
			}
		})
	}
}

// The device plugin reports anew what there is: who holds something keeps it.
func TestTheInventoryChanges(t *testing.T) {
	ask := func(s State, uid, resource string, n int64) (State, error) {
		return s.Admit(Pod{UID: uid}, []Demand{demand("main", Lasting, resource, n)})
	}
	s, err := ask(New(inventory, nil), "old", slice, 2)
	if err != nil {
		t.Fatal(err)
	}
	before := s
	s = s.With([]Device{{"GPU-0", gpu}, {"MIG-1", slice}, {"MIG-2", slice}})
	if diff := cmp.Diff(map[string]int{gpu: 1, slice: 2}, s.Capacity()); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if pod, _ := s.Pod("old"); !cmp.Equal(pod.Devices(), []string{"MIG-0", "MIG-1"}) {
		t.Errorf("the pod holds %v, want what it was given", pod.Devices())
	}
	if got := before.Capacity()[slice]; got != 2 || len(before.Inventory()) != len(inventory) {
		t.Error("With changed the state that it was given")
	}
	s, err = ask(s, "next", slice, 1)
	if pod, _ := s.Pod("next"); err != nil || !cmp.Equal(pod.Devices(), []string{"MIG-2"}) {
		t.Errorf("the next pod holds %v (%v), want the new device", pod.Devices(), err)
	}
	if _, err := ask(s, "late", slice, 1); err == nil {
		t.Error("a device that is held was given again")
	}
	for _, gone := range []State{s.With([]Device{{"GPU-0", gpu}}), s.With(nil)} {
		want := "no healthy devices present; cannot allocate unhealthy devices " + slice
		if _, err := ask(gone, "late", slice, 1); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestProcessesOutliveTheirPod(t *testing.T) {
	gone := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	admit := func(s State, uid string, n int64) State {
		t.Helper()
		next, err := s.Admit(Pod{UID: uid}, []Demand{demand("main", Lasting, gpu, n)})
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
		t.Errorf("devices with processes are given before free ones (-want +got):\n%s", diff)
	}
	s = admit(s, "next", 1)
	if diff := cmp.Diff([]string{"GPU-0"}, held(s, "next")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"old"}, s.Blockers("next")); diff != "" {
		t.Errorf("who blocks the next pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"next"}, s.Waiting("old")); diff != "" {
		t.Errorf("who waits for the old pod (-want +got):\n%s", diff)
	}
	if blockers := s.Blockers("beside"); blockers != nil {
		t.Errorf("a pod on free devices is blocked by %v", blockers)
	}
	if _, err := s.Admit(Pod{UID: "late"}, []Demand{demand("main", Lasting, gpu, 2)}); err == nil {
		t.Error("a device that is promised already was promised again")
	}
	if _, kept := s.End("next", gone).Pod("next"); kept {
		t.Error("a pod that never started has left processes")
	}
	if pod, _ := s.End("old", gone.Add(time.Hour)).Pod("old"); !pod.ReleaseAt.Equal(gone) {
		t.Errorf("ended twice, the processes are gone at %s, want %s", pod.ReleaseAt, gone)
	}
	s = s.Release("old")
	if blockers := s.Blockers("next"); blockers != nil {
		t.Errorf("once the processes are gone the next pod is blocked by %v", blockers)
	}
}
