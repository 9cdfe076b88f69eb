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

// Parse reads what the pods of a template ask for, by the [DefaultNames]. The
// error is [Malformed], with all that is wrong; the Request beside it is empty.
// Fields are named below the template itself: see [Malformed.Under].
//
// A pod that was admitted (it has the label sluice.dev/project) is read with what
// was granted: a GPU resource counts, and the annotations by which its author had
// asked for a share may stand beside it; and an engine's annotation may repeat
// the author's. In any other pod both are faults.
func Parse(template *corev1.PodTemplateSpec) (Request, error) {
	return defaultResourceUnits.Parse(template)
}

// ParsePod is [Parse] for a pod.
func ParsePod(pod *corev1.Pod) (Request, error) { return defaultResourceUnits.ParsePod(pod) }

// Parse reads a template by a table of one's own.
func (n ResourceUnits) Parse(template *corev1.PodTemplateSpec) (Request, error) {
	if template == nil {
		return Request{}, newRequiredError("template")
	}
	return n.parse(&template.ObjectMeta, &template.Spec)
}

// ParsePod reads a pod by a table of one's own.
func (n ResourceUnits) ParsePod(pod *corev1.Pod) (Request, error) {
	if pod == nil {
		return Request{}, newRequiredError("pod")
	}
	return n.parse(&pod.ObjectMeta, &pod.Spec)
}

// parser is one pod that is being read.
type parser struct {
	errorCollector
	units ResourceUnits
	spec  *corev1.PodSpec
	// admitted is whether the pod has been through the webhook. Then a GPU resource
	// may stand beside the annotations by which its author asked for a share: it is
	// what was granted for them, and what counts. To pretend it gains nothing, since
	// what the resource gives is counted in full.
	admitted    bool
	annotations requestAnnotations
	// gpuTally are the GPU resources, classes the DRA ones, others the rest.
	gpuTally, deviceClassTally resourceTally
	otherResources             []string
}

func (n ResourceUnits) parse(meta *metav1.ObjectMeta, spec *corev1.PodSpec) (Request, error) {
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
	return request, nil
}

// parseOwner is the kind of the controller that the object names.
func parseOwner(meta *metav1.ObjectMeta) Owner {
	controller := metav1.GetControllerOfNoCopy(meta)
	if controller == nil {
		return Owner{}
	}
	version, _ := schema.ParseGroupVersion(controller.APIVersion) // a wrong one has no group
	return Owner{Group: version.Group, Kind: controller.Kind}
}

// parseClaims are the pod's DRA claims, as it names them.
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

// parseWorkloadType fills in the type that the author's label says.
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

// maxNodePools is how many pools a pod may name: as many as a project can have.
const maxNodePools = 10

// parseNodePools fills in the pools that the author would like. Spaces around a name
// are allowed, since people write "a, b".
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
			r.addInvalid(n.path(), n.value, "has a name that is empty; want names of node pools with commas between them, such as dgx-h100,dgx-a100")
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

// isNodePoolName reports whether text can be the name of a NodePool.
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

// parseMaxRuntime fills in the time limit that the author wants.
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
