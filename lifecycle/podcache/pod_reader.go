// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/kaigroup"
)

// podReader converts pods to compactPods.
type podReader struct {
	gpuNames      workload.ResourceUnits
	deviceClasses []string
}

// read returns the compact form of a pod, and false if the pod has ended or requests no GPU.
func (r *podReader) read(pod *corev1.Pod) (compactPod, bool) {
	if workload.IsPodTerminal(pod) {
		return compactPod{}, false
	}
	request, err := r.parseRequest(pod)
	charged, resource := charge(pod)
	if err == nil && charged == 0 && !request.RequestsGPU() && !r.requestsDeviceClass(&request) {
		return compactPod{}, false
	}
	p := compactPod{
		namespace: unique.Make(pod.Namespace),
		node:      unique.Make(pod.Spec.NodeName),
		podGroup:  unique.Make(pod.Annotations[kaigroup.AnnotationGroup]),
		created:   unixSeconds(&pod.CreationTimestamp),
		started:   startedAt(&pod.Status),
		bound:     boundAt(pod),
		graceEnd:  unixSeconds(pod.DeletionTimestamp),
	}
	p.name, p.uid = internName(pod.Name, pod.UID)
	p.flags.set(flagRunning, pod.Status.Phase == corev1.PodRunning || pod.Spec.NodeName != "" && hasStartedContainer(&pod.Status))
	p.flags.set(flagUnreadable, err != nil)
	p.flags.set(flagQueued, slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool {
		return gate.Name == v1alpha1.GateKueue
	}))
	p.flags.set(flagNonPreemptible, charged > 0 && slices.ContainsFunc(pod.Spec.Containers, isChargedGuarantee))
	p.flags.set(flagAdmitted, pod.Labels[v1alpha1.LabelKueuePodSet] != "" && !p.flags.has(flagQueued))
	if charged == 0 {
		charged = request.GPUs
	}
	p.shared = unique.Make(sharedFields{
		controller:   controllerOf(pod),
		group:        pod.Labels[v1alpha1.LabelKueuePodGroup],
		milli:        charged,
		resource:     resource,
		pool:         pod.Labels[v1alpha1.LabelNodePool],
		workloadType: v1alpha1.WorkloadType(pod.Labels[v1alpha1.LabelWorkloadType]),
		project:      pod.Labels[v1alpha1.LabelProject],
		createdBy:    pod.Annotations[v1alpha1.AnnotationCreatedBy],
		maxRuntime:   request.MaxRuntime,
	})
	return p, true
}

// optionalAnnotations do not affect the GPU request. It can be parsed even if they are malformed.
var optionalAnnotations = []string{v1alpha1.AnnotationMaxRuntime, v1alpha1.AnnotationNodePools}

// parseRequest parses the pod's request, without optional fields if they are malformed.
func (r *podReader) parseRequest(pod *corev1.Pod) (workload.Request, error) {
	request, err := r.gpuNames.ParsePod(pod)
	if err == nil {
		return request, nil
	}
	bare := *pod
	bare.Labels, bare.Annotations = maps.Clone(pod.Labels), maps.Clone(pod.Annotations)
	delete(bare.Labels, v1alpha1.LabelWorkloadType)
	for _, annotation := range optionalAnnotations {
		delete(bare.Annotations, annotation)
	}
	return r.gpuNames.ParsePod(&bare)
}

// requestsDeviceClass reports whether the pod requests GPUs as an extended resource of a
// DeviceClass.
func (r *podReader) requestsDeviceClass(request *workload.Request) bool {
	return slices.ContainsFunc(request.DeviceClasses, func(requested workload.Amount) bool {
		return slices.Contains(r.deviceClasses, requested.Name)
	})
}

func controllerOf(pod *corev1.Pod) Owner {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return Owner{}
	}
	return Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: types.UID(string(ref.UID))}
}

// containerStatuses returns the statuses of all containers that can request GPUs. The phase of
// a pod is Pending while its init containers run.
func containerStatuses(status *corev1.PodStatus) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// hasStartedContainer reports whether any container runs or has run.
func hasStartedContainer(status *corev1.PodStatus) bool {
	for c := range containerStatuses(status) {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

// startedAt returns when the pod began to run. It ignores restarted containers, of which only
// the last start is known.
func startedAt(status *corev1.PodStatus) int64 {
	first := int64(0)
	for c := range containerStatuses(status) {
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

// ScheduledCondition returns what the scheduler says of a pod; zero if it says nothing.
func ScheduledCondition(pod *corev1.Pod) corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return pod.Status.Conditions[i]
		}
	}
	return corev1.PodCondition{}
}

// boundAt returns when the pod was bound: when the scheduler reported it, else when the
// kubelet accepted the pod, else its creation. It returns 0 for a pod without a node.
func boundAt(pod *corev1.Pod) int64 {
	if pod.Spec.NodeName == "" {
		return 0
	}
	if c := ScheduledCondition(pod); c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return unixSeconds(&c.LastTransitionTime)
	}
	return cmp.Or(unixSeconds(pod.Status.StartTime), unixSeconds(&pod.CreationTimestamp))
}

func unixSeconds(t *metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// charge returns the GPU quota units of an admitted pod, as quotas count them: the sum of the
// containers and sidecars, or the largest init container if that is more. It returns 0 for a pod
// that was not admitted. Admission leaves a pod one quota resource, which is the second result.
func charge(pod *corev1.Pod) (workload.Milli, corev1.ResourceName) {
	if pod.Labels[v1alpha1.LabelProject] == "" {
		return 0, ""
	}
	var resource corev1.ResourceName
	var containers, initPeak, sidecars int64
	for i := range pod.Spec.Containers {
		containers = saturatingAdd(containers, requestedMilli(&pod.Spec.Containers[i], &resource))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		amount := requestedMilli(c, &resource)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = saturatingAdd(sidecars, amount)
			amount = 0
		}
		initPeak = max(initPeak, saturatingAdd(sidecars, amount))
	}
	return workload.Milli(max(saturatingAdd(containers, sidecars), initPeak)), resource
}

// requestedMilli returns the GPU quota units of a container, and sets resource to their name.
func requestedMilli(c *corev1.Container, resource *corev1.ResourceName) int64 {
	sum := int64(0)
	for name, quantity := range c.Resources.Requests {
		if v1alpha1.IsGPUMilli(name) && quantity.Sign() > 0 {
			sum = saturatingAdd(sum, quantity.Value())
			*resource = name
		}
	}
	return sum
}

// isChargedGuarantee reports whether a container carries the charge to the guarantee.
func isChargedGuarantee(c corev1.Container) bool {
	for name, quantity := range c.Resources.Requests {
		if v1alpha1.IsGuaranteedMilli(name) && quantity.Sign() > 0 {
			return true
		}
	}
	return false
}

// saturatingAdd adds two non-negative amounts without overflow.
func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
