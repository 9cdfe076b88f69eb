// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// LabelPodGroup is Kueue's: pods with the same value are admitted together.
const LabelPodGroup = "kueue.x-k8s.io/pod-group-name"

// podReader reads pods into facts.
type podReader struct {
	gpuNames      workload.ResourceUnits
	deviceClasses []string
}

// read is what is kept of a pod, and false for one that has ended or asks for no
// GPU.
func (r *podReader) read(pod *corev1.Pod) (compactPod, bool) {
	if workload.IsPodTerminal(pod) {
		return compactPod{}, false
	}
	request, err := r.parseRequest(pod)
	charged := chargedMilli(pod)
	if err == nil && charged == 0 && !request.RequestsGPU() && !r.requestsDeviceClass(&request) {
		return compactPod{}, false
	}
	f := compactPod{
		namespace: unique.Make(pod.Namespace),
		node:      unique.Make(pod.Spec.NodeName),
		created:   unixSeconds(&pod.CreationTimestamp),
		started:   startedAt(&pod.Status),
	}
	f.name, f.uid = internName(pod.Name, pod.UID)
	f.flags.set(flagRunning, pod.Status.Phase == corev1.PodRunning)
	f.flags.set(flagDeleting, pod.DeletionTimestamp != nil)
	f.flags.set(flagUnreadable, err != nil)
	f.flags.set(flagQueued, slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool {
		return gate.Name == v1alpha1.GateKueue
	}))
	if charged == 0 {
		charged = request.GPUs
	}
	f.shared = unique.Make(sharedFields{
		controller:   controllerOf(pod),
		group:        pod.Labels[LabelPodGroup],
		milli:        charged,
		pool:         pod.Labels[v1alpha1.LabelNodePool],
		workloadType: v1alpha1.WorkloadType(pod.Labels[v1alpha1.LabelWorkloadType]),
		project:      pod.Labels[v1alpha1.LabelProject],
		createdBy:    pod.Annotations[v1alpha1.AnnotationCreatedBy],
		maxRuntime:   request.MaxRuntime,
	})
	return f, true
}

// Wishes beside the GPUs. That one of them is malformed says nothing of the GPUs.
var optionalAnnotations = []string{v1alpha1.AnnotationMaxRuntime, v1alpha1.AnnotationNodePools}

// parseRequest is what the pod asks for. What cannot be read beside that is left out.
func (r *podReader) parseRequest(pod *corev1.Pod) (workload.Request, error) {
	request, err := r.gpuNames.ParsePod(pod)
	if err == nil {
		return request, nil
	}
	bare := *pod
	bare.Labels, bare.Annotations = maps.Clone(pod.Labels), maps.Clone(pod.Annotations)
	delete(bare.Labels, v1alpha1.LabelWorkloadType)
	for _, wish := range optionalAnnotations {
		delete(bare.Annotations, wish)
	}
	return r.gpuNames.ParsePod(&bare)
}

// requestsDeviceClass is whether the pod asks for GPUs by the name of a DeviceClass.
func (r *podReader) requestsDeviceClass(request *workload.Request) bool {
	return slices.ContainsFunc(request.DeviceClasses, func(asked workload.Amount) bool {
		return slices.Contains(r.deviceClasses, asked.Name)
	})
}

func controllerOf(pod *corev1.Pod) Owner {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return Owner{}
	}
	return Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: types.UID(string(ref.UID))}
}

// startedAt is when the pod began to run. A restarted container tells only of its
// last start.
func startedAt(status *corev1.PodStatus) int64 {
	first := int64(0)
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.RestartCount > 0 {
			continue
		}
		at := int64(0)
		switch {
		case c.State.Running != nil:
			at = unixSeconds(&c.State.Running.StartedAt)
		case c.State.Terminated != nil:
			at = unixSeconds(&c.State.Terminated.StartedAt)
		}
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	if first == 0 {
		first = unixSeconds(status.StartTime)
	}
	return first
}

func unixSeconds(t *metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// chargedMilli is how much of the currency an admitted pod has, as quotas count it: the
// containers that run side by side together, or the largest of those that run
// before them if that is more. A pod that was not admitted has none, whatever is
// written on it.
func chargedMilli(pod *corev1.Pod) workload.Milli {
	if pod.Labels[v1alpha1.LabelProject] == "" {
		return 0
	}
	var together, before, beside int64
	for i := range pod.Spec.Containers {
		together = saturatingAdd(together, requestedMilli(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		amount := requestedMilli(c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			beside = saturatingAdd(beside, amount)
			amount = 0
		}
		before = max(before, saturatingAdd(beside, amount))
	}
	return workload.Milli(max(saturatingAdd(together, beside), before))
}

// requestedMilli is how much of it one container has.
func requestedMilli(c *corev1.Container) int64 {
	sum := int64(0)
	for name, quantity := range c.Resources.Requests {
		if name == v1alpha1.ResourceGPUMilli || strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".") {
			sum = saturatingAdd(sum, max(0, quantity.Value()))
		}
	}
	return sum
}

// saturatingAdd adds two amounts of at least 0 and stops at the most that there can be.
func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
