// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"sluice.dev/api/v1alpha1"
)

// What tells whose a pod or a namespace is.

// sameMap is CEL that compares those keys of two maps, given as CEL too, for
// which a condition on k holds.
func sameMap(before, after, condition string) string {
	return after + `.all(k, !(` + condition + `) || (k in ` + before + ` && ` + before + `[k] == ` + after + `[k]))` +
		` && ` + before + `.all(k, !(` + condition + `) || k in ` + after + `)`
}

// sameLabels and sameAnnotations compare those keys of [metadata].
func sameLabels(condition string) string {
	return sameMap("variables.oldLabels", "variables.newLabels", condition)
}

func sameAnnotations(condition string) string {
	return sameMap("variables.oldAnnotations", "variables.newAnnotations", condition)
}

// metadataVariables are the labels and annotations before and after, empty where absent;
// before is empty at a creation.
func metadataVariables() []admissionv1.Variable {
	return []admissionv1.Variable{
		{Name: "oldLabels", Expression: `oldObject == null ? {} : oldObject.metadata.?labels.orValue({})`},
		{Name: "newLabels", Expression: `object.metadata.?labels.orValue({})`},
		{Name: "oldAnnotations", Expression: `oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})`},
		{Name: "newAnnotations", Expression: `object.metadata.?annotations.orValue({})`},
	}
}

// managedMetadata: what was judged at a pod's admission stays as it was. The status
// is included: whoever may write it may write metadata with it.
var managedMetadata = definition{
	name:      "managed-keys",
	scope:     projectNamespaces,
	rules:     rules(coreRule(opsUpdate, "pods", "pods/status", "pods/resize", "pods/ephemeralcontainers")),
	variables: metadataVariables(),
	validations: append([]validation{{
		expression: `variables.isManager || (` + sameLabels(isManagedLabel) + `)`,
		message:    `'metadata.labels: the keys of sluice.dev/ and the queue names are set when a pod is made, and not changed afterwards; make the pod anew'`,
	}, {
		expression: `variables.isManager || (` + sameAnnotations(isManagedAnnotation) + `)`,
		message:    `'metadata.annotations: the keys of sluice.dev/ and the requests for a GPU are set when a pod is made, and not changed afterwards; make the pod anew'`,
	}, {
		expression: `variables.isManager || variables.isQueue || oldObject.spec.?tolerations.orValue([]) == object.spec.?tolerations.orValue([])`,
		message:    `'spec.tolerations: a pod of a project is not given further ones after its admission; make the pod anew'`,
	}}, kueueGateValidations...),
}

const (
	isManagedLabel = `k.startsWith('sluice.dev/') || k in ['kai.scheduler/queue', 'kai.scheduler/node-pool', 'kueue.x-k8s.io/queue-name', 'runai/queue', 'queue', 'applicationId']`
	// A pod may be told that it is preempted or ends soon by the managers only.
	isManagedAnnotation = `k.startsWith('sluice.dev/') || k in ['gpu-fraction', 'gpu-memory', 'gpu-fraction-num-devices', 'gpu-fraction-container-name', 'gpu-memory.limit', 'gpu-fraction.limit']`
)

// controllerReferences: a pod that claims a controller is judged as that
// controller's, so the claim is believed from controllers only. Kueue does not hold
// back what is a part of something that it let go.
var controllerReferences = definition{
	name:  "controller-references",
	scope: projectNamespaces,
	rules: append(queuedKindRules(opsCreateUpdate), coreRule(opsCreateUpdate, "pods")),
	variables: []admissionv1.Variable{
		usesKueue,
		{Name: "oldReferences", Expression: `oldObject == null ? [] : oldObject.metadata.?ownerReferences.orValue([])`},
		{Name: "newReferences", Expression: `object.metadata.?ownerReferences.orValue([])`},
	},
	validations: []validation{{
		expression: `variables.isController || variables.isManager || variables.isNode || (request.resource.resource != 'pods' && !variables.queuedHere) || variables.newReferences.all(r, !r.?controller.orValue(false) || r in variables.oldReferences)`,
		message:    `'metadata.ownerReferences: only a controller may say that it controls ' + (request.resource.resource == 'pods' ? 'a pod' : 'a queued workload') + ', and ' + variables.user + ' is none that is known here'`,
	}},
}

// namespaceLabels: whose a namespace is, is lifecycle's to say, and to which level
// of Pod Security a project's is held.
var namespaceLabels = definition{
	name:      "namespace-labels",
	scope:     allNamespaces,
	rules:     rules(coreRule(opsCreateUpdate, "namespaces", "namespaces/status", "namespaces/finalize")),
	variables: metadataVariables(),
	validations: []validation{{
		expression: `variables.isManager || (` + sameLabels(`k.startsWith('sluice.dev/')`) + `)`,
		message:    `'metadata.labels: the keys of sluice.dev/ are written by Sluice alone; a namespace becomes a project\'s by a Project'`,
	}, {
		expression: `variables.isManager || (` + sameAnnotations(`k == 'sluice.dev/created-for'`) + `)`,
		message:    `'metadata.annotations[sluice.dev/created-for] is written by Sluice alone'`,
	}, {
		expression: `variables.isManager || !('` + v1alpha1.LabelProject + `' in variables.oldLabels) || (` + sameLabels(`k.startsWith('`+v1alpha1.LabelPodSecurityEnforce+`')`) + `)`,
		message:    `'metadata.labels[` + v1alpha1.LabelPodSecurityEnforce + `]: to which level a project\'s namespace is held is said in spec.podSecurity of its Project or its Department'`,
	}},
}

// renderedObjects: the quota is what counts, so nobody writes it, its status or its
// absence but lifecycle and Kubernetes itself. Where a namespace is still to be
// adopted, nobody prepares one either.
var renderedObjects = definition{
	name:  "rendered-objects",
	scope: allNamespaces,
	rules: rules(
		coreRule(opsWrite, "resourcequotas", "resourcequotas/status", "limitranges"),
		groupRule("networking.k8s.io", opsWrite, "networkpolicies"),
		groupRule("kueue.x-k8s.io", opsWrite, "clusterqueues", "clusterqueues/status", "cohorts", "cohorts/status", "localqueues", "localqueues/status", "resourceflavors"),
	),
	matchConditions: []string{isManagedBySluice("object") + ` || ` + isManagedBySluice("oldObject")},
	validations: []validation{{
		// The API server counts in the status, as itself; so does Kueue in its own.
		expression: `variables.isManager || variables.isController || variables.user == 'system:apiserver' || (variables.isQueue && request.resource.group == 'kueue.x-k8s.io')`,
		message: `(request.operation == 'CREATE' ? 'metadata.labels[` + v1alpha1.LabelManagedBy + `]: ' : '') + request.resource.resource + ' ' + (oldObject == null ? object : oldObject).metadata.?name.orValue('')` +
			` + ': what Sluice renders is neither written nor deleted by others; how much a project may have is said in the Project, by an administrator of its department'`,
	}},
}

// isManagedBySluice is CEL: whether an object is there, and is marked as lifecycle's.
func isManagedBySluice(object string) string {
	return `(` + object + ` != null && ` + object + `.metadata.?labels[?'` + v1alpha1.LabelManagedBy + `'].orValue('') == '` + v1alpha1.ManagedBySluice + `')`
}
