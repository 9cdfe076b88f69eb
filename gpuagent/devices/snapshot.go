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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
)

// FieldNodeName is the field of pods by which the API server selects those of a node.
const FieldNodeName = "spec.nodeName"

// Reader tells who has a node's devices.
type Reader struct {
	// Node is the node's name.
	Node string
	// Kubelet is the node's.
	Kubelet interface {
		ListAssignments(ctx context.Context) (Assignments, error)
	}
	// Pods reads pods; for a decision from the API server itself, for a report from a
	// cache.
	Pods client.Reader
	// Library is the driver.
	Library nvml.Library
}

// BoundPods are the pods that are bound to the node, those that have ended too.
func (r *Reader) BoundPods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var list corev1.PodList
	if err := r.Pods.List(ctx, &list, client.MatchingFields{FieldNodeName: r.Node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", r.Node, err)
	}
	return list.Items, nil
}

// Read is who has what of the node's devices at this moment.
func (r *Reader) Read(ctx context.Context) (*Snapshot, error) {
	// In this order: see claims.
	held, err := r.Kubelet.ListAssignments(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := r.BoundPods(ctx)
	if err != nil {
		return nil, err
	}
	return newSnapshot(pods, held), nil
}

func newSnapshot(pods []corev1.Pod, held Assignments) *Snapshot {
	held.Ambiguous = append(held.Ambiguous, podsWithUnknownDRA(pods, held)...)
	return &Snapshot{Pods: pods, assignments: held, claims: pendingClaims(pods, held)}
}

// InUse implements [partition.InUse], each time from what is so now.
func (r *Reader) InUse(ctx context.Context, gpu string) (map[string]partition.Holder, error) {
	sight, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	return sight.Holders(r.Library, gpu)
}

// Snapshot is who has a node's devices, as of one moment.
type Snapshot struct {
	// Pods are those that are bound to the node.
	Pods        []corev1.Pod
	assignments Assignments
	claims      []PendingClaim
}

// KubeletSnapshot is what the kubelet alone can tell: for a report where the API server is not
// asked, never for a decision.
func KubeletSnapshot(held Assignments) *Snapshot { return &Snapshot{assignments: held} }

// Holders are those of a GPU's devices: by the UUID of a MIG device, and of the GPU
// where it is whole.
func (s *Snapshot) Holders(library nvml.Library, gpu string) (map[string]partition.Holder, error) {
	devices, err := listDevices(library, gpu)
	if err != nil {
		return nil, err
	}
	return s.holders(devices), nil
}

// ObservedHolders are the holders of a GPU's devices as it was last observed: for a report,
// never for a decision. The driver is not asked.
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

// mayReceive tells whether a pod that waits for a resource may be given the device. A kubelet
// that was just started offers nothing until the device plugin is back: nobody knows
// then what it offered.
func (s *Snapshot) mayReceive(resource corev1.ResourceName, d device) bool {
	if len(s.assignments.Offered) == 0 && isGPU(resource) {
		return true
	}
	as, offered := s.assignments.Offered[d.uuid]
	return offered && as == resource || d.canSatisfy(resource, offered)
}

// podReference is one by its name. The kubelet may have pods of which the API server knows
// nothing any more.
func (s *Snapshot) podReference(name types.NamespacedName) *v1alpha1.PodReference {
	for i := range s.Pods {
		if s.Pods[i].Namespace == name.Namespace && s.Pods[i].Name == name.Name {
			found := podReference(&s.Pods[i])
			return &found
		}
	}
	return &v1alpha1.PodReference{Namespace: name.Namespace, Name: name.Name}
}

// PodsOnDevice are the pods that were given a device by the kubelet; several where it is shared.
func (s *Snapshot) PodsOnDevice(uuid string) (pods []v1alpha1.PodReference) {
	for _, name := range s.assignments.Holders[uuid] {
		if pod := *s.podReference(name); !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// PodUses are the pods that the kubelet gave GPUs or MIG devices to, and which, by name. One
// of which the API server knows nothing any more has its name for an identity.
func (s *Snapshot) PodUses() []v1alpha1.PodUsage {
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

// PodByUID is the pod of the node with one of these identities.
func (s *Snapshot) PodByUID(uids ...types.UID) (v1alpha1.PodReference, bool) {
	for i := range s.Pods {
		if slices.Contains(uids, s.Pods[i].UID) {
			return podReference(&s.Pods[i]), true
		}
	}
	return v1alpha1.PodReference{}, false
}
