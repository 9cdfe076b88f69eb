// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// What is asked for outside of projects.

// priorityClasses: Sluice's classes come with a project's quota.
var priorityClasses = door{
	name:  "priority-classes",
	where: ungoverned,
	rules: rules(on(creating, "pods")),
	when:  []string{`object.spec.?priorityClassName.orValue('').startsWith('sluice-')`},
	checks: []check{{
		expression: `false`,
		message:    `'spec.priorityClassName: ' + object.spec.priorityClassName + ' is for pods of projects; choose another, or work in a project\'s namespace'`,
	}},
}

// gpuPods: a GPU belongs to a project. The one door that may only warn.
var gpuPods = door{
	name:  "gpu-pods",
	where: ungoverned,
	rules: rules(on(creating, "pods")),
	variables: []admissionv1.Variable{
		{Name: "containers", Expression: `object.spec.containers.map(c, c.?resources) + object.spec.?initContainers.orValue([]).map(c, c.?resources) + [object.spec.?resources]`},
		{Name: "annotations", Expression: `object.metadata.?annotations.orValue({})`},
		{Name: "byResource", Expression: `variables.containers.exists(r, r.?limits.orValue({}).exists(k, ` + gpuResource + `) || r.?requests.orValue({}).exists(k, ` + gpuResource + `))`},
		{Name: "byAnnotation", Expression: `variables.annotations.exists(k, k in ['sluice.dev/gpu', 'gpu-fraction', 'gpu-memory'])`},
	},
	checks: []check{{
		expression: `!variables.byResource && !variables.byAnnotation`,
		message:    `'the pod asks for a GPU (' + (variables.byResource ? 'resources of a container' : 'an annotation') + '), and namespace ' + request.namespace + ' is no project\'s; ask your department for a project, and work in its namespace'`,
	}},
}

// gpuResource is CEL: whether k is the name of a GPU, a share of one, or the
// currency in which they are counted.
const gpuResource = `k == 'nvidia.com/gpu' || k == 'nvidia.com/gpu.shared' || k.startsWith('nvidia.com/mig-') || k.startsWith('sluice.dev/gpu-milli')`

func rules(list ...admissionv1.NamedRuleWithOperations) []admissionv1.NamedRuleWithOperations {
	return list
}
