// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// What Sluice itself may do to a node, which RBAC cannot bound to fields.

// nodeChanges: lifecycle puts one taint on a node and takes it off, and writes its
// currency into the node's capacity. Should its token be lost, nobody drains a node
// with it, or makes one look like another.
var nodeChanges = door{
	name:  "node-changes",
	where: everywhere,
	rules: rules(on(updating, "nodes", "nodes/status")),
	when:  []string{`request.userInfo.username == ` + strconv.Quote(lifecycleUser)},
	checks: []check{{
		expression: same(`.metadata.?labels`, `.metadata.?annotations`, `.metadata.?finalizers`, `.metadata.?ownerReferences`,
			`.spec.?unschedulable`, `.spec.?providerID`, `.spec.?podCIDRs`) +
			` && ` + taintsBut("object") + ` == ` + taintsBut("oldObject"),
		message: `'spec: lifecycle changes of a node the taint ` + v1alpha1.TaintRepartitioning + ` and nothing else'`,
	}, {
		expression: same(`.status.?conditions`, `.status.?addresses`, `.status.?nodeInfo`) +
			` && ` + resourcesBut("capacity") + ` && ` + resourcesBut("allocatable"),
		message: `'status: lifecycle writes the resources ` + string(v1alpha1.ResourceGPUMilli) + ` of a node and nothing else'`,
	}},
}

// lifecycleUser is lifecycle itself. Other managers are people's own, and may have
// more to do.
const lifecycleUser = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// same is CEL: whether these fields are as they were.
func same(paths ...string) string {
	parts := make([]string, len(paths))
	for i, path := range paths {
		parts[i] = `object` + path + ` == oldObject` + path
	}
	return strings.Join(parts, ` && `)
}

// taintsBut is CEL: an object's taints but for Sluice's own.
func taintsBut(object string) string {
	return object + `.spec.?taints.orValue([]).filter(t, t.key != '` + v1alpha1.TaintRepartitioning + `')`
}

// resourcesBut is CEL: whether the amounts of all other resources are as they were.
func resourcesBut(field string) string {
	half := func(a, b string) string {
		return a + `.status.?` + field + `.orValue({}).all(k, k.startsWith('` + string(v1alpha1.ResourceGPUMilli) + `') || ` +
			a + `.status.` + field + `[k] == ` + b + `.status.?` + field + `[?k].orValue(''))`
	}
	return half("object", "oldObject") + ` && ` + half("oldObject", "object")
}
