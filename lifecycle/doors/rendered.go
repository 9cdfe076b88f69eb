// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import "sluice.dev/api/v1alpha1"

// rendered: the quota is what counts, so nobody writes it, its status or its
// absence but lifecycle and Kubernetes itself. Where a namespace is still to be
// adopted, nobody prepares one either.
var rendered = door{
	name:  "rendered-objects",
	where: everywhere,
	rules: rules(
		on(writing, "resourcequotas", "resourcequotas/status", "limitranges"),
		in("networking.k8s.io", writing, "networkpolicies"),
		in("kueue.x-k8s.io", writing, "clusterqueues", "clusterqueues/status", "cohorts", "cohorts/status", "localqueues", "localqueues/status", "resourceflavors"),
	),
	when: []string{ofSluice("object") + ` || ` + ofSluice("oldObject")},
	checks: []check{{
		// The API server counts in the status, as itself; so does Kueue in its own.
		expression: `variables.isManager || variables.isController || variables.user == 'system:apiserver' || (variables.isQueue && request.resource.group == 'kueue.x-k8s.io')`,
		message: `(request.operation == 'CREATE' ? 'metadata.labels[` + v1alpha1.LabelManagedBy + `]: ' : '') + request.resource.resource + ' ' + (oldObject == null ? object : oldObject).metadata.?name.orValue('')` +
			` + ': what Sluice renders is neither written nor deleted by others; how much a project may have is said in the Project, by an administrator of its department'`,
	}},
}

// ofSluice is CEL: whether an object is there, and is marked as lifecycle's.
func ofSluice(object string) string {
	return `(` + object + ` != null && ` + object + `.metadata.?labels[?'` + v1alpha1.LabelManagedBy + `'].orValue('') == '` + v1alpha1.ManagedBySluice + `')`
}
