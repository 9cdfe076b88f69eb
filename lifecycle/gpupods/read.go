// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// LabelPodGroup is Kueue's: pods with the same value are admitted together.
const LabelPodGroup = "kueue.x-k8s.io/pod-group-name"

// reader reads pods into facts.
type reader struct {
	names   workload.Names
	classes []string
}

// read is what is kept of a pod, and false for one that has ended or asks for no
// GPU.
func (r *reader) read(pod *corev1.Pod) (facts, bool) {
	if workload.Ended(pod) {
		return facts{}, false
	}
	request, err := r.request(pod)
	charged := charge(pod)
	if err == nil && charged == 0 && !request.AsksForGPU() && !r.asksByClass(&request) {
		return facts{}, false
	}
	f := facts{
		namespace: unique.Make(pod.Namespace),
		node:      unique.Make(pod.Spec.NodeName),
		created:   seconds(&pod.CreationTimestamp),
		started:   started(&pod.Status),
	}
	f.name, f.uid = named(pod.Name, pod.UID)
	f.flags.set(running, pod.Status.Phase == corev1.PodRunning)
	f.flags.set(deleting, pod.DeletionTimestamp != nil)
	f.flags.set(unreadable, err != nil)
	f.flags.set(queued, slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool {
		return gate.Name == v1alpha1.GateKueue
	}))
	if charged == 0 {
		charged = request.GPUs
	}
	f.more = unique.Make(common{
		controller: controllerOf(pod),
		group:      pod.Labels[LabelPodGroup],
		milli:      charged,
		pool:       pod.Labels[v1alpha1.LabelNodePool],
		kind:       v1alpha1.WorkloadType(pod.Labels[v1alpha1.LabelWorkloadType]),
		project:    pod.Labels[v1alpha1.LabelProject],
		createdBy:  pod.Annotations[v1alpha1.AnnotationCreatedBy],
		maxRuntime: request.MaxRuntime,
	})
	return f, true
}

// Wishes beside the GPUs. That one of them is malformed says nothing of the GPUs.
var wishes = []string{v1alpha1.AnnotationMaxRuntime, v1alpha1.AnnotationNodePools}

// request is what the pod asks for. What cannot be read beside that is left out.
func (r *reader) request(pod *corev1.Pod) (workload.Request, error) {
	request, err := r.names.ParsePod(pod)
	if err == nil {
		return request, nil
	}
	bare := *pod
	bare.Labels, bare.Annotations = maps.Clone(pod.Labels), maps.Clone(pod.Annotations)
	delete(bare.Labels, v1alpha1.LabelWorkloadType)
	for _, wish := range wishes {
		delete(bare.Annotations, wish)
	}
	return r.names.ParsePod(&bare)
}

// asksByClass is whether the pod asks for GPUs by the name of a DeviceClass.
func (r *reader) asksByClass(request *workload.Request) bool {
	return slices.ContainsFunc(request.DeviceClasses, func(asked workload.Amount) bool {
		return slices.Contains(r.classes, asked.Name)
	})
}

func controllerOf(pod *corev1.Pod) Owner {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return Owner{}
	}
	return Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: types.UID(string(ref.UID))}
}

// started is when the pod began to run. A restarted container tells only of its
// last start.
func started(status *corev1.PodStatus) int64 {
	first := int64(0)
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.RestartCount > 0 {
			continue
		}
		at := int64(0)
		switch {
		case c.State.Running != nil:
			at = seconds(&c.State.Running.StartedAt)
		case c.State.Terminated != nil:
			at = seconds(&c.State.Terminated.StartedAt)
		}
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	if first == 0 {
		first = seconds(status.StartTime)
	}
	return first
}

func seconds(t *metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
