// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

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

// builtIn are those that every cluster has, and those of engines, in namespaces that
// no project can have.
var builtIn = Identities{
	Binders:     []string{"system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"},
	Controllers: []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:*"},
	Queues:      []string{"system:serviceaccount:kueue-system:kueue-controller-manager"},
	Managers:    []string{lifecycleUser},
}

// with is both taken together, sorted, each once.
func (i Identities) with(more Identities) Identities {
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
	return `request.userInfo.username in ` + list(exact) +
		` || ` + list(beginnings) + `.exists(b, request.userInfo.username.startsWith(b))`
}

// list is a CEL list of strings. None can end its string and go on as CEL.
func list(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.QuoteToASCII(value)
	}
	return `[` + strings.Join(quoted, ", ") + `]`
}
