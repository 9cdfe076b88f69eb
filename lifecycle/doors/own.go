// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// What a role allows on some objects of a kind and not on others, which RBAC
// cannot say. It can say a word about whoever has a role, as a right on a resource
// that there is not, and the API server can be asked for it.

// ownOnly is CEL: whether the user keeps to what is the user's own. A further role
// in the project that reaches others' takes that back.
const ownOnly = `(` + mayWorkloads + `.check('own-only').allowed() && !` + mayWorkloads + `.check('others').allowed())`

const mayWorkloads = `authorizer.group('sluice.dev').resource('workloads').namespace(request.namespace)`

// othersWorkloads: an L2 researcher changes and deletes only what that person
// made, as the object itself says since it was made. Whoever does not have the
// role passes: garbage collection, controllers, the cluster's administrators.
var othersWorkloads = door{
	name:  "others-workloads",
	where: governed,
	rules: append(workloads(updatingDeleting), on(updatingDeleting, "pods")),
	variables: []admissionv1.Variable{
		{Name: "maker", Expression: `oldObject.metadata.?annotations[?` + createdBy + `].orValue('')`},
	},
	checks: []check{{
		expression: `variables.isController || variables.isManager || variables.isNode || variables.maker == variables.user || !` + ownOnly,
		message: `request.resource.resource + ' ' + oldObject.metadata.name + ' was made by ' + (variables.maker == '' ? 'nobody that is known' : variables.maker)` +
			` + ', and an L2 researcher changes and deletes only the own; ask its maker, or an L1 researcher or editor of the project'`,
	}},
}
