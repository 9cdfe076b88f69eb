// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"sluice.dev/api/v1alpha1"
)

// What Kueue goes by in a project's namespace.

// queuedHere is whether Kueue serves one of the project's node pools.
var queuedHere = admissionv1.Variable{
	Name:       "queuedHere",
	Expression: `namespaceObject.metadata.?labels[?'` + v1alpha1.LabelQueued + `'].orValue('') == 'true'`,
}

// queueNames: a project has one queue, which Kueue itself fills in. What Kueue would
// count from something that has no pod templates of its own does not come in.
var queueNames = door{
	name:      "queue-names",
	where:     governed,
	rules:     workloads(creating),
	variables: append(metadata(), queuedHere),
	checks: []check{{
		expression: `!variables.queuedHere || variables.newLabels[?` + queueLabel + `].orValue('default') == 'default'`,
		message:    `'metadata.labels[` + v1alpha1.LabelKueueQueue + `]: queue ' + variables.newLabels[` + queueLabel + `] + ' is not that of the project, which is default; take the label out: Kueue fills it in'`,
	}, {
		expression: `!variables.queuedHere || !(request.resource.resource in ['appwrappers', 'trainjobs'])`,
		message:    `request.resource.resource + ': this version of Sluice cannot tell what Kueue would count of it, so that it is not for projects whose node pools Kueue serves; use a Job or a JobSet'`,
	}},
}

// queueObjects: what is in the queue, and which queue there is, is Kueue's and
// lifecycle's to say. A workload may be stopped by its owner there, and started.
var queueObjects = door{
	name:  "queue-objects",
	where: governed,
	rules: rules(
		in("kueue.x-k8s.io", writing, "localqueues", "localqueues/status"),
		in("kueue.x-k8s.io", creatingUpdating, "workloads", "workloads/status"),
	),
	variables: append(metadata(), admissionv1.Variable{
		Name: "trusted", Expression: `variables.isQueue || variables.isManager || variables.isController`,
	}),
	checks: []check{{
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
			sameMap(`dyn(oldObject).spec`, `dyn(object).spec`, `k != 'active'`) + ` && ` + sameLabels(kueueKey) + ` && ` + sameAnnotations(kueueKey) + `)`,
		message: `'workloads: of what Kueue made, only spec.active is for others to change'`,
	}},
}

const (
	// queueLabel is a CEL string.
	queueLabel = `'` + v1alpha1.LabelKueueQueue + `'`
	kueueKey   = `k.startsWith('kueue.x-k8s.io/')`
	// kueueGates is CEL: the gates by which Kueue holds back a pod.
	kueueGates = `.spec.?schedulingGates.orValue([]).filter(g, g.name.startsWith('kueue.x-k8s.io/'))`
)

// heldByKueue: a pod is held back until its turn comes, and counted as what it was
// when it was made. The last says of a group that one of its pods is not tried again.
var heldByKueue = []check{{
	expression: `variables.isManager || variables.isQueue || oldObject` + kueueGates + `.all(g, object` + kueueGates + `.exists(n, n.name == g.name))`,
	message:    `'spec.schedulingGates: Kueue lets the pod go when its turn comes; leave its gate as it is'`,
}, {
	expression: `variables.isManager || variables.isQueue || (` + sameLabels(kueueKey) + ` && ` +
		sameAnnotations(kueueKey+` && k != 'kueue.x-k8s.io/retriable-in-group'`) + `)`,
	message: `'metadata: the labels and annotations of kueue.x-k8s.io/ are not changed after a pod was made; make the pod anew'`,
}}

// startedByKueue: what is in the queue starts when its turn comes.
var startedByKueue = check{
	expression: `!variables.queuedHere || variables.isManager || variables.isQueue || variables.isController || !(` + queueLabel + ` in variables.oldLabels)` +
		` || !` + suspended("dyn(oldObject)") + ` || ` + suspended("dyn(object)"),
	message: `'spec.suspend: Kueue starts what is in its queue when its turn comes; what was stopped is started by spec.active of its Workload'`,
}

func suspended(object string) string {
	return object + `.?spec.?suspend.orValue(` + object + `.?spec.?runPolicy.?suspend.orValue(false))`
}

// countedTemplates: Kueue counts what stands in the templates, and they were judged
// when the object was made. A Job's own is guarded everywhere.
var countedTemplates = check{
	expression: `!variables.queuedHere || variables.isManager || (` + strings.Join([]string{
		namedTemplates("spec.replicatedJobs", "name", "template.spec.template"),
		keyedTemplates("spec.pytorchReplicaSpecs"), keyedTemplates("spec.tfReplicaSpecs"), keyedTemplates("spec.xgbReplicaSpecs"),
		keyedTemplates("spec.paddleReplicaSpecs"), keyedTemplates("spec.jaxReplicaSpecs"), keyedTemplates("spec.mpiReplicaSpecs"),
		oneTemplate("spec.headGroupSpec.template"), namedTemplates("spec.workerGroupSpecs", "groupName", "template"),
		oneTemplate("spec.rayClusterSpec.headGroupSpec.template"), namedTemplates("spec.rayClusterSpec.workerGroupSpecs", "groupName", "template"),
		oneTemplate("spec.submitterPodTemplate"),
		oneTemplate("spec.leaderWorkerTemplate.leaderTemplate"), oneTemplate("spec.leaderWorkerTemplate.workerTemplate"),
	}, ` && `) + `)`,
	message: `'spec: how many GPUs the pods of a queued workload ask for, and what Sluice wrote into their templates, is set when it is made, and not changed afterwards; make it anew'`,
}

// optional is CEL for a path below an object, each of whose steps may be absent.
func optional(object, path string) string {
	return object + `.?` + strings.ReplaceAll(path, ".", ".?")
}

func oneTemplate(path string) string {
	return sameTemplates(optional("dyn(oldObject)", path)+`.orValue({})`, optional("dyn(object)", path)+`.orValue({})`)
}

// namedTemplates are in a list, each element of which has a name in a field.
func namedTemplates(list, name, path string) string {
	return optional("dyn(object)", list) + `.orValue([]).all(a, ` + optional("dyn(oldObject)", list) + `.orValue([]).exists(b, a.?` + name + ` == b.?` + name + ` && ` +
		sameTemplates(optional("b", path)+`.orValue({})`, optional("a", path)+`.orValue({})`) + `))`
}

// keyedTemplates are in a map.
func keyedTemplates(path string) string {
	before, after := optional("dyn(oldObject)", path)+`.orValue({})`, optional("dyn(object)", path)+`.orValue({})`
	return after + `.all(a, a in ` + before + ` && ` + sameTemplates(before+`[a].?template.orValue({})`, after+`[a].?template.orValue({})`) + `)`
}

// sameTemplates compares what counts of two templates.
func sameTemplates(before, after string) string {
	return `(` + sameMap(before+`.?metadata.?labels.orValue({})`, after+`.?metadata.?labels.orValue({})`, managedLabel) +
		` && ` + sameMap(before+`.?metadata.?annotations.orValue({})`, after+`.?metadata.?annotations.orValue({})`, managedAnnotation) +
		` && ` + sameGPUs(templateContainers(before), templateContainers(after)) + `)`
}
