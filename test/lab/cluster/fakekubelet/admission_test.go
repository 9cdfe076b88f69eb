// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/kwok"
)

// resourceList returns resources of name and quantity pairs.
func resourceList(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func newContainer(name string, pairs ...string) corev1.Container {
	resources := resourceList(pairs...)
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: resources, Requests: resources}}
}

func newTestPod(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: containers},
	}
}

func withAnnotation(pod *corev1.Pod, key, value string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	return pod
}

func TestEvaluateAdmission(t *testing.T) {
	node := DGXA100("dgx-1", "dgx")
	empty := devices.New(discoveredDevices(t, node), nil)
	allocatable := node.Machine.Allocatable(empty)
	allocatable["sluice.dev/gpu-milli"] = resource.MustParse("8000")
	allocatable["pods"] = resource.MustParse("3")
	busy, _ := evaluateAdmission(newTestPod("busy",
		newContainer("main", "nvidia.com/gpu", "7", "sluice.dev/gpu-milli", "7k", "cpu", "200")), nil, allocatable, empty)

	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		before  []*corev1.Pod
		state   devices.State
		refused *rejection
		held    int
	}{
		{
			name: "room", state: empty, held: 8,
			pod: newTestPod("a", newContainer("main", "nvidia.com/gpu", "8", "cpu", "256", "memory", "1000Gi")),
		},
		{
			name: "the last device", state: busy, held: 1,
			pod: newTestPod("a", newContainer("main", "nvidia.com/gpu", "1")),
		},
		{
			name: "too few devices", state: busy,
			pod: newTestPod("a", newContainer("main", "nvidia.com/gpu", "2")),
			refused: &rejection{
				"UnexpectedAdmissionError",
				"Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. " +
					"Requested: 2, Available: 1, which is unexpected",
			},
		},
		{
			name: "devices of another machine", state: empty,
			pod: newTestPod("a", newContainer("main", "nvidia.com/mig-1g.5gb", "1")),
			refused: &rejection{
				"UnexpectedAdmissionError",
				"Allocate failed due to cannot allocate unregistered device nvidia.com/mig-1g.5gb, which is unexpected",
			},
		},
		{
			name: "too little of another extended resource", state: busy,
			pod:    newTestPod("a", newContainer("main", "sluice.dev/gpu-milli", "1500")),
			before: []*corev1.Pod{newTestPod("busy", newContainer("main", "sluice.dev/gpu-milli", "7k"))},
			refused: &rejection{
				"OutOfsluice.dev/gpu-milli",
				"Node didn't have enough resource: sluice.dev/gpu-milli, requested: 1500, used: 7000, capacity: 8000",
			},
		},
		{
			name: "an extended resource that the node does not have", state: empty,
			pod: newTestPod("a", newContainer("main", "example.org/license", "1")),
		},
		{
			name: "too little CPU", state: empty,
			pod:     newTestPod("a", newContainer("main", "cpu", "56500m")),
			before:  []*corev1.Pod{newTestPod("busy", newContainer("main", "cpu", "200"))},
			refused: &rejection{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 56500, used: 200000, capacity: 256000"},
		},
		{
			name: "too many pods", state: empty,
			pod:     newTestPod("a", newContainer("main")),
			before:  []*corev1.Pod{newTestPod("1"), newTestPod("2"), newTestPod("3")},
			refused: &rejection{"OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		},
		{
			name: "an invalid simulation", state: empty,
			pod: withAnnotation(newTestPod("a", newContainer("main", "nvidia.com/gpu", "1")), kwok.RunFor, "soon"),
			refused: &rejection{
				"InvalidSimulation",
				`annotation sim.sluice.dev/run-for: "soon" is not a duration: write it like 30s or 1h30m`,
			},
		},
		{
			name: "an invalid exit delay", state: empty,
			pod: withAnnotation(newTestPod("a", newContainer("main")), ExitDelay, "-1s"),
			refused: &rejection{
				"InvalidSimulation",
				`annotation sim.sluice.dev/exit-delay: "-1s" is not a duration: write it like 30s or 1h30m`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next, refused := evaluateAdmission(tc.pod, tc.before, allocatable, tc.state)
			if diff := cmp.Diff(tc.refused, refused); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			holder, _ := next.Pod(string(tc.pod.UID))
			if got := len(holder.Devices()); got != tc.held {
				t.Errorf("the pod holds %d devices, want %d", got, tc.held)
			}
		})
	}
}

func TestParsePodBehavior(t *testing.T) {
	defaults := podBehavior{time.Second, -1, 80}
	for _, tc := range []struct {
		annotations map[string]string
		want        podBehavior
		wantErr     string
	}{
		{nil, defaults, ""},
		{map[string]string{ExitDelay: "0s"}, podBehavior{0, -1, 80}, ""},
		{map[string]string{ExitDelay: "1m30s", Memory: "8192", Utilization: "0"}, podBehavior{90 * time.Second, 8192, 0}, ""},
		{map[string]string{Memory: "0", Utilization: "100"}, podBehavior{time.Second, 0, 100}, ""},
		{
			map[string]string{Memory: "8Gi"},
			defaults,
			`annotation sim.sluice.dev/memory: "8Gi" is not an amount of memory in MiB: write a number from 0 to 16777216`,
		},
		{
			map[string]string{Memory: "-1"},
			defaults,
			`annotation sim.sluice.dev/memory: "-1" is not an amount of memory in MiB: write a number from 0 to 16777216`,
		},
		{
			map[string]string{Utilization: "101"},
			defaults,
			`annotation sim.sluice.dev/utilization: "101" is not a percentage: write a number from 0 to 100`,
		},
		{
			map[string]string{Utilization: "080"},
			defaults,
			`annotation sim.sluice.dev/utilization: "080" is not a percentage: write a number from 0 to 100`,
		},
	} {
		got, err := parsePodBehavior(tc.annotations)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != tc.want || message != tc.wantErr {
			t.Errorf("%v: %+v, %q; want %+v, %q", tc.annotations, got, message, tc.want, tc.wantErr)
		}
	}
	if got := defaults.processMemory(40960); got != 36864 {
		t.Errorf("a process uses %d of 40960 MiB, want nine tenths", got)
	}
	if got := (podBehavior{memoryMiB: 0}).processMemory(40960); got != 0 {
		t.Errorf("a process without memory uses %d MiB", got)
	}
}

// A pod holds as many devices as the API server counts for it, regardless of its containers:
// quota and scheduler must never count fewer devices than the node assigns.
func TestPodRequestsMatchAPIServer(t *testing.T) {
	inventory := discoveredDevices(t, DGXA100Balanced("dgx-2", "dgx"))
	names := []string{"nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) corev1.Container {
			pairs := []string{"cpu", "1"}
			for _, resource := range names {
				if n := rapid.IntRange(0, 2).Draw(t, resource); n > 0 {
					pairs = append(pairs, resource, strconv.Itoa(n))
				}
			}
			return newContainer(name, pairs...)
		}
		pod := newTestPod("a")
		for i := range rapid.IntRange(0, 3).Draw(t, "init containers") {
			c := draw(fmt.Sprintf("init-%d", i))
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
			pod.Spec.Containers = append(pod.Spec.Containers, draw(fmt.Sprintf("main-%d", i)))
		}
		want := map[string]int{}
		for name, quantity := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
			if name != "cpu" {
				want[string(name)] = int(quantity.Value())
			}
		}
		next, err := devices.New(inventory, nil).Admit(devices.Pod{UID: "a"}, podDemands(pod))
		if err != nil {
			for name, n := range want {
				if n > devices.New(inventory, nil).Capacity()[name] {
					return
				}
			}
			t.Fatalf("%v fits, but admission failed: %v", want, err)
		}
		got := map[string]int{}
		holder, _ := next.Pod("a")
		for _, id := range holder.Devices() {
			for _, device := range inventory {
				if device.ID == id {
					got[device.Resource]++
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("devices held (-counted +held):\n%s", diff)
		}
	})
}

func TestAdmissionOrder(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	pod := func(name string, created, started int64) *corev1.Pod {
		p := newTestPod(name)
		p.CreationTimestamp = at(created)
		if started > 0 {
			p.Status.StartTime = new(at(started))
			p.Status.Phase = corev1.PodRunning
		}
		return p
	}
	want := []*corev1.Pod{pod("longest", 9, 10), pod("long", 1, 20), pod("old", 2, 0), pod("a", 3, 0), pod("b", 3, 0)}
	for i, a := range want {
		for j, b := range want {
			got := admissionOrder(a, b)
			if (i < j) != (got < 0) || (i == j) != (got == 0) {
				t.Errorf("%s against %s: %d", a.Name, b.Name, got)
			}
		}
	}
}
