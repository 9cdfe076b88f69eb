// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"sluice.dev/api/v1alpha1"
)

// What Kueue goes by in a project's namespace.

// usesKueue is whether Kueue serves one of the project's node pools.
var usesKueue = admissionv1.Variable{
	Name:       "queuedHere",
	Expression: `namespaceObject.metadata.?labels[?'` + v1alpha1.LabelQueued + `'].orValue('') == 'true'`,
}

// queueNames: a project has one queue, which Kueue itself fills in. What Kueue would
// count from something that has no pod templates of its own does not come in.
var queueNames = definition{
	name:      "queue-names",
	scope:     projectNamespaces,
	rules:     workloadKindRules(opsCreate),
	variables: append(metadataVariables(), usesKueue),
	validations: []validation{{
		expression: `!variables.queuedHere || variables.newLabels[?` + queueLabel + `].orValue('default') == 'default'`,
		message:    `'metadata.labels[` + v1alpha1.LabelKueueQueue + `]: queue ' + variables.newLabels[` + queueLabel + `] + ' is not that of the project, which is default; take the label out: Kueue fills it in'`,
	}, {
		expression: `!variables.queuedHere || !(request.resource.resource in ['appwrappers', 'trainjobs'])`,
		message:    `request.resource.resource + ': this version of Sluice cannot tell what Kueue would count of it, so that it is not for projects whose node pools Kueue serves; use a Job or a JobSet'`,
	}},
}

// kueueObjects: what is in the queue, and which queue there is, is Kueue's and
// lifecycle's to say. A workload may be stopped by its owner there, and started.
var kueueObjects = definition{
	name:  "queue-objects",
	scope: projectNamespaces,
	rules: rules(
		groupRule("kueue.x-k8s.io", opsWrite, "localqueues", "localqueues/status"),
		groupRule("kueue.x-k8s.io", opsCreateUpdate, "workloads", "workloads/status"),
	),
	variables: append(metadataVariables(), admissionv1.Variable{
		Name: "trusted", Expression: `variables.isQueue || variables.isManager || variables.isController`,
	}),
	validations: []validation{{
		// One that was there before the project may be given up, or handed over.
		expression: `variables.trusted || request.resource.resource != 'localqueues' ||` +
			` (request.operation != 'CREATE' && variables.oldLabels[?'app.kubernetes.io/managed-by'].orValue('') != 'sluice' &&` +
			` (request.operation == 'DELETE' || (request.?subResource.orValue('') == '' && dyn(object).spec == dyn(oldObject).spec)))`,
		message: `'localqueues: the queue of a project is rendered by Sluice, and there is no other; how much it may have is said in the Project, by an administrator of its department'`,
	}, {
		expression: `variables.trusted || request.resource.resource != 'workloads' || (request.operation == 'UPDATE' && request.?subResource.orValue('') == '')`,
		message:    `'workloads: Kueue makes them of Jobs and pods, and says itself how far they are; make the Job or the pod'`,
	}, {
		expression: `variables.trusted || request.resource.resource != 'workloads' || request.operation != 'UPDATE' || (` +
			sameMap(`dyn(oldObject).spec`, `dyn(object).spec`, `k != 'active'`) + ` && ` + sameLabels(isKueueKey) + ` && ` + sameAnnotations(isKueueKey) + `)`,
		message: `'workloads: of what Kueue made, only spec.active is for others to change'`,
	}},
}

const (
	// queueLabel is a CEL string.
	queueLabel = `'` + v1alpha1.LabelKueueQueue + `'`
	isKueueKey = `k.startsWith('kueue.x-k8s.io/')`
	// kueueGates is CEL: the gates by which Kueue holds back a pod.
	kueueGates = `.spec.?schedulingGates.orValue([]).filter(g, g.name.startsWith('kueue.x-k8s.io/'))`
)

// kueueGateValidations: a pod is held back until its turn comes, and counted as what it was
// when it was made. The last says of a group that one of its pods is not tried again.
var kueueGateValidations = []validation{{
	expression: `variables.isManager || variables.isQueue || oldObject` + kueueGates + `.all(g, object` + kueueGates + `.exists(n, n.name == g.name))`,
	message:    `'spec.schedulingGates: Kueue lets the pod go when its turn comes; leave its gate as it is'`,
}, {
	expression: `variables.isManager || variables.isQueue || (` + sameLabels(isKueueKey) + ` && ` +
		sameAnnotations(isKueueKey+` && k != 'kueue.x-k8s.io/retriable-in-group'`) + `)`,
	message: `'metadata: the labels and annotations of kueue.x-k8s.io/ are not changed after a pod was made; make the pod anew'`,
}}

// suspendValidation: what is in the queue starts when its turn comes.
var suspendValidation = validation{
	expression: `!variables.queuedHere || variables.isManager || variables.isQueue || variables.isController || !(` + queueLabel + ` in variables.oldLabels)` +
		` || !` + isSuspended("dyn(oldObject)") + ` || ` + isSuspended("dyn(object)"),
	message: `'spec.suspend: Kueue starts what is in its queue when its turn comes; what was stopped is started by spec.active of its Workload'`,
}

func isSuspended(object string) string {
	return object + `.?spec.?suspend.orValue(` + object + `.?spec.?runPolicy.?suspend.orValue(false))`
}

// templateValidation: Kueue counts what stands in the templates, and they were judged
// when the object was made. A Job's own is guarded everywhere.
var templateValidation = validation{
	expression: `!variables.queuedHere || variables.isManager || (` + strings.Join([]string{
		sameNamedTemplates("spec.replicatedJobs", "name", "template.spec.template"),
		sameKeyedTemplates("spec.pytorchReplicaSpecs"), sameKeyedTemplates("spec.tfReplicaSpecs"), sameKeyedTemplates("spec.xgbReplicaSpecs"),
		sameKeyedTemplates("spec.paddleReplicaSpecs"), sameKeyedTemplates("spec.jaxReplicaSpecs"), sameKeyedTemplates("spec.mpiReplicaSpecs"),
		sameTemplateAt("spec.headGroupSpec.template"), sameNamedTemplates("spec.workerGroupSpecs", "groupName", "template"),
		sameTemplateAt("spec.rayClusterSpec.headGroupSpec.template"), sameNamedTemplates("spec.rayClusterSpec.workerGroupSpecs", "groupName", "template"),
		sameTemplateAt("spec.submitterPodTemplate"),
		sameTemplateAt("spec.leaderWorkerTemplate.leaderTemplate"), sameTemplateAt("spec.leaderWorkerTemplate.workerTemplate"),
	}, ` && `) + `)`,
	message: `'spec: how many GPUs the pods of a queued workload ask for, and what Sluice wrote into their templates, is set when it is made, and not changed afterwards; make it anew'`,
}

// optionalPath is CEL for a path below an object, each of whose steps may be absent.
func optionalPath(object, path string) string {
	return object + `.?` + strings.ReplaceAll(path, ".", ".?")
}

func sameTemplateAt(path string) string {
	return sameTemplates(optionalPath("dyn(oldObject)", path)+`.orValue({})`, optionalPath("dyn(object)", path)+`.orValue({})`)
}

// sameNamedTemplates are in a list, each element of which has a name in a field.
func sameNamedTemplates(list, name, path string) string {
	return optionalPath("dyn(object)", list) + `.orValue([]).all(a, ` + optionalPath("dyn(oldObject)", list) + `.orValue([]).exists(b, a.?` + name + ` == b.?` + name + ` && ` +
		sameTemplates(optionalPath("b", path)+`.orValue({})`, optionalPath("a", path)+`.orValue({})`) + `))`
}

// sameKeyedTemplates are in a map.
func sameKeyedTemplates(path string) string {
	before, after := optionalPath("dyn(oldObject)", path)+`.orValue({})`, optionalPath("dyn(object)", path)+`.orValue({})`
	return after + `.all(a, a in ` + before + ` && ` + sameTemplates(before+`[a].?template.orValue({})`, after+`[a].?template.orValue({})`) + `)`
}

// sameTemplates compares what counts of two templates.
func sameTemplates(before, after string) string {
	return `(` + sameMap(before+`.?metadata.?labels.orValue({})`, after+`.?metadata.?labels.orValue({})`, isManagedLabel) +
		` && ` + sameMap(before+`.?metadata.?annotations.orValue({})`, after+`.?metadata.?annotations.orValue({})`, isManagedAnnotation) +
		` && ` + sameGPURequests(templateContainers(before), templateContainers(after)) + `)`
}
