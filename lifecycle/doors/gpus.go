// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// What tells that somebody asks for a GPU.

// resourceGroup is that of ResourceClaims.
const resourceGroup = resourcev1.GroupName

// nvidiaClasses are the DeviceClasses of NVIDIA's DRA driver that hold GPUs. The
// others of that driver (compute-domain-...) hold channels between nodes.
var nvidiaClasses = []string{"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"}

// gpuNames are the names by which GPUs are asked for, with further DeviceClasses.
func gpuNames(further []string) []admissionv1.Variable {
	classes := slices.Concat(nvidiaClasses, further)
	slices.Sort(classes)
	resources := []string{}
	for name := range maps.Keys(workload.DefaultNames()) {
		resources = append(resources, string(name))
	}
	slices.Sort(resources)
	return []admissionv1.Variable{
		{Name: "deviceClasses", Expression: list(slices.Compact(classes))},
		{Name: "gpuResources", Expression: list(resources)},
	}
}

const (
	// gpuResource is CEL: whether k is the name of a GPU, of a share or a slice of
	// one, of a DeviceClass as a resource, or of the currency in which they are
	// counted.
	gpuResource = `k in variables.gpuResources || k.startsWith('` + v1alpha1.ResourceNVIDIAMIGPrefix + `')` +
		` || variables.deviceClasses.exists(c, k == '` + resourcev1.ResourceDeviceClassPrefix + `' + c)` +
		` || k.startsWith('` + string(v1alpha1.ResourceGPUMilli) + `')`
)

// podResources are what a pod's containers and the pod as a whole ask for; none
// of an object that is no pod.
var podResources = admissionv1.Variable{
	Name:       "resources",
	Expression: `object.spec.?containers.orValue([]).map(c, c.?resources) + object.spec.?initContainers.orValue([]).map(c, c.?resources) + [object.spec.?resources]`,
}

// askedClasses are those listed DeviceClasses that a claim, a template of claims
// or a pod asks for. A claim's request holds its class directly, as it did until
// v1beta1, in exactly, or in each of its alternatives.
var askedClasses = []admissionv1.Variable{
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
var deviceClasses = door{
	name:  "device-classes",
	where: governed,
	rules: rules(
		on(creating, "pods"),
		in(resourceGroup, creating, "resourceclaims", "resourceclaimtemplates"),
	),
	variables: askedClasses,
	checks: []check{{
		expression: `variables.isBinder || size(variables.asked) == 0`,
		message:    `'DeviceClass ' + variables.asked.join(', ') + ': its GPUs would not be counted for the project; ask for them by the resource nvidia.com/gpu, or for a part of one by the annotation sluice.dev/gpu'`,
	}},
}
