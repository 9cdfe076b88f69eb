// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// standardTolerations tells whether the API server adds the standard tolerations
// to a field whenever a webhook has changed the pod.
func standardTolerations(f *podschema.Field) bool { return f.ID() == "PodSpec.tolerations" }

// keepStandard is the list that policies want, with the standard tolerations that
// stand in the pod and that the list does not replace: without them the API server
// would add them again, and the pod would never be as wanted. nil is no list.
func keepStandard(wanted, have any) any {
	list, given := value.List(wanted), value.List(have)
	var kept, others []any
	for _, toleration := range given {
		replaced := slices.ContainsFunc(list, func(t any) bool { return filled.KeepsOut(t, toleration) })
		if filled.StandardToleration(toleration) && !replaced {
			kept = append(kept, toleration)
		} else {
			others = append(others, toleration)
		}
	}
	switch {
	case len(kept) == 0:
		return wanted
	case (comparison{}).lists(tolerationList, others, list, nowhere):
		return have // in the author's order
	}
	return slices.Concat(list, kept)
}

var tolerationList = podschema.Pod().Field("spec").Type.Field("tolerations").Type
