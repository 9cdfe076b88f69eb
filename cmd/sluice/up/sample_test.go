// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// The sample's pools are those of its machines, and of its scheduler.
func TestSamplesHaveThePoolsOfTheirMachines(t *testing.T) {
	for _, scheduler := range Schedulers {
		t.Run(scheduler, func(t *testing.T) {
			s := samples[scheduler]
			want := map[string]v1alpha1.Sharing{}
			for _, node := range s.nodes(s.usual) {
				want[node.Pool] = v1alpha1.SharingNone
				if len(node.Machine.MIG) > 0 {
					want[node.Pool] = v1alpha1.SharingMIG
				}
			}
			objects, err := manifests.Build(s.folder)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]v1alpha1.Sharing{}
			for _, object := range objects {
				if object.GetKind() != "NodePool" {
					continue
				}
				var pool v1alpha1.NodePool
				if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &pool, true); err != nil {
					t.Fatal(err)
				}
				got[pool.Name] = pool.Spec.Sharing
				if string(pool.Spec.Scheduler) != scheduler {
					t.Errorf("pool %s has scheduler %s", pool.Name, pool.Spec.Scheduler)
				}
				if diff := cmp.Diff(map[string]string{v1alpha1.LabelNodePool: pool.Name}, pool.Spec.NodeSelector); diff != "" {
					t.Errorf("pool %s (-want +got)\n%s", pool.Name, diff)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-machines +sample)\n%s", diff)
			}
		})
	}
}

func TestMachinesOfFairness(t *testing.T) {
	var got []string
	for _, node := range samples[schedulerKueue].nodes(4) {
		got = append(got, node.Name+" "+node.Pool)
	}
	if diff := cmp.Diff([]string{"dgx-1 whole", "dgx-2 whole", "dgx-3 cut", "dgx-4 whole"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestKueueRunsOnlyWhereItIsAskedFor(t *testing.T) {
	for scheduler, want := range map[string]bool{schedulerKube: false, schedulerKueue: true} {
		has := slices.ContainsFunc(Options{Scheduler: scheduler}.components(), func(c component) bool { return c.name == "kueue" })
		if has != want || (len(samples[scheduler].programs) > 0) != want {
			t.Errorf("with %s: it runs: %v, it is built: %v", scheduler, has, samples[scheduler].programs)
		}
	}
}

func TestEveryNodeHasAnAgent(t *testing.T) {
	var got []string
	for _, c := range (Options{Scheduler: schedulerKube, Nodes: 3}).components() {
		if c.node != "" {
			got = append(got, c.name+" on "+c.node+" as "+c.namespace+"/"+c.account)
		}
	}
	want := []string{
		"gpuagent-dgx-1 on dgx-1 as sluice-system/gpuagent",
		"gpuagent-dgx-2 on dgx-2 as sluice-system/gpuagent",
		"gpuagent-dgx-3 on dgx-3 as sluice-system/gpuagent",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEveryComponentHasPortsOfItsOwn(t *testing.T) {
	list := Options{Scheduler: schedulerKueue, Nodes: 3}.components()
	ports, release, err := choosePorts(list)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	seen := map[int]string{}
	for _, c := range list {
		if len(ports[c.name]) != c.ports {
			t.Errorf("%s has %d ports, wants %d", c.name, len(ports[c.name]), c.ports)
		}
		for _, port := range ports[c.name] {
			if other, taken := seen[port]; taken {
				t.Errorf("%s and %s both have port %d", c.name, other, port)
			}
			seen[port] = c.name
		}
	}
}
