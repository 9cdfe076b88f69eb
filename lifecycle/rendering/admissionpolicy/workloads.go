// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"sluice.dev/api/v1alpha1"
)

// What is guarded on the objects that make pods.

// workloadMetadata: who made a workload is told of its end, and what was stopped
// stays so; neither is for its author to say. Controllers pass, since they hand
// on what stands on the owner: a Deployment's annotations to its ReplicaSets.
var workloadMetadata = definition{
	name:  "workload-keys",
	scope: projectNamespaces,
	rules: workloadKindRules(opsCreateUpdate),
	variables: append(metadataVariables(),
		admissionv1.Variable{Name: "trusted", Expression: `variables.isManager || variables.isController`},
		templateCreators("oldCreators", "oldObject"),
		templateCreators("newCreators", "object"),
	),
	validations: []validation{{
		expression: `variables.trusted || oldObject != null || variables.newAnnotations[?` + createdBy + `].orValue(variables.user) == variables.user`,
		message:    `'metadata.annotations[sluice.dev/created-by] must name the user who creates the object, ' + variables.user + '; remove it'`,
	}, {
		expression: `variables.trusted || oldObject == null || (` + sameAnnotations(`k == `+createdBy) + `)`,
		message:    `'metadata.annotations[sluice.dev/created-by] says who made this, and is neither changed nor taken off afterwards; leave it as it was'`,
	}, {
		expression: `variables.trusted || variables.newCreators.all(c, c == '' || c == variables.user || c in variables.oldCreators)`,
		message:    `'the template\'s annotation sluice.dev/created-by would name another as the creator than ' + variables.user + '; take it out'`,
	}, {
		expression: `variables.trusted || (` + sameAnnotations(`k == '`+v1alpha1.AnnotationStoppedUntil+`'`) + `)`,
		message:    `'metadata.annotations[sluice.dev/stopped-until] is written by Sluice alone'`,
	}},
}

// createdBy is a CEL string.
const createdBy = `'` + v1alpha1.AnnotationCreatedBy + `'`

// templateCreators are whom an object's templates name as their creator: that of
// the pods, and that of a CronJob's Jobs with that of their pods.
func templateCreators(name, object string) admissionv1.Variable {
	creator := func(template string) string {
		return object + `.?spec` + template + `.?metadata.?annotations[?` + createdBy + `].orValue('')`
	}
	return admissionv1.Variable{Name: name, Expression: object + ` == null ? [] : [` +
		creator(`.?template`) + `, ` + creator(`.?jobTemplate`) + `, ` + creator(`.?jobTemplate.?spec.?template`) + `]`}
}

// queuedWorkloads: an engine reads the queue and counts the GPUs before there is
// a pod, so what was judged then stays. Only a suspended Job's template can be
// edited at all; of a Deployment's each version is judged by its pods.
var queuedWorkloads = definition{
	name:  "queued-workloads",
	scope: projectNamespaces,
	rules: append(queuedKindRules(opsUpdate), groupRule("leaderworkerset.x-k8s.io", opsUpdate, "leaderworkersets")),
	variables: append(metadataVariables(), usesKueue,
		admissionv1.Variable{Name: "oldTemplate", Expression: `oldObject.?spec.?template.orValue({})`},
		admissionv1.Variable{Name: "newTemplate", Expression: `object.?spec.?template.orValue({})`},
		admissionv1.Variable{Name: "oldContainers", Expression: templateContainers("variables.oldTemplate")},
		admissionv1.Variable{Name: "newContainers", Expression: templateContainers("variables.newTemplate")},
	),
	validations: []validation{{
		expression: `variables.isManager || (` + sameLabels(isManagedLabel) + `)`,
		message:    `'metadata.labels: the keys of sluice.dev/ and the queue names are set when a workload is made, and not changed afterwards; make it anew'`,
	}, {
		expression: `variables.isManager || (` + sameTemplateField(`.?metadata.?labels`, isManagedLabel) + `)`,
		message:    `'spec.template.metadata.labels: the keys of sluice.dev/ and the queue names are set when a workload is made, and not changed afterwards; make it anew'`,
	}, {
		expression: `variables.isManager || (` + sameTemplateField(`.?metadata.?annotations`, isManagedAnnotation) + `)`,
		message:    `'spec.template.metadata.annotations: the keys of sluice.dev/ and the requests for a GPU are set when a workload is made, and not changed afterwards; make it anew'`,
	}, {
		expression: `variables.isManager || ` + sameGPURequests("variables.oldContainers", "variables.newContainers"),
		message:    `'spec.template.spec.containers: how many GPUs a workload asks for is set when it is made, and not changed afterwards; make it anew'`,
	}, templateValidation, suspendValidation},
}

// sameGPURequests compares how many GPUs containers ask for, each with that of its name.
func sameGPURequests(before, after string) string {
	return after + `.all(n, ` + before + `.exists(o, o.name == n.name` +
		` && ` + sameMap(`o.?resources.?limits.orValue({})`, `n.?resources.?limits.orValue({})`, isGPUResource) +
		` && ` + sameMap(`o.?resources.?requests.orValue({})`, `n.?resources.?requests.orValue({})`, isGPUResource) + `))`
}

func sameTemplateField(path, condition string) string {
	return sameMap(`variables.oldTemplate`+path+`.orValue({})`, `variables.newTemplate`+path+`.orValue({})`, condition)
}

func templateContainers(template string) string {
	return `(` + template + `.?spec.?containers.orValue([]) + ` + template + `.?spec.?initContainers.orValue([]))`
}
