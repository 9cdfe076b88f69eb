// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Parse returns the request of a template's pods, with the [DefaultResourceUnits]. The error is
// an [InvalidRequest] with all problems, and the Request is then empty. Fields are named relative
// to the template; see [InvalidRequest.WithPrefix].
//
// In an admitted pod (with the label sluice.dev/project), a GPU resource counts and may stand
// beside the annotations that requested a share, and an annotation of the scheduler may repeat
// the user's. In any other pod both are errors.
func Parse(template *corev1.PodTemplateSpec) (Request, error) {
	return defaultResourceUnits.Parse(template)
}

// ParsePod returns the request of a pod; see [Parse].
func ParsePod(pod *corev1.Pod) (Request, error) { return defaultResourceUnits.ParsePod(pod) }

// Parse returns the request of a template's pods with these units.
func (n ResourceUnits) Parse(template *corev1.PodTemplateSpec) (Request, error) {
	if template == nil {
		return Request{}, newRequiredError("template")
	}
	return n.parse(&template.ObjectMeta, &template.Spec)
}

// ParsePod returns the request of a pod with these units.
func (n ResourceUnits) ParsePod(pod *corev1.Pod) (Request, error) {
	if pod == nil {
		return Request{}, newRequiredError("pod")
	}
	return n.parse(&pod.ObjectMeta, &pod.Spec)
}

// parser holds the state while one pod is parsed.
type parser struct {
	errorCollector
	units ResourceUnits
	spec  *corev1.PodSpec
	// admitted is true for a pod that passed the webhook. A GPU resource may then stand
	// beside the annotations that requested a share: it is what was granted, and it counts.
	// Forging it has no advantage, since the resource is charged in full.
	admitted    bool
	annotations requestAnnotations
	// gpuTally sums GPU resources, deviceClassTally DRA device classes. otherResources are
	// the names of all others.
	gpuTally, deviceClassTally resourceTally
	otherResources             []string
}

func (n ResourceUnits) parse(meta *metav1.ObjectMeta, spec *corev1.PodSpec) (Request, error) {
	if n == nil {
		n = defaultResourceUnits
	}
	r := parser{units: n, spec: spec, admitted: meta.Labels[v1alpha1.LabelProject] != "", annotations: collectAnnotations(meta.Annotations)}
	request := Request{Form: FormNone, Owner: parseOwner(meta), Claims: parseClaims(spec)}
	if len(spec.Containers) > 0 {
		request.HasTTY = spec.Containers[0].TTY
	}
	r.validateContainerNames(spec)
	r.parseContainers(spec)
	r.applyResources(&request)
	r.applyAnnotations(&request)
	r.parseMemoryLimits(&request)
	r.validateKAIContainers()
	r.parseWorkloadType(&request, meta.Labels)
	r.parseNodePools(&request)
	r.parseMaxRuntime(&request)
	if len(r.errs) > 0 {
		return Request{}, r.errs
	}
	request.DeviceClasses = r.deviceClassTally.amounts(len(resourcev1.ResourceDeviceClassPrefix))
	request.OtherResources = r.otherResourceNames()
	request.Requests = nodeRequests(spec)
	return request, nil
}

// parseOwner returns the kind of the object's controller.
func parseOwner(meta *metav1.ObjectMeta) Owner {
	controller := metav1.GetControllerOfNoCopy(meta)
	if controller == nil {
		return Owner{}
	}
	version, _ := schema.ParseGroupVersion(controller.APIVersion) // an invalid version has no group
	return Owner{Group: version.Group, Kind: controller.Kind}
}

// parseClaims returns the pod's DRA claims.
func parseClaims(spec *corev1.PodSpec) []Claim {
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

// parseWorkloadType reads the user's label.
func (r *parser) parseWorkloadType(request *Request, labels map[string]string) {
	text, set := labels[v1alpha1.LabelWorkloadType]
	if !set {
		return
	}
	request.Type = v1alpha1.WorkloadType(text)
	if slices.Contains(v1alpha1.WorkloadTypes, request.Type) {
		return
	}
	known := make([]string, len(v1alpha1.WorkloadTypes))
	for i, t := range v1alpha1.WorkloadTypes {
		known[i] = string(t)
	}
	r.addInvalid("metadata.labels["+v1alpha1.LabelWorkloadType+"]", text, "must be one of "+strings.Join(known, ", "))
}

// maxNodePools is the largest number of node pools that a pod may name, as many as a project can
// have.
const maxNodePools = 10

// parseNodePools reads the preferred node pools. Spaces around a name are allowed.
func (r *parser) parseNodePools(request *Request) {
	request.NodePools = []string{}
	n := r.annotations.nodePools
	if !n.isSet {
		return
	}
	count := strings.Count(n.value, ",") + 1
	if count > maxNodePools {
		r.addInvalid(n.path(), n.value, "names "+strconv.Itoa(count)+" node pools; at most "+strconv.Itoa(maxNodePools)+" can be named")
		return
	}
	request.NodePools = make([]string, 0, count)
	for name := range strings.SplitSeq(n.value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			r.addInvalid(n.path(), n.value, "has an empty name; want names of node pools separated by commas, such as dgx-h100,dgx-a100")
		case !isNodePoolName(name):
			r.addInvalid(n.path(), name, "must be the name of a node pool: lower-case letters, digits and hyphens, at most "+
				strconv.Itoa(v1alpha1.MaxNodePoolName)+", beginning and ending with a letter or digit, such as dgx-h100")
		case slices.Contains(request.NodePools, name):
			r.addInvalid(n.path(), name, "is named twice; name each node pool once, in order of preference")
		default:
			request.NodePools = append(request.NodePools, name)
		}
	}
}

// isNodePoolName reports whether text is a valid name of a NodePool.
func isNodePoolName(text string) bool {
	for at := range len(text) {
		c := text[at]
		inner := c == '-' && at > 0 && at < len(text)-1
		if !inner && !isDigit(c) && (c < 'a' || c > 'z') {
			return false
		}
	}
	return text != "" && len(text) <= v1alpha1.MaxNodePoolName
}

// parseMaxRuntime reads the user's time limit.
func (r *parser) parseMaxRuntime(request *Request) {
	n := r.annotations.maxRuntime
	if !n.isSet {
		return
	}
	limit, err := period.ParseDuration(n.value)
	if err != nil {
		r.addInvalid(n.path(), n.value, "must be whole numbers of d, h, m and s in this order, longer than zero, such as 30m, 6h or 1d12h")
		return
	}
	request.MaxRuntime, request.MaxRuntimeSeconds = limit, int64(limit.Length().Seconds())
}
