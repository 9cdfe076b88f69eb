// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

// Who may put a pod on a node.

// bindings: only schedulers bind. A Binding also overwrites a pod's labels and
// annotations, and passes neither the quota nor the pod's own checks.
var bindings = door{
	name:  "bindings",
	where: governed,
	rules: rules(on(creating, "pods/binding", "bindings")),
	checks: []check{{
		expression: `variables.isBinder`,
		message:    `'only a scheduler may bind a pod of a project to a node, and ' + variables.user + ' is none; leave it to the scheduler of the pod\'s node pool'`,
	}},
}

// nodeName: a pod that names its node passes by every scheduler. Nodes name
// themselves on their mirror pods.
var nodeName = door{
	name:  "node-name",
	where: governed,
	rules: rules(on(creating, "pods")),
	when:  []string{`object.spec.?nodeName.orValue('') != ''`},
	checks: []check{{
		expression: `variables.isBinder || variables.isNode`,
		message:    `'spec.nodeName: ' + object.spec.nodeName + ': a pod of a project does not choose its node; take it out, and name node pools with the annotation sluice.dev/node-pools'`,
	}},
}
