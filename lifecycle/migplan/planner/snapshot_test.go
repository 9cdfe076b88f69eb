// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// startTime is the time at the start of each test.
var startTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// PCI device IDs of GPU models: one whose MIG mode needs a reset, and one whose mode does not.
const (
	gpuA100 = "0x20B010DE"
	gpuH100 = "0x233010DE"
)

// gpuUUID derives a GPU's UUID from its node and index.
func gpuUUID(node string, index int) v1alpha1.GPUUUID {
	sum := 0
	for _, r := range node {
		sum = sum*31 + int(r)
	}
	return v1alpha1.GPUUUID(fmt.Sprintf("GPU-%08x-0000-0000-0000-%012x", uint32(sum), index)) //nolint:gosec // wraps
}

// newObservedGPU parses a GPU such as "a100: 3g.20gb@4 1g.5gb@0!pod 2g.10gb@2?". An instance
// with ! is in use by the pod named after it, if any; one with ? is foreign. "a100 off" is not in
// MIG mode, and "a100 off held" is held as a whole.
func newObservedGPU(t testing.TB, node string, index int, text string) v1alpha1.ObservedGPU {
	t.Helper()
	head, layout, _ := strings.Cut(text, ":")
	words := strings.Fields(head)
	g := v1alpha1.ObservedGPU{
		UUID: gpuUUID(node, index), Index: int32(index), Health: v1alpha1.GPUHealthy, //nolint:gosec // small
		DeviceID: map[string]string{"a100": gpuA100, "h100": gpuH100, "rtx": "0x2BB510DE"}[words[0]],
		MIG:      v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
	}
	if slices.Contains(words, "off") {
		g.MIG = v1alpha1.MIGMode{Current: v1alpha1.MIGModeDisabled, Pending: v1alpha1.MIGModeDisabled}
	}
	if slices.Contains(words, "lost") {
		g.Health = v1alpha1.GPULost
	}
	model := mig.ObservedModel(&g)
	if model == nil {
		t.Fatalf("%s is no GPU model", words[0])
	}
	for i := range model.Profiles {
		g.MIGProfiles = append(g.MIGProfiles, model.Profiles[i].Name)
	}
	for _, field := range strings.Fields(layout) {
		it := v1alpha1.ObservedInstance{State: v1alpha1.InstanceIdle, UUID: "MIG-" + field}
		place, by, used := strings.Cut(field, "!")
		if used {
			it.State = v1alpha1.InstanceActive
			if by != "" {
				it.Pod = &v1alpha1.PodReference{UID: types.UID(by), Namespace: "ns", Name: by}
			}
		}
		if place, it.Foreign = strings.CutSuffix(place, "?"); it.Foreign {
			it.State = v1alpha1.InstanceActive
		}
		name, at, _ := strings.Cut(place, "@")
		it.Profile = v1alpha1.MIGProfile(name)
		if _, err := fmt.Sscan(at, &it.Start); err != nil {
			t.Fatal(field, err)
		}
		g.Instances = append(g.Instances, it)
	}
	return g
}

// testSnapshot builds a snapshot.
type testSnapshot struct {
	testing.TB
	snapshot
	objects map[string]*v1alpha1.GPUNode
}

// newTestSnapshot returns a snapshot of one dynamic pool with these nodes, each a list of GPUs.
func newTestSnapshot(t testing.TB, nodes ...[]string) *testSnapshot {
	s := &testSnapshot{TB: t, objects: map[string]*v1alpha1.GPUNode{}}
	s.pools = []pool{{name: "dgx"}}
	for i, gpus := range nodes {
		s.addNode(fmt.Sprintf("n%d", i+1), 0, gpus)
	}
	return s
}

func (s *testSnapshot) addNode(name string, pool int, gpus []string) {
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	object.Status.ObservedGeneration, object.Status.SampledAt = 1, &metav1.Time{Time: startTime}
	for i, text := range gpus {
		object.Status.GPUs = append(object.Status.GPUs, newObservedGPU(s, name, i, text))
	}
	s.objects[name] = object
	s.nodes = append(s.nodes, node{name: name, pool: pool})
	s.refresh()
}

// refresh parses the objects again; each node publishes its devices.
func (s *testSnapshot) refresh() {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.observed = observeNode(s.objects[n.name])
		n.allocatable = n.observed.maxAllocatable
	}
}

// updateGPUNode changes the GPUNode of a node.
func (s *testSnapshot) updateGPUNode(name string, change func(*v1alpha1.GPUNode)) *testSnapshot {
	change(s.objects[name])
	s.refresh()
	return s
}

// withTaint taints a node with the given age and generation.
func (s *testSnapshot) withTaint(name string, ago time.Duration, generation int64, claims ...boundPod) *testSnapshot {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.name == name {
			n.taint = &taint{since: startTime.Add(-ago), generation: generation}
			n.boundPods, n.podsListed = claims, ago >= bindSettleTime
		}
	}
	return s
}

// withPendingPod adds a pod that has been pending for one instance of a profile for a minute.
func (s *testSnapshot) withPendingPod(name string, profile v1alpha1.MIGProfile, change ...func(*podRequest)) *testSnapshot {
	w := podRequest{
		uid: types.UID(name), namespace: "ns", name: name, instanceRequests: []instanceRequest{{profile, 1}},
		unschedulableSince: startTime.Add(-time.Minute), created: startTime.Add(time.Duration(len(s.requests)-100) * time.Second),
		poolOrder: []int{0}, feasible: slices.Repeat([]bool{true}, len(s.nodes)),
	}
	for _, c := range change {
		c(&w)
	}
	s.requests = append(s.requests, w)
	slices.SortFunc(s.requests, func(a, b podRequest) int { return compareUrgency(&a, &b) })
	return s
}

// decideActions decides and describes the actions.
func (s *testSnapshot) decideActions() (all []string) {
	d := decide(&s.snapshot, startTime)
	for _, a := range d.actions {
		all = append(all, a.describe())
	}
	return all
}

func (a *action) describe() string {
	switch a.verb {
	case addTaint:
		return "taint " + a.node
	case pauseClients:
		return "pause " + a.node
	case resumeClients:
		return "resume " + a.node
	case removeTaint:
		return strings.TrimSpace("untaint " + a.node + " " + outcomeLabels[a.outcome])
	}
	words := []string{"write", a.node}
	for _, g := range a.spec {
		var places []string
		for _, it := range g.Instances {
			places = append(places, fmt.Sprintf("%s@%d", it.Profile, it.Start))
		}
		word := strings.TrimLeft(string(g.UUID)[len(g.UUID)-12:], "0") + "[" + strings.Join(places, " ") + "]"
		if !g.MIGEnabled {
			word += "off"
		}
		if g.MayReset {
			word += "reset"
		}
		words = append(words, word)
	}
	if a.restoresCurrent {
		words = append(words, "restored")
	}
	return strings.Join(words, " ")
}

// newClaim returns a bound pod.
func newClaim(uid string, requests ...instanceRequest) boundPod {
	return boundPod{uid: types.UID(uid), instanceRequests: requests}
}

// oneInstance requests one instance of a profile.
func oneInstance(profile v1alpha1.MIGProfile) instanceRequest { return instanceRequest{profile, 1} }

// newPendingPodObject returns an unschedulable pod.
func newPendingPodObject(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", CreationTimestamp: metav1.NewTime(startTime)},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb.", LastTransitionTime: metav1.NewTime(startTime),
		}}},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "a"}}
	addLimit(&pod.Spec.Containers[0], "nvidia.com/mig-3g.20gb", 1)
	change(pod)
	return pod
}
