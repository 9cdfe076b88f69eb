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
)

// start is when tests begin.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// PCI identifiers of boards: one whose mode wants a reset, and one whose does not.
const (
	a100 = "0x20B010DE"
	h100 = "0x233010DE"
)

// uuid is a GPU's identity, from its node and index.
func uuid(node string, index int) v1alpha1.GPUUUID {
	sum := 0
	for _, r := range node {
		sum = sum*31 + int(r)
	}
	return v1alpha1.GPUUUID(fmt.Sprintf("GPU-%08x-0000-0000-0000-%012x", uint32(sum), index)) //nolint:gosec // wraps
}

// observed is a GPU as tests write it: "a100: 3g.20gb@4 1g.5gb@0!pod 2g.10gb@2?", where
// an instance with ! is in use, by the pod behind it if there is one, and one with ? is
// foreign. "a100 off" is not in MIG mode, and "a100 off held" somebody has as a whole.
func observed(t testing.TB, node string, index int, text string) v1alpha1.ObservedGPU {
	t.Helper()
	head, layout, _ := strings.Cut(text, ":")
	words := strings.Fields(head)
	g := v1alpha1.ObservedGPU{
		UUID: uuid(node, index), Index: int32(index), Health: v1alpha1.GPUHealthy, //nolint:gosec // small
		DeviceID: map[string]string{"a100": a100, "h100": h100}[words[0]],
		MIG:      v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
	}
	if slices.Contains(words, "off") {
		g.MIG = v1alpha1.MIGMode{Current: v1alpha1.MIGModeDisabled, Pending: v1alpha1.MIGModeDisabled}
	}
	if slices.Contains(words, "lost") {
		g.Health = v1alpha1.GPULost
	}
	board, ok := boardOf(g.DeviceID)
	if !ok {
		t.Fatalf("%s is no board", words[0])
	}
	for i := range board.Profiles {
		g.MIGProfiles = append(g.MIGProfiles, board.Profiles[i].Name)
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

// scene is a snapshot in the making.
type scene struct {
	testing.TB
	snapshot
	objects map[string]*v1alpha1.GPUNode
}

// cluster has one dynamic pool with these nodes, each a list of GPUs.
func cluster(t testing.TB, nodes ...[]string) *scene {
	s := &scene{TB: t, objects: map[string]*v1alpha1.GPUNode{}}
	s.pools = []pool{{name: "dgx"}}
	for i, gpus := range nodes {
		s.node(fmt.Sprintf("n%d", i+1), 0, gpus)
	}
	return s
}

func (s *scene) node(name string, pool int, gpus []string) {
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	object.Status.ObservedGeneration = 1
	for i, text := range gpus {
		object.Status.GPUs = append(object.Status.GPUs, observed(s, name, i, text))
	}
	s.objects[name] = object
	s.nodes = append(s.nodes, node{name: name, pool: pool})
	s.refresh()
}

// refresh reads the objects again; each node publishes what it has.
func (s *scene) refresh() {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.machine = readMachine(s.objects[n.name])
		n.published = n.machine.most
	}
}

// object changes the GPUNode of a node.
func (s *scene) object(name string, change func(*v1alpha1.GPUNode)) *scene {
	change(s.objects[name])
	s.refresh()
	return s
}

// tainted is a node that was tainted so long ago, for a generation.
func (s *scene) tainted(name string, ago time.Duration, generation int64, claims ...claim) *scene {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.name == name {
			n.taint = &taint{since: start.Add(-ago), generation: generation}
			n.claims, n.known = claims, ago >= settle
		}
	}
	return s
}

// wanting is a pod that waits for one instance of a profile since a minute.
func (s *scene) wanting(name string, profile v1alpha1.MIGProfile, change ...func(*want)) *scene {
	w := want{
		uid: types.UID(name), namespace: "ns", name: name, asks: []ask{{profile, 1}},
		since: start.Add(-time.Minute), created: start.Add(time.Duration(len(s.wants)-100) * time.Second), order: []int{0},
		where: slices.Repeat([]bool{true}, len(s.nodes)),
	}
	for _, c := range change {
		c(&w)
	}
	s.wants = append(s.wants, w)
	slices.SortFunc(s.wants, func(a, b want) int { return urgent(&a, &b) })
	return s
}

// does is what is decided, in words.
func (s *scene) does() (all []string) {
	d := decide(&s.snapshot, start)
	for _, a := range d.actions {
		all = append(all, a.words())
	}
	return all
}

func (a *action) words() string {
	switch a.verb {
	case putTaint:
		return "taint " + a.node
	case takeTaint:
		return strings.TrimSpace("untaint " + a.node + " " + outcomes[a.outcome])
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
	if a.restores {
		words = append(words, "restored")
	}
	return strings.Join(words, " ")
}

// holds is a bound pod's claim.
func holds(uid string, asks ...ask) claim { return claim{uid: types.UID(uid), asks: asks} }

// one is one instance of a profile.
func one(profile v1alpha1.MIGProfile) ask { return ask{profile, 1} }

// wantsPod is a pod as its scheduler left it.
func wantsPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", CreationTimestamp: metav1.NewTime(start)},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb.", LastTransitionTime: metav1.NewTime(start),
		}}},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "a"}}
	asking(&pod.Spec.Containers[0], "nvidia.com/mig-3g.20gb", 1)
	change(pod)
	return pod
}
