// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// isExtendedResource tells whether a resource is an extended one, such as nvidia.com/gpu.
// Of these a container's request must equal its limit.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.")
}

// implyRequest notes that whoever wants something of an extended resource's limit wants
// the same of its request, so that others who want another request are in
// conflict.
func (b *planBuilder) implyRequest(n *node, key string, v any, m mode) {
	if n.field.ID() != "ResourceRequirements.limits" || !isExtendedResource(key) || v == nil && m == modeDefault {
		return
	}
	requests := b.field(n.parent, n.parent.typ.Field("requests"))
	entry := b.child(requests, key, entryNode, requests.field, requests.typ.Elem)
	if _, problem := typeMismatch(entry.typ, v); v == nil || problem == "" {
		b.addLeafValue(entry, m, v, true)
	}
}

// dependentFields are fields that lose their meaning when another changes: the API
// server fills them in anew.
var dependentFields = map[string][]string{
	"priorityClassName":  {"preemptionPolicy", "priority"},
	"serviceAccountName": {"serviceAccount"},
}

// coupledChange is what was changed together with something else.
type coupledChange struct {
	path         string // relative to the struct
	cause, entry string // the field of the same struct, and the entry in it
}

// updateCoupledFields moves what goes together with what changed from before to after, which it
// may write to. What the plan says of such a field itself is let be.
func updateCoupledFields(t *schema.Type, before, after map[string]any, n *node) []coupledChange {
	if schema.IsSameInstance(before, after) {
		return nil
	}
	switch t.Name {
	case "PodSpec":
		return dropDependentFields(t, before, after, n)
	case "ResourceRequirements":
		return syncRequestsWithLimits(before, after, n)
	}
	return nil
}

func dropDependentFields(t *schema.Type, before, after map[string]any, n *node) []coupledChange {
	var all []coupledChange
	for field, others := range dependentFields {
		if schema.Equal(before[field], after[field]) {
			continue
		}
		for _, other := range others {
			if _, ok := after[other]; ok && !hasFieldPolicy(n, t.Field(other)) {
				delete(after, other)
				all = append(all, coupledChange{"." + other, field, ""})
			}
		}
	}
	return all
}

// hasFieldPolicy tells whether a policy itself wants something of the field.
func hasFieldPolicy(n *node, f *schema.Field) bool {
	if n == nil {
		return false
	}
	kid := n.child(f.Name, fieldNode)
	return kid != nil && len(kid.overrides)+len(kid.defaults) > 0
}

func syncRequestsWithLimits(before, after map[string]any, n *node) []coupledChange {
	was, is := schema.AsMap(before["limits"]), schema.AsMap(after["limits"])
	if schema.IsSameInstance(was, is) {
		return nil
	}
	names := slices.Collect(maps.Keys(was))
	names = slices.AppendSeq(names, maps.Keys(is))
	slices.Sort(names)
	var all []coupledChange
	for _, name := range slices.Compact(names) {
		limit, limited := is[name]
		requests := schema.AsMap(after["requests"])
		request, requested := requests[name]
		switch {
		case !isExtendedResource(name) || schema.Equal(was[name], limit):
			continue
		case limited && (!requested || !schema.EqualQuantities(request, limit)):
			requests = cloneMap(requests)
			requests[name] = limit
		case !limited && requested && !hasRequestPolicy(n, name):
			requests = cloneMap(requests)
			delete(requests, name)
		default:
			continue
		}
		setOrDelete(after, "requests", requests)
		all = append(all, coupledChange{".requests" + formatStep(name, entryNode), "limits", name})
	}
	return all
}

// hasRequestPolicy tells whether a policy itself wants something of the request.
func hasRequestPolicy(n *node, name string) bool {
	if n == nil {
		return false
	}
	requests := n.child("requests", fieldNode)
	if requests == nil {
		return false
	}
	entry := requests.child(name, entryNode)
	return entry != nil && slices.ContainsFunc(slices.Concat(entry.overrides, entry.defaults), func(w leafValue) bool { return !w.implied })
}

// cloneMap copies a map, of which nil is an empty one.
func cloneMap(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

// setOrDelete sets a dict, and drops the field where nothing is left in it.
func setOrDelete(in map[string]any, name string, dict map[string]any) {
	if len(dict) == 0 {
		delete(in, name)
	} else {
		in[name] = dict
	}
}

// hasStandardTolerations tells whether the API server adds the standard tolerations
// to a field whenever a webhook has changed the pod.
func hasStandardTolerations(f *schema.Field) bool { return f.ID() == "PodSpec.tolerations" }

// keepStandardTolerations is the list that policies want, with the standard tolerations that
// stand in the pod and that the list does not replace: without them the API server
// would add them again, and the pod would never be as wanted. nil is no list.
func keepStandardTolerations(wanted, have any) any {
	list, given := schema.AsList(wanted), schema.AsList(have)
	var kept, others []any
	for _, toleration := range given {
		replaced := slices.ContainsFunc(list, func(t any) bool { return defaulted.SuppressesStandard(t, toleration) })
		if defaulted.IsStandardToleration(toleration) && !replaced {
			kept = append(kept, toleration)
		} else {
			others = append(others, toleration)
		}
	}
	switch {
	case len(kept) == 0:
		return wanted
	case (comparer{}).equalLists(tolerationsType, others, list, noLocation):
		return have // in the author's order
	}
	return slices.Concat(list, kept)
}

var tolerationsType = schema.Pod().Field("spec").Type.Field("tolerations").Type
