// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// What tells that somebody asks for a GPU.

// resourceClaimGroup is that of ResourceClaims.
const resourceClaimGroup = resourcev1.GroupName

// nvidiaDeviceClasses are the DeviceClasses of NVIDIA's DRA driver that hold GPUs. The
// others of that driver (compute-domain-...) hold channels between nodes.
var nvidiaDeviceClasses = []string{"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"}

// gpuNameVariables are the names by which GPUs are asked for, with further DeviceClasses.
func gpuNameVariables(further []string) []admissionv1.Variable {
	classes := slices.Concat(nvidiaDeviceClasses, further)
	slices.Sort(classes)
	resources := []string{}
	for name := range maps.Keys(workload.DefaultResourceUnits()) {
		resources = append(resources, string(name))
	}
	slices.Sort(resources)
	return []admissionv1.Variable{
		{Name: "deviceClasses", Expression: celList(slices.Compact(classes))},
		{Name: "gpuResources", Expression: celList(resources)},
	}
}

const (
	// isGPUResource is CEL: whether k is the name of a GPU, of a share or a slice of
	// one, of a DeviceClass as a resource, or of the currency in which they are
	// counted.
	isGPUResource = `k in variables.gpuResources || k.startsWith('` + v1alpha1.ResourceNVIDIAMIGPrefix + `')` +
		` || variables.deviceClasses.exists(c, k == '` + resourcev1.ResourceDeviceClassPrefix + `' + c)` +
		` || k.startsWith('` + string(v1alpha1.ResourceGPUMilli) + `')`
)

// podResources are what a pod's containers and the pod as a whole ask for; none
// of an object that is no pod.
var podResources = admissionv1.Variable{
	Name:       "resources",
	Expression: `object.spec.?containers.orValue([]).map(c, c.?resources) + object.spec.?initContainers.orValue([]).map(c, c.?resources) + [object.spec.?resources]`,
}

// requestedClasses are those listed DeviceClasses that a claim, a template of claims
// or a pod asks for. A claim's request holds its class directly, as it did until
// v1beta1, in exactly, or in each of its alternatives.
var requestedClasses = []admissionv1.Variable{
	podResources,
	{Name: "requests", Expression: `object.spec.?devices.?requests.orValue(object.spec.?spec.?devices.?requests.orValue([]))`},
	{Name: "asked", Expression: `variables.deviceClasses.filter(c,` +
		` variables.requests.exists(r, r.?deviceClassName.orValue('') == c || r.?exactly.?deviceClassName.orValue('') == c || r.?firstAvailable.orValue([]).exists(s, s.?deviceClassName.orValue('') == c))` +
		` || variables.resources.exists(r, ('` + resourcev1.ResourceDeviceClassPrefix + `' + c) in r.?limits.orValue({}) || ('` + resourcev1.ResourceDeviceClassPrefix + `' + c) in r.?requests.orValue({})))`},
}

// deviceClasses: in a project, a device that comes by its class is charged to
// nobody, so GPUs are asked for in the ways that are counted. The scheduler writes
// claims itself, for pods whose nvidia.com/gpu a DRA driver serves; those were
// counted. A template from before the namespace was a project's yields no claim.
var deviceClasses = definition{
	name:  "device-classes",
	scope: projectNamespaces,
	rules: rules(
		coreRule(opsCreate, "pods"),
		groupRule(resourceClaimGroup, opsCreate, "resourceclaims", "resourceclaimtemplates"),
	),
	variables: requestedClasses,
	validations: []validation{{
		expression: `variables.isBinder || size(variables.asked) == 0`,
		message:    `'DeviceClass ' + variables.asked.join(', ') + ': its GPUs would not be counted for the project; ask for them by the resource nvidia.com/gpu, or for a part of one by the annotation sluice.dev/gpu'`,
	}},
}

// What is asked for outside of projects.

// priorityClasses: Sluice's classes come with a project's quota.
var priorityClasses = definition{
	name:            "priority-classes",
	scope:           otherNamespaces,
	rules:           rules(coreRule(opsCreate, "pods")),
	matchConditions: []string{`object.spec.?priorityClassName.orValue('').startsWith('sluice-')`},
	validations: []validation{{
		expression: `false`,
		message:    `'spec.priorityClassName: ' + object.spec.priorityClassName + ' is for pods of projects; choose another, or work in a project\'s namespace'`,
	}},
}

// gpuPods: a GPU belongs to a project. This and the next may only warn.
var gpuPods = definition{
	name:    "gpu-pods",
	scope:   otherNamespaces,
	mayWarn: true,
	rules:   rules(coreRule(opsCreate, "pods")),
	variables: []admissionv1.Variable{
		podResources,
		{Name: "annotations", Expression: `object.metadata.?annotations.orValue({})`},
		{Name: "byResource", Expression: `variables.resources.exists(r, r.?limits.orValue({}).exists(k, ` + isGPUResource + `) || r.?requests.orValue({}).exists(k, ` + isGPUResource + `))`},
		{Name: "byAnnotation", Expression: `variables.annotations.exists(k, k in ['sluice.dev/gpu', 'gpu-fraction', 'gpu-memory'])`},
	},
	validations: []validation{{
		expression: `!variables.byResource && !variables.byAnnotation`,
		message:    `'the pod asks for a GPU (' + (variables.byResource ? 'resources of a container' : 'an annotation') + '), and namespace ' + request.namespace + ' is no project\'s; ask your department for a project, and work in its namespace'`,
	}},
}

// gpuClaims: the same, of who asks by a claim. A pod only names its claim, which
// cannot be looked into from there, so the claim itself is judged.
var gpuClaims = definition{
	name:      "gpu-claims",
	scope:     otherNamespaces,
	mayWarn:   true,
	rules:     rules(groupRule(resourceClaimGroup, opsCreate, "resourceclaims", "resourceclaimtemplates")),
	variables: requestedClasses,
	validations: []validation{{
		expression: `variables.isBinder || size(variables.asked) == 0`,
		message:    `'spec.devices.requests: the claim asks for a GPU (DeviceClass ' + variables.asked.join(', ') + '), and namespace ' + request.namespace + ' is no project\'s; ask your department for a project, and work in its namespace'`,
	}},
}

// What Sluice itself may do to a node, which RBAC cannot bound to fields.

// nodeChanges: lifecycle puts one taint on a node and takes it off, and writes its
// currency into the node's capacity. Should its token be lost, nobody drains a node
// with it, or makes one look like another.
var nodeChanges = definition{
	name:            "node-changes",
	scope:           allNamespaces,
	rules:           rules(coreRule(opsUpdate, "nodes", "nodes/status")),
	matchConditions: []string{`request.userInfo.username == ` + strconv.Quote(lifecycleUser)},
	validations: []validation{{
		expression: sameFields(`.metadata.?labels`, `.metadata.?annotations`, `.metadata.?finalizers`, `.metadata.?ownerReferences`,
			`.spec.?unschedulable`, `.spec.?providerID`, `.spec.?podCIDRs`) +
			` && ` + otherTaints("object") + ` == ` + otherTaints("oldObject"),
		message: `'spec: lifecycle changes of a node the taint ` + v1alpha1.TaintRepartitioning + ` and nothing else'`,
	}, {
		expression: sameFields(`.status.?conditions`, `.status.?addresses`, `.status.?nodeInfo`) +
			` && ` + sameOtherResources("capacity") + ` && ` + sameOtherResources("allocatable"),
		message: `'status: lifecycle writes the resources ` + string(v1alpha1.ResourceGPUMilli) + ` of a node and nothing else'`,
	}},
}

// lifecycleUser is lifecycle itself. Other managers are people's own, and may have
// more to do.
const lifecycleUser = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// sameFields is CEL: whether these fields are as they were.
func sameFields(paths ...string) string {
	parts := make([]string, len(paths))
	for i, path := range paths {
		parts[i] = `object` + path + ` == oldObject` + path
	}
	return strings.Join(parts, ` && `)
}

// otherTaints is CEL: an object's taints but for Sluice's own.
func otherTaints(object string) string {
	return object + `.spec.?taints.orValue([]).filter(t, t.key != '` + v1alpha1.TaintRepartitioning + `')`
}

// sameOtherResources is CEL: whether the amounts of all other resources are as they were.
func sameOtherResources(field string) string {
	half := func(a, b string) string {
		return a + `.status.?` + field + `.orValue({}).all(k, k.startsWith('` + string(v1alpha1.ResourceGPUMilli) + `') || ` +
			a + `.status.` + field + `[k] == ` + b + `.status.?` + field + `[?k].orValue(''))`
	}
	return half("object", "oldObject") + ` && ` + half("oldObject", "object")
}
