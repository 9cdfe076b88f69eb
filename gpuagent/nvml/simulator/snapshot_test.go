// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// newUsedNode returns a node with a history.
func newUsedNode(t testing.TB) *simulator.Node {
	t.Helper()
	n := newInitializedNode(t, migGPU("A100-40GB", first), wholeGPU("H100-80GB", second), wholeGPU("T4", "GPU-third"))
	_, c := createInstance(t, n, first, threeG, 4, 4)
	requireResult(n.CreateInstance(first, twoG, nvml.Placement{Start: 0, Size: 2}))(t)
	for _, err := range []error{
		n.Attach(7, c.UUID, 100, 10), n.Attach(8, second, nvml.UnknownMiB, 90), n.Hold(second, true),
		n.Lose("GPU-third"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n.SetMIGMode(first, nvml.Disabled)
	return n
}

func TestRestore(t *testing.T) {
	before := newUsedNode(t)
	after := newInitializedNode(t, migGPU("A100-40GB", first), wholeGPU("H100-80GB", second), wholeGPU("T4", "GPU-third"))
	if err := after.Restore(requireResult(before.Snapshot())(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(requireResult(before.Snapshot())(t)), string(requireResult(after.Snapshot())(t))); diff != "" {
		t.Errorf("the restored node is another (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(requireResult(before.Instances(first))(t), requireResult(after.Instances(first))(t)); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	old := requireResult(before.ComputeInstances(first, 0))(t)
	if diff := cmp.Diff(old, requireResult(after.ComputeInstances(first, 0))(t)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if c := requireResult(after.CreateComputeInstance(first, 1))(t); c.UUID == old[0].UUID {
		t.Errorf("a new device is called %s, as an old one is", c.UUID)
	}
}

// TestRestoreRefuses checks the errors of invalid snapshots. Those with another state have the
// checksum of that state.
func TestRestoreRefuses(t *testing.T) {
	good := string(requireResult(newUsedNode(t).Snapshot())(t))
	node := func(old, now string) string {
		changed := strings.Replace(good, old, now, 1)
		if changed == good {
			t.Fatalf("the snapshot has no %s:\n%s", old, good)
		}
		return simulator.WithValidChecksum([]byte(changed))
	}
	for _, test := range []struct{ name, snapshot, want string }{
		{"nothing", "", "parse snapshot: EOF"},
		{"half of it", good[:len(good)/2], "parse snapshot: unexpected EOF"},
		{"zeros", string(make([]byte, 512)), "parse snapshot"},
		{"twice", good + good, "unexpected data follows"},
		{"too long", strings.Repeat(" ", 5<<20), "the limit is 4194304"},
		{"another version", strings.Replace(good, `"version": 1`, `"version": 2`, 1), "the snapshot has version 2; want version 1"},
		{"a field of its own", strings.Replace(good, `"version": 1`, `"version": 1, "color": "red"`, 1), `unknown field "color"`},
		{"no node", `{"version": 1}`, "the snapshot lacks the node"},
		{"a changed digit", strings.Replace(good, `"start": 4`, `"start": 0`, 1), "the snapshot is damaged"},
		{"a node with a field of its own", node(`"held"`, `"color"`), `unknown field "color"`},
		{
			"another node's", node(first, "GPU-other"),
			`gpus[0]: the snapshot belongs to another node: it has the NVIDIA A100-SXM4-40GB "GPU-other"`,
		},
		{"an overlap", node(`"start": 0`, `"start": 4`), "GPU-first: instance 1: 2g.10gb at 4 overlaps instance 0"},
		{"no place of the profile", node(`"start": 0`, `"start": 1`), "instance 1: 2g.10gb cannot start at 1, only at [0 2 4]"},
		{"no profile", node(`"profile": 14`, `"profile": 77`), "gpus[0]: instance 1: A100-40GB has no profile 77"},
		{"an identifier twice", node(`"id": 1`, `"id": 0`), "instance 0: another instance has its identifier"},
		{"an index twice", node(`"index": 2`, `"index": 1`), "GPU-third: index 1 is in use"},
		{"an index too high", node(`"index": 2`, `"index": 3`), "GPU-third: index 3 is in use, or not below 3"},
		{"too much memory", node(`"memoryMiB": 100`, `"memoryMiB": 19969`), "instance 0: processes use 1 MiB more than the device has"},
		{"no memory", node(`"memoryMiB": 100`, `"memoryMiB": -5`), "process 7: -5 MiB and 10 % are not possible for a process"},
		{"MIG mode of a T4", node(`"lost": true`, `"mode": true`), "GPU-third: MIG mode on an Tesla T4"},
		{"instances without MIG mode", node(`"mode": true`, `"mode": false`), "GPU-first: 2 instances without MIG mode"},
		{"a GPU less", `{"version":1,"sha256":"","node":{"createdDevices":0,"gpus":[]}}`, "damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newUsedNode(t)
			before := requireResult(n.Snapshot())(t)
			err := n.Restore([]byte(test.snapshot))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Restore = %v, want %s", err, test.want)
			}
			if diff := cmp.Diff(string(before), string(requireResult(n.Snapshot())(t))); diff != "" {
				t.Errorf("the node is changed (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRestore restores random states with correct checksums: the node stays in a possible state.
func FuzzRestore(f *testing.F) {
	f.Add(requireResult(newUsedNode(f).Snapshot())(f))
	f.Add([]byte(`{"version":1,"sha256":"","node":{"gpus":[{},{},{}]}}`))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		n := newUsedNode(t) // Check runs at the end
		n.Restore(snapshot)
		if n.Restore([]byte(simulator.WithValidChecksum(snapshot))) == nil {
			if err := n.Restore(requireResult(n.Snapshot())(t)); err != nil {
				t.Errorf("a snapshot of the restored node is refused: %v", err)
			}
		}
	})
}

// TestPartialComputeInstance checks a compute instance that does not fill its GPU instance, also
// over a restart.
func TestPartialComputeInstance(t *testing.T) {
	n := newInitializedNode(t, migGPU("A100-40GB", first))
	n.SetMIGMode(first, nvml.Enabled)
	n.Boot()
	if err := n.Init(); err != nil {
		t.Fatal(err)
	}
	made := requireResult(n.CreateInstance(first, threeG, nvml.Placement{Start: 4, Size: 4}))(t)
	for _, slices := range []int{0, 3, -1} {
		if _, err := n.CreatePartialComputeInstance(first, made.ID, slices); !errors.Is(err, nvml.ErrInvalidArgument) {
			t.Errorf("%d slices: %v", slices, err)
		}
	}
	device := requireResult(n.CreatePartialComputeInstance(first, made.ID, 1))(t)
	if _, err := n.CreatePartialComputeInstance(first, made.ID, 1); !errors.Is(err, nvml.ErrInsufficientResources) {
		t.Errorf("twice: %v", err)
	}
	after := newInitializedNode(t, migGPU("A100-40GB", first))
	if err := after.Restore(requireResult(n.Snapshot())(t)); err != nil {
		t.Fatal(err)
	}
	want := []nvml.ComputeInstance{{UUID: device, Slices: 1}}
	for _, each := range []*simulator.Node{n, after} {
		if diff := cmp.Diff(want, requireResult(each.ComputeInstances(first, made.ID))(t)); diff != "" || each.Check() != nil {
			t.Errorf("%s %v", diff, each.Check())
		}
	}
}
