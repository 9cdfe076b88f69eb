// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// Parse reads what the pods of a template ask for, by the [DefaultNames]. The
// error is [Malformed], with all that is wrong; the Request beside it is empty.
// Fields are named below the template itself: see [Malformed.Under].
//
// A pod that was admitted (it has the label sluice.dev/project) is read with what
// was granted: a GPU resource counts, and the annotations by which its author had
// asked for a share may stand beside it; and an engine's annotation may repeat
// the author's. In any other pod both are faults.
func Parse(template *corev1.PodTemplateSpec) (Request, error) { return defaultNames.Parse(template) }

// ParsePod is [Parse] for a pod.
func ParsePod(pod *corev1.Pod) (Request, error) { return defaultNames.ParsePod(pod) }

// Parse reads a template by a table of one's own.
func (n Names) Parse(template *corev1.PodTemplateSpec) (Request, error) {
	if template == nil {
		return Request{}, nothing("template")
	}
	return n.parse(&template.ObjectMeta, &template.Spec)
}

// ParsePod reads a pod by a table of one's own.
func (n Names) ParsePod(pod *corev1.Pod) (Request, error) {
	if pod == nil {
		return Request{}, nothing("pod")
	}
	return n.parse(&pod.ObjectMeta, &pod.Spec)
}

// reader is one pod that is being read.
type reader struct {
	problems
	names Names
	spec  *corev1.PodSpec
	// admitted is whether the pod has been through the webhook. Then a GPU resource
	// may stand beside the annotations by which its author asked for a share: it is
	// what was granted for them, and what counts. To pretend it gains nothing, since
	// what the resource gives is counted in full.
	admitted bool
	notes    notes
	// counted are the GPU resources, classes the DRA ones, others the rest.
	counted, classes tally
	others           []string
}

func (n Names) parse(meta *metav1.ObjectMeta, spec *corev1.PodSpec) (Request, error) {
	r := reader{names: n, spec: spec, admitted: meta.Labels[v1alpha1.LabelProject] != "", notes: notesOf(meta.Annotations)}
	request := Request{Form: FormNone, Owner: ownerOf(meta), Claims: claimsOf(spec)}
	if len(spec.Containers) > 0 {
		request.HasTTY = spec.Containers[0].TTY
	}
	r.unique(spec)
	r.containers(spec)
	r.fromResources(&request)
	r.fromAnnotations(&request)
	r.memoryLimits(&request)
	r.kaiContainers()
	r.workloadType(&request, meta.Labels)
	r.nodePools(&request)
	r.maxRuntime(&request)
	if len(r.found) > 0 {
		return Request{}, r.found
	}
	request.DeviceClasses = r.classes.amounts(len(resourcev1.ResourceDeviceClassPrefix))
	request.OtherResources = r.otherNames()
	return request, nil
}

// ownerOf is the kind of the controller that the object names.
func ownerOf(meta *metav1.ObjectMeta) Owner {
	controller := metav1.GetControllerOfNoCopy(meta)
	if controller == nil {
		return Owner{}
	}
	version, _ := schema.ParseGroupVersion(controller.APIVersion) // a wrong one has no group
	return Owner{Group: version.Group, Kind: controller.Kind}
}

// claimsOf are the pod's DRA claims, as it names them.
func claimsOf(spec *corev1.PodSpec) []Claim {
	claims := make([]Claim, len(spec.ResourceClaims))
	for i, claim := range spec.ResourceClaims {
		claims[i].Name = claim.Name
		if claim.ResourceClaimName != nil {
			claims[i].Claim = *claim.ResourceClaimName
		}
		if claim.ResourceClaimTemplateName != nil {
			claims[i].Template = *claim.ResourceClaimTemplateName
		}
	}
	return claims
}
