// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// isExtendedResource reports whether a resource is extended, such as nvidia.com/gpu. A
// container's request of it must equal its limit.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.")
}

// implyRequest sets the request of an extended resource to the same value as its limit,
// so that another request is a conflict.
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

// dependentFields become invalid when another field changes: the API server sets them
// again.
var dependentFields = map[string][]string{
	"priorityClassName":  {"preemptionPolicy", "priority"},
	"serviceAccountName": {"serviceAccount"},
}

// coupledChange is a change that follows from another.
type coupledChange struct {
	path         string // relative to the struct
	cause, entry string // the field of the same struct, and the entry in it
}

// updateCoupledFields updates the fields in after that depend on changes since before.
// Fields that the plan sets itself stay as they are.
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

// hasFieldPolicy reports whether a policy sets the field itself.
func hasFieldPolicy(n *node, f *schema.Field) bool {
	if n == nil {
		return false
	}
	child := n.child(f.Name, fieldNode)
	return child != nil && len(child.overrides)+len(child.defaults) > 0
}

func syncRequestsWithLimits(before, after map[string]any, n *node) []coupledChange {
	oldLimits, newLimits := schema.AsMap(before["limits"]), schema.AsMap(after["limits"])
	if schema.IsSameInstance(oldLimits, newLimits) {
		return nil
	}
	names := slices.Collect(maps.Keys(oldLimits))
	names = slices.AppendSeq(names, maps.Keys(newLimits))
	slices.Sort(names)
	var all []coupledChange
	for _, name := range slices.Compact(names) {
		limit, limited := newLimits[name]
		requests := schema.AsMap(after["requests"])
		request, requested := requests[name]
		switch {
		case !isExtendedResource(name) || schema.Equal(oldLimits[name], limit):
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

// hasRequestPolicy reports whether a policy sets the request itself.
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

// cloneMap copies a map; nil becomes an empty one.
func cloneMap(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

// setOrDelete sets a map, and removes the field if the map is empty.
func setOrDelete(in map[string]any, name string, entries map[string]any) {
	if len(entries) == 0 {
		delete(in, name)
	} else {
		in[name] = entries
	}
}

// hasStandardTolerations reports whether the API server adds the standard tolerations to
// a field after each webhook that changes the pod.
func hasStandardTolerations(f *schema.Field) bool { return f.ID() == "PodSpec.tolerations" }

// keepStandardTolerations returns the desired list with the pod's standard tolerations
// that it does not replace. Without them the API server would add them again, and the
// list would never be as desired. nil is an empty list.
func keepStandardTolerations(desired, current any) any {
	list, tolerations := schema.AsList(desired), schema.AsList(current)
	var kept, others []any
	for _, toleration := range tolerations {
		replaced := slices.ContainsFunc(list, func(t any) bool { return schema.SuppressesStandardToleration(t, toleration) })
		if schema.IsStandardToleration(toleration) && !replaced {
			kept = append(kept, toleration)
		} else {
			others = append(others, toleration)
		}
	}
	switch {
	case len(kept) == 0:
		return desired
	case (comparer{}).equalLists(tolerationsType, others, list, noLocation):
		return current // in the author's order
	}
	return slices.Concat(list, kept)
}

var tolerationsType = schema.Pod().Field("spec").Type.Field("tolerations").Type
