// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

func TestComputeAmendments(t *testing.T) {
	node := DGXA100("dgx-1", "dgx")
	s := devices.New(discoveredDevices(t, node), nil)
	type resources = map[corev1.ResourceName]string
	with := func(pairs ...string) corev1.ResourceList {
		all := node.Machine.Capacity(s)
		for name, quantity := range resourceList(pairs...) {
			all[name] = quantity
		}
		return all
	}
	for _, tc := range []struct {
		name    string
		current corev1.ResourceList
		booted  bool
		want    resources
	}{
		{"no change", with(), false, resources{}},
		{"other notation", with("cpu", "256000m", "nvidia.com/gpu", "8e0"), false, resources{}},
		{"empty", nil, false, resources{
			"cpu": "256", "memory": "1Ti", "ephemeral-storage": "1760Gi", "pods": "110", "nvidia.com/gpu": "8",
		}},
		{"too many devices", with("nvidia.com/gpu", "9"), false, resources{"nvidia.com/gpu": "8"}},
		{"others' resources", with("sluice.dev/gpu-milli", "8000"), false, resources{}},
		{
			"others' resources after a boot", with("sluice.dev/gpu-milli", "8000", "hugepages-2Mi", "1Gi",
				"example.kubernetes.io/x", "1"), true,
			resources{"sluice.dev/gpu-milli": "0"},
		},
		{"zeroed already", with("sluice.dev/gpu-milli", "0"), true, resources{}},
		{"removed instances", with("nvidia.com/mig-1g.5gb", "2"), false, resources{"nvidia.com/mig-1g.5gb": "0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, changedResources(tc.current, node.Machine.Capacity(s), tc.booted)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// During a restart of the device plugin the node has its GPUs and assigns none.
func TestComputeAmendmentsWithoutPlugin(t *testing.T) {
	node := DGXA100("dgx-1", "dgx")
	s := devices.New(discoveredDevices(t, node), nil)
	current := &corev1.Node{Status: corev1.NodeStatus{Capacity: node.Machine.Capacity(s), Allocatable: node.Machine.Allocatable(s)}}
	got := node.computeAmendments(current, s, s.WithInventory(nil), false)
	want := nodeAmendments{
		Capacity:    map[corev1.ResourceName]string{},
		Allocatable: map[corev1.ResourceName]string{"nvidia.com/gpu": "0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChangedLabels(t *testing.T) {
	current := map[string]string{"kept": "1", "same": "2", "other": "3", "nvidia.com/mig-1g.5gb.count": "4"}
	got := changedLabels(current, map[string]string{"same": "2", "other": "5", "new": "6"})
	want := map[string]any{"other": "5", "new": "6", "nvidia.com/mig-1g.5gb.count": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodeAddresses(t *testing.T) {
	used := map[string]bool{}
	for number := range 1000 {
		address := nodeAddress(number)
		if used[address] {
			t.Fatalf("%s is used twice", address)
		}
		used[address] = true
	}
	if got := nodeAddress(0); got != "198.18.0.1" {
		t.Errorf("the first node is at %s, want 198.18.0.1", got)
	}
}
