// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package occupancy

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
		Ask(ctx context.Context) (Holdings, error)
	}
	// Pods reads pods; for a decision from the API server itself, for a report from a
	// cache.
	Pods client.Reader
	// Library is the driver.
	Library nvml.Library
}

// Bound are the pods that are bound to the node, those that have ended too.
func (r *Reader) Bound(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var list corev1.PodList
	if err := r.Pods.List(ctx, &list, client.MatchingFields{FieldNodeName: r.Node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", r.Node, err)
	}
	return list.Items, nil
}

// Look is who has what of the node's devices at this moment.
func (r *Reader) Look(ctx context.Context) (*Sight, error) {
	// In this order: see claims.
	held, err := r.Kubelet.Ask(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := r.Bound(ctx)
	if err != nil {
		return nil, err
	}
	return sight(pods, held), nil
}

func sight(pods []corev1.Pod, held Holdings) *Sight {
	held.Unclear = append(held.Unclear, untold(pods, held)...)
	return &Sight{Pods: pods, held: held, claims: claims(pods, held)}
}

// InUse implements [partition.InUse], each time from what is so now.
func (r *Reader) InUse(ctx context.Context, gpu string) (map[string]partition.Holder, error) {
	sight, err := r.Look(ctx)
	if err != nil {
		return nil, err
	}
	return sight.Holders(r.Library, gpu)
}

// Sight is who has a node's devices, as of one moment.
type Sight struct {
	// Pods are those that are bound to the node.
	Pods   []corev1.Pod
	held   Holdings
	claims []Claim
}

// Known is what the kubelet alone can tell: for a report where the API server is not
// asked, never for a decision.
func Known(held Holdings) *Sight { return &Sight{held: held} }

// Holders are those of a GPU's devices: by the UUID of a MIG device, and of the GPU
// where it is whole.
func (s *Sight) Holders(library nvml.Library, gpu string) (map[string]partition.Holder, error) {
	devices, err := devicesOf(library, gpu)
	if err != nil {
		return nil, err
	}
	return s.holders(devices), nil
}

// Reported are the holders of a GPU's devices as it was last observed: for a report,
// never for a decision. The driver is not asked.
func (s *Sight) Reported(gpu *v1alpha1.ObservedGPU) map[string]partition.Holder {
	return s.holders(observed(gpu))
}

func (s *Sight) holders(devices []device) map[string]partition.Holder {
	holders := map[string]partition.Holder{}
	for _, d := range devices {
		if holder, ok := s.holder(d); ok {
			holders[d.uuid] = holder
		}
	}
	return holders
}

func (s *Sight) holder(d device) (partition.Holder, bool) {
	if pods := s.held.Holders[d.uuid]; len(pods) > 0 {
		return partition.Holder{Pod: s.pod(pods[0]), Why: "the kubelet gave it to the pod"}, true
	}
	if len(s.held.Unclear) > 0 {
		return partition.Holder{Pod: s.pod(s.held.Unclear[0]), Why: "the pod has a device that the kubelet does not name"}, true
	}
	for _, claim := range s.claims {
		if s.mayGet(claim.Resource, d) {
			return partition.Holder{Pod: &claim.Pod, Why: "the pod is bound to the node and still waits for its " + string(claim.Resource)}, true
		}
	}
	return partition.Holder{}, false
}

// mayGet tells whether a pod that waits for a resource may be given the device. A kubelet
// that was just started offers nothing until the device plugin is back: nobody knows
// then what it offered.
func (s *Sight) mayGet(resource corev1.ResourceName, d device) bool {
	if len(s.held.Offered) == 0 && isGPU(resource) {
		return true
	}
	as, offered := s.held.Offered[d.uuid]
	return offered && as == resource || d.mayBe(resource, offered)
}

// pod is one by its name. The kubelet may have pods of which the API server knows
// nothing any more.
func (s *Sight) pod(name types.NamespacedName) *v1alpha1.PodReference {
	for i := range s.Pods {
		if s.Pods[i].Namespace == name.Namespace && s.Pods[i].Name == name.Name {
			found := reference(&s.Pods[i])
			return &found
		}
	}
	return &v1alpha1.PodReference{Namespace: name.Namespace, Name: name.Name}
}

// On are the pods that were given a device by the kubelet; several where it is shared.
func (s *Sight) On(uuid string) (pods []v1alpha1.PodReference) {
	for _, name := range s.held.Holders[uuid] {
		if pod := *s.pod(name); !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Uses are the pods that the kubelet gave GPUs or MIG devices to, and which, by name. One
// of which the API server knows nothing any more has its name for an identity.
func (s *Sight) Uses() []v1alpha1.PodUse {
	uses := []v1alpha1.PodUse{}
	for _, device := range slices.Sorted(maps.Keys(s.held.Holders)) {
		for _, pod := range s.On(device) {
			if pod.UID == "" {
				pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
			}
			at := slices.IndexFunc(uses, func(u v1alpha1.PodUse) bool { return u.PodReference == pod })
			if at < 0 {
				at = len(uses)
				uses = append(uses, v1alpha1.PodUse{PodReference: pod})
			}
			uses[at].Devices = append(uses[at].Devices, device)
		}
	}
	slices.SortFunc(uses, func(a, b v1alpha1.PodUse) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return uses
}

// ByUID is the pod of the node with one of these identities.
func (s *Sight) ByUID(uids ...types.UID) (v1alpha1.PodReference, bool) {
	for i := range s.Pods {
		if slices.Contains(uids, s.Pods[i].UID) {
			return reference(&s.Pods[i]), true
		}
	}
	return v1alpha1.PodReference{}, false
}
