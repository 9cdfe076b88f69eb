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

// gpuPods: a GPU belongs to a project. This and the next may only warn.
var gpuPods = door{
	name:    "gpu-pods",
	where:   ungoverned,
	mayWarn: true,
	rules:   rules(on(creating, "pods")),
	variables: []admissionv1.Variable{
		podResources,
		{Name: "annotations", Expression: `object.metadata.?annotations.orValue({})`},
		{Name: "byResource", Expression: `variables.resources.exists(r, r.?limits.orValue({}).exists(k, ` + gpuResource + `) || r.?requests.orValue({}).exists(k, ` + gpuResource + `))`},
		{Name: "byAnnotation", Expression: `variables.annotations.exists(k, k in ['sluice.dev/gpu', 'gpu-fraction', 'gpu-memory'])`},
	},
	checks: []check{{
		expression: `!variables.byResource && !variables.byAnnotation`,
		message:    `'the pod asks for a GPU (' + (variables.byResource ? 'resources of a container' : 'an annotation') + '), and namespace ' + request.namespace + ' is no project\'s; ask your department for a project, and work in its namespace'`,
	}},
}

// gpuClaims: the same, of who asks by a claim. A pod only names its claim, which
// cannot be looked into from there, so the claim itself is judged.
var gpuClaims = door{
	name:      "gpu-claims",
	where:     ungoverned,
	mayWarn:   true,
	rules:     rules(in(resourceGroup, creating, "resourceclaims", "resourceclaimtemplates")),
	variables: askedClasses,
	checks: []check{{
		expression: `variables.isBinder || size(variables.asked) == 0`,
		message:    `'spec.devices.requests: the claim asks for a GPU (DeviceClass ' + variables.asked.join(', ') + '), and namespace ' + request.namespace + ' is no project\'s; ask your department for a project, and work in its namespace'`,
	}},
}
