// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"sluice.dev/policies/kaigroup"
)

// What KAI-Scheduler writes in projects' namespaces, and trusts.

// kaiIdentities are the parts of KAI-Scheduler, and of kai-resource-management, which
// decides for it where groups are: by their namespaces, which are no project's.
var kaiIdentities = []string{
	"system:serviceaccount:kai-scheduler:*",
	"system:serviceaccount:kai-resource-management:*",
}

// kaiVariable tells who writes for KAI; controllers are trusted too, since they take away
// what is no longer owned.
func kaiVariable() admissionv1.Variable {
	return admissionv1.Variable{
		Name:       "isKAI",
		Expression: `variables.isManager || variables.isBinder || variables.isController || ` + isOneOf(kaiIdentities),
	}
}

// kaiQueues: how much a project may have is said in its queue, which is rendered.
var kaiQueues = definition{
	name:  "kai-queues",
	scope: allNamespaces,
	rules: rules(
		groupRule("scheduling.run.ai", opsWrite, "queues", "queues/status"),
		groupRule("kai.resources", opsWrite, "departments", "departments/status", "projects", "projects/status"),
	),
	matchConditions: []string{isManagedBySluice("object") + ` || ` + isManagedBySluice("oldObject")},
	variables:       []admissionv1.Variable{kaiVariable()},
	validations: []validation{{
		expression: `variables.isKAI`,
		message:    `request.resource.resource + ' ' + (oldObject == null ? object : oldObject).metadata.?name.orValue('') + ': what Sluice renders is neither written nor deleted by others; how much somebody may have is said in the Project or the Department'`,
	}},
}

// podGroups: a group's queue is whose GPUs its pods have, so nobody makes one, or
// changes it, but KAI itself and lifecycle.
var podGroups = definition{
	name:      "pod-groups",
	scope:     projectNamespaces,
	rules:     rules(groupRule("scheduling.run.ai", opsWrite, "podgroups", "podgroups/status")),
	variables: []admissionv1.Variable{kaiVariable()},
	validations: []validation{{
		expression: `variables.isKAI`,
		message:    `'PodGroups are written by KAI-Scheduler alone, and ' + variables.user + ' is none of it; it groups the pods of a workload by itself'`,
	}},
}

// podGroupMembership: in which group a pod is, and what KAI reads of it, stays as it was
// judged.
var podGroupMembership = definition{
	name:      "pods-groups",
	scope:     projectNamespaces,
	rules:     rules(coreRule(opsUpdate, "pods", "pods/status")),
	variables: append(metadataVariables(), kaiVariable()),
	validations: []validation{{
		expression: `variables.isKAI || (` + sameAnnotations(`k in ['`+kaigroup.AnnotationGroup+`', 'kai.scheduler/skip-podgrouper', 'runai/shared-gpu-configmap', 'received-resource-type', 'mps']`) + `)`,
		message:    `'metadata.annotations: in which group of pods, and on which share of a GPU a pod is, KAI-Scheduler alone says'`,
	}, {
		expression: `variables.isKAI || (` + sameLabels(`k in ['kai.scheduler/preemptibility', 'kai.scheduler/subgroup-name', 'priorityClassName'] || k.startsWith('runai-gpu-group')`) + `)`,
		message:    `'metadata.labels: what KAI-Scheduler reads of a pod is set when it is made, and not changed afterwards; make the pod anew'`,
	}},
}

// sharedGPUConfigMaps: a container with a share of a GPU is told by a ConfigMap which
// GPU that is.
var sharedGPUConfigMaps = definition{
	name:            "device-variables",
	scope:           projectNamespaces,
	rules:           rules(coreRule(opsWrite, "configmaps")),
	matchConditions: []string{`(oldObject == null ? object : oldObject).metadata.?name.orValue('').matches('^.+-shared-gpu-i?[0-9]+(-evar)?$')`},
	variables:       []admissionv1.Variable{kaiVariable()},
	validations: []validation{{
		expression: `variables.isKAI`,
		message:    `'metadata.name: ' + (oldObject == null ? object : oldObject).metadata.name + ': by ConfigMaps of such names KAI-Scheduler says which GPU a container has; choose another name'`,
	}},
}

// krmNamespaces: where kai-resource-management has a namespace, it makes the
// queues and chooses among them. Two that do would undo each other's work.
var krmNamespaces = definition{
	name:            "other-managers",
	scope:           projectNamespaces,
	rules:           rules(coreRule(opsCreate, "pods")),
	matchConditions: []string{`'kai.scheduler/preemptibility' in object.metadata.?labels.orValue({})`},
	validations: []validation{{
		expression: `!('` + kaigroup.LabelKRMProject + `' in namespaceObject.metadata.?labels.orValue({})) || 'kai.scheduler/node-pools' in object.metadata.?annotations.orValue({})`,
		message: `'namespace ' + request.namespace + ' is kai-resource-management\'s (label ` + kaigroup.LabelKRMProject + `) and a project of Sluice, which makes its own queues;` +
			` take the label off, or have an administrator set the parameter krm of policy schedulers.kai to adopt'`,
	}},
}
