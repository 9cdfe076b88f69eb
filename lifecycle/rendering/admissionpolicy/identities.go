// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Identities are the users, by their names in Kubernetes, that may do what others
// may not. A name that ends in * stands for all that begin so.
type Identities struct {
	// Binders may bind pods to nodes: the schedulers.
	Binders []string
	// Controllers are believed when they say that they control a pod.
	Controllers []string
	// Queues hold back what is not its turn, and let it go: Kueue.
	Queues []string
	// Managers may change what Sluice manages: lifecycle.
	Managers []string
}

// builtInIdentities are those that every cluster has, and those of engines, in namespaces that
// no project can have.
var builtInIdentities = Identities{
	Binders:     []string{"system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"},
	Controllers: []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:*"},
	Queues:      []string{"system:serviceaccount:kueue-system:kueue-controller-manager"},
	Managers:    []string{lifecycleUser},
}

// merge is both taken together, sorted, each once.
func (i Identities) merge(more Identities) Identities {
	join := func(a, b []string) []string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return slices.Compact(all)
	}
	return Identities{
		Binders:     join(i.Binders, more.Binders),
		Controllers: join(i.Controllers, more.Controllers),
		Queues:      join(i.Queues, more.Queues),
		Managers:    join(i.Managers, more.Managers),
	}
}

// variables say of the request's user, in CEL, what the user may do. The names
// stand in the expressions themselves: to have them in a parameter object,
// lifecycle would need the right to read every object of that kind.
func (i Identities) variables() []admissionv1.Variable {
	return []admissionv1.Variable{
		{Name: "user", Expression: `request.userInfo.username`},
		{Name: "isBinder", Expression: isOneOf(i.Binders)},
		{Name: "isController", Expression: isOneOf(i.Controllers)},
		{Name: "isQueue", Expression: isOneOf(i.Queues)},
		{Name: "isManager", Expression: isOneOf(i.Managers)},
		{Name: "isNode", Expression: `'system:nodes' in request.userInfo.groups`},
	}
}

// isOneOf is CEL: whether the user is one of these names.
func isOneOf(names []string) string {
	var exact, beginnings []string
	for _, name := range names {
		if beginning, ok := strings.CutSuffix(name, "*"); ok {
			beginnings = append(beginnings, beginning)
		} else {
			exact = append(exact, name)
		}
	}
	return `request.userInfo.username in ` + celList(exact) +
		` || ` + celList(beginnings) + `.exists(b, request.userInfo.username.startsWith(b))`
}

// celList is a CEL list of strings. None can end its string and go on as CEL.
func celList(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.QuoteToASCII(value)
	}
	return `[` + strings.Join(quoted, ", ") + `]`
}

// What a role allows on some objects of a kind and not on others, which RBAC
// cannot say. It can say a word about whoever has a role, as a right on a resource
// that there is not, and the API server can be asked for it.

// restrictedToOwn is CEL: whether the user keeps to what is the user's own. A further role
// in the project that reaches others' takes that back.
const restrictedToOwn = `(` + workloadAuthorizer + `.check('own-only').allowed() && !` + workloadAuthorizer + `.check('others').allowed())`

const workloadAuthorizer = `authorizer.group('sluice.dev').resource('workloads').namespace(request.namespace)`

// ownWorkloads: an L2 researcher changes and deletes only what that person
// made, as the object itself says since it was made. Whoever does not have the
// role passes: garbage collection, controllers, the cluster's administrators.
var ownWorkloads = definition{
	name:  "others-workloads",
	scope: projectNamespaces,
	rules: append(workloadKindRules(opsUpdateDelete), coreRule(opsUpdateDelete, "pods")),
	variables: []admissionv1.Variable{
		{Name: "maker", Expression: `oldObject.metadata.?annotations[?` + createdBy + `].orValue('')`},
	},
	validations: []validation{{
		expression: `variables.isController || variables.isManager || variables.isNode || variables.maker == variables.user || !` + restrictedToOwn,
		message: `request.resource.resource + ' ' + oldObject.metadata.name + ' was made by ' + (variables.maker == '' ? 'nobody that is known' : variables.maker)` +
			` + ', and an L2 researcher changes and deletes only the own; ask its maker, or an L1 researcher or editor of the project'`,
	}},
}

// projectDeletions: a project is deleted by whoever administers its department, which
// the right to delete Projects does not tell. It is asked here, and not of the
// webhook, so that projects can be deleted while that is down.
var projectDeletions = definition{
	name:  "project-deletion",
	scope: allNamespaces,
	rules: rules(groupRule("sluice.dev", []admissionv1.OperationType{admissionv1.Delete}, "projects")),
	validations: []validation{{
		// What is collected has an owner that somebody wrote who was judged.
		expression: `variables.isManager || variables.user == 'system:serviceaccount:kube-system:generic-garbage-collector' ||` +
			` authorizer.group('sluice.dev').resource('departments').subresource('projects').name(oldObject.spec.department).check('administer').allowed()`,
		message: `'project ' + oldObject.metadata.name + ' belongs to department ' + oldObject.spec.department + ', and ' + variables.user` +
			` + ' does not administer that: ask one of its administrators'`,
	}},
}
