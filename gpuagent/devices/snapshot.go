// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
)

// FieldNominatedNode selects pods for which a scheduler chose the node and has not bound them yet.
const FieldNominatedNode = "status.nominatedNodeName"

// nominationPeriod is the time for which a pod counts as a claim after it was first seen without a
// node, in machine time.
const nominationPeriod = 15 * time.Minute

// FieldNodeName selects a node's pods at the API server.
const FieldNodeName = "spec.nodeName"

// PodLister lists pods.
type PodLister func(context.Context) ([]corev1.Pod, error)

// Reader reads the holders of a node's devices.
type Reader struct {
	// Node is the node's name.
	Node string
	// Kubelet is the node's kubelet.
	Kubelet interface {
		ListAssignments(ctx context.Context) (Assignments, error)
	}
	// ListBound lists the pods bound to the node: from the API server for decisions, from a cache for
	// reports.
	ListBound PodLister
	// ListNominated lists the pods for which a scheduler chose the node, which then count with the
	// claims. Nil for reports, which do without them.
	ListNominated PodLister
	// Library is the driver.
	Library nvml.Library

	mu sync.Mutex
	// nominatedSince is since when the nominated pods have been seen.
	nominatedSince map[types.UID]time.Time
}

// BoundPods returns the pods bound to the node, terminated ones too.
func (r *Reader) BoundPods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods, err := r.ListBound(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", r.Node, err)
	}
	return pods, nil
}

// Read returns the current holders of the node's devices.
func (r *Reader) Read(ctx context.Context) (*Snapshot, error) {
	// The order matters: see pendingClaims.
	held, err := r.Kubelet.ListAssignments(ctx)
	if err != nil {
		return nil, err
	}
	// Nominated pods come first: a pod that is bound in between is then in one of the lists.
	var nominated []corev1.Pod
	if r.ListNominated != nil {
		if nominated, err = r.nominatedPods(ctx); err != nil {
			return nil, err
		}
	}
	pods, err := r.BoundPods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nominated {
		if !slices.ContainsFunc(pods, func(bound corev1.Pod) bool { return bound.UID == nominated[i].UID }) {
			pods = append(pods, nominated[i])
		}
	}
	return newSnapshot(pods, held), nil
}

// nominatedPods returns the pods in their binding cycle: their scheduler chose the node and waits for
// volumes or for the pod's group.
func (r *Reader) nominatedPods(ctx context.Context) (pods []corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := r.ListNominated(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pods nominated for node %s: %w", r.Node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, since := policytime.MachineNow(), map[types.UID]time.Time{}
	for i := range list {
		pod := &list[i]
		if pod.Spec.NodeName != "" {
			continue
		}
		first, known := r.nominatedSince[pod.UID]
		if !known {
			first = now
		}
		since[pod.UID] = first
		if now.Sub(first) < nominationPeriod {
			pods = append(pods, *pod)
		}
	}
	r.nominatedSince = since
	return pods, nil
}

func newSnapshot(pods []corev1.Pod, held Assignments) *Snapshot {
	held.Ambiguous = append(held.Ambiguous, podsWithUnknownDRA(pods, held)...)
	return &Snapshot{Pods: pods, assignments: held, claims: pendingClaims(pods, held)}
}

// InUse implements [partition.InUse] without a cache.
func (r *Reader) InUse(ctx context.Context, gpu string) (map[string]partition.Holder, error) {
	holders, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	return holders.Holders(r.Library, gpu)
}

// Snapshot holds the holders of a node's devices at one moment.
type Snapshot struct {
	// Pods are the pods bound to the node.
	Pods        []corev1.Pod
	assignments Assignments
	claims      []PendingClaim

	// The first call that needs the rest sets it: the use is sampled several times for one reading of the pods.
	indexed sync.Once
	byName  map[types.NamespacedName]*corev1.Pod
	byUID   map[types.UID]*corev1.Pod
	used    sync.Once
	uses    []v1alpha1.PodUsage
}

// index sets byName and byUID. Of several pods of one name or UID, the first counts.
func (s *Snapshot) index() {
	s.byName, s.byUID = make(map[types.NamespacedName]*corev1.Pod, len(s.Pods)), make(map[types.UID]*corev1.Pod, len(s.Pods))
	for i := range slices.Backward(s.Pods) {
		pod := &s.Pods[i]
		s.byName[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
		s.byUID[pod.UID] = pod
	}
}

// KubeletSnapshot returns what the kubelet alone reports: for reports, never for decisions.
func KubeletSnapshot(held Assignments) *Snapshot { return &Snapshot{assignments: held} }

// Holders returns the holders of a GPU's devices, by the UUID of the MIG device or of the whole
// GPU.
func (s *Snapshot) Holders(library nvml.Library, gpu string) (map[string]partition.Holder, error) {
	devices, err := listDevices(library, gpu)
	if err != nil {
		return nil, err
	}
	return s.holders(devices), nil
}

// ObservedHolders returns the holders by the GPU's devices as last observed, without a driver call:
// for reports, never for decisions.
func (s *Snapshot) ObservedHolders(gpu *v1alpha1.ObservedGPU) map[string]partition.Holder {
	return s.holders(observedDevices(gpu))
}

func (s *Snapshot) holders(devices []device) map[string]partition.Holder {
	holders := map[string]partition.Holder{}
	for _, d := range devices {
		if holder, ok := s.holder(d); ok {
			holders[d.uuid] = holder
		}
	}
	return holders
}

func (s *Snapshot) holder(d device) (partition.Holder, bool) {
	if pods := s.assignments.Holders[d.uuid]; len(pods) > 0 {
		return partition.Holder{Pod: s.podReference(pods[0]), Why: "the kubelet gave it to the pod"}, true
	}
	if len(s.assignments.Ambiguous) > 0 {
		return partition.Holder{Pod: s.podReference(s.assignments.Ambiguous[0]), Why: "the pod has a device that the kubelet does not name"}, true
	}
	for _, claim := range s.claims {
		if s.mayReceive(claim.Resource, d) {
			return partition.Holder{Pod: &claim.Pod, Why: "the pod is bound to the node and still waits for its " + string(claim.Resource)}, true
		}
	}
	return partition.Holder{}, false
}

// mayReceive reports whether a pod that waits for a resource may be given the device. A restarted
// kubelet offers nothing until the device plugin registers, so then any device may match.
func (s *Snapshot) mayReceive(resource corev1.ResourceName, d device) bool {
	if len(s.assignments.Offered) == 0 && isGPU(resource) {
		return true
	}
	as, offered := s.assignments.Offered[d.uuid]
	return offered && as == resource || d.canSatisfy(resource, offered)
}

// podReference returns a reference to a pod by name. The kubelet may report pods that the API
// server no longer has.
func (s *Snapshot) podReference(name types.NamespacedName) *v1alpha1.PodReference {
	s.indexed.Do(s.index)
	if pod := s.byName[name]; pod != nil {
		found := podReference(pod)
		return &found
	}
	return &v1alpha1.PodReference{Namespace: name.Namespace, Name: name.Name}
}

// PodsOnDevice returns the pods of a device, several if it is shared.
func (s *Snapshot) PodsOnDevice(uuid string) (pods []v1alpha1.PodReference) {
	for _, name := range s.assignments.Holders[uuid] {
		if pod := *s.podReference(name); !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// HeldBy returns how many replicas of a device the kubelet assigned to a pod: 1 for a device without
// replicas, and 0 if it assigned none.
func (s *Snapshot) HeldBy(device string, pod types.NamespacedName) (count int) {
	for _, holder := range s.assignments.Holders[device] {
		if holder == pod {
			count++
		}
	}
	return count
}

// HasDevices reports whether the kubelet assigned any GPU or MIG device to a pod. It is not known if the
// kubelet names two pods so, or does not name the device.
func (s *Snapshot) HasDevices(pod types.NamespacedName) (has, known bool) {
	for name := range s.assignments.Counts[pod] {
		has = has || isGPU(name)
	}
	return has, !slices.Contains(s.assignments.Ambiguous, pod)
}

// Replicas returns how many replicas of a device the device plugin offers, and whether it shares the device
// at all. The number is 0 if it is unknown.
func (s *Snapshot) Replicas(device string) (count int, shared bool) {
	count, shared = s.assignments.Replicas[device]
	return count, shared
}

// Replicated returns the resources of MIG devices of which the device plugin offers several replicas.
func (s *Snapshot) Replicated() []corev1.ResourceName { return s.assignments.Replicated }

// PodUses returns the pods with GPUs or MIG devices, by name. A pod that the API server no longer
// has gets its name as UID.
func (s *Snapshot) PodUses() []v1alpha1.PodUsage {
	s.used.Do(func() { s.uses = s.podUses() })
	return slices.Clone(s.uses)
}

func (s *Snapshot) podUses() []v1alpha1.PodUsage {
	uses := []v1alpha1.PodUsage{}
	for _, device := range slices.Sorted(maps.Keys(s.assignments.Holders)) {
		for _, pod := range s.PodsOnDevice(device) {
			if pod.UID == "" {
				pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
			}
			at := slices.IndexFunc(uses, func(u v1alpha1.PodUsage) bool { return u.PodReference == pod })
			if at < 0 {
				at = len(uses)
				uses = append(uses, v1alpha1.PodUsage{PodReference: pod})
			}
			uses[at].Devices = append(uses[at].Devices, device)
		}
	}
	slices.SortFunc(uses, func(a, b v1alpha1.PodUsage) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return uses
}

// PodByUID returns the node's pod with the first of the UIDs that a pod of the node has. The UIDs of a
// process's cgroups come outermost first: a container may create cgroups below its own with any name.
func (s *Snapshot) PodByUID(uids ...types.UID) (v1alpha1.PodReference, bool) {
	s.indexed.Do(s.index)
	for _, uid := range uids {
		if pod := s.byUID[uid]; pod != nil {
			return podReference(pod), true
		}
	}
	return v1alpha1.PodReference{}, false
}
