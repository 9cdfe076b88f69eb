// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// extended tells whether a resource is an extended one, such as nvidia.com/gpu.
// Of these a container's request must equal its limit.
func extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.")
}

// imply notes that whoever wants something of an extended resource's limit wants
// the same of its request, so that others who want another request are in
// conflict.
func (b *builder) imply(n *node, key string, v any, m mode) {
	if n.field.ID() != "ResourceRequirements.limits" || !extended(key) || v == nil && m == asDefault {
		return
	}
	requests := b.field(n.parent, n.parent.typ.Field("requests"))
	entry := b.child(requests, key, isEntry, requests.field, requests.typ.Elem)
	if _, problem := misfit(entry.typ, v); v == nil || problem == "" {
		b.wanted(entry, m, v, true)
	}
}

// alongside are fields that lose their meaning when another changes: the API
// server fills them in anew.
var alongside = map[string][]string{
	"priorityClassName":  {"preemptionPolicy", "priority"},
	"serviceAccountName": {"serviceAccount"},
}

// moved is what was changed together with something else.
type moved struct {
	path         string // relative to the struct
	cause, entry string // the field of the same struct, and the entry in it
}

// couple moves what goes together with what changed from before to after, which it
// may write to. What the plan says of such a field itself is let be.
func couple(t *podschema.Type, before, after map[string]any, n *node) []moved {
	if value.Same(before, after) {
		return nil
	}
	switch t.Name {
	case "PodSpec":
		return dropAlongside(t, before, after, n)
	case "ResourceRequirements":
		return followLimits(before, after, n)
	}
	return nil
}

func dropAlongside(t *podschema.Type, before, after map[string]any, n *node) []moved {
	var all []moved
	for field, others := range alongside {
		if value.Equal(before[field], after[field]) {
			continue
		}
		for _, other := range others {
			if _, ok := after[other]; ok && !speaksOf(n, t.Field(other)) {
				delete(after, other)
				all = append(all, moved{"." + other, field, ""})
			}
		}
	}
	return all
}

// speaksOf tells whether a policy itself wants something of the field.
func speaksOf(n *node, f *podschema.Field) bool {
	if n == nil {
		return false
	}
	kid := n.kid(f.Name, isField)
	return kid != nil && len(kid.over)+len(kid.under) > 0
}

func followLimits(before, after map[string]any, n *node) []moved {
	was, is := value.Map(before["limits"]), value.Map(after["limits"])
	if value.Same(was, is) {
		return nil
	}
	names := slices.Collect(maps.Keys(was))
	names = slices.AppendSeq(names, maps.Keys(is))
	slices.Sort(names)
	var all []moved
	for _, name := range slices.Compact(names) {
		limit, limited := is[name]
		requests := value.Map(after["requests"])
		request, requested := requests[name]
		switch {
		case !extended(name) || value.Equal(was[name], limit):
			continue
		case limited && (!requested || !value.SameQuantity(request, limit)):
			requests = clone(requests)
			requests[name] = limit
		case !limited && requested && !asksFor(n, name):
			requests = clone(requests)
			delete(requests, name)
		default:
			continue
		}
		setOrDrop(after, "requests", requests)
		all = append(all, moved{".requests" + segment(name, isEntry), "limits", name})
	}
	return all
}

// asksFor tells whether a policy itself wants something of the request.
func asksFor(n *node, name string) bool {
	if n == nil {
		return false
	}
	requests := n.kid("requests", isField)
	if requests == nil {
		return false
	}
	entry := requests.kid(name, isEntry)
	return entry != nil && slices.ContainsFunc(slices.Concat(entry.over, entry.under), func(w want) bool { return !w.implied })
}

// clone copies a map, of which nil is an empty one.
func clone(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

// setOrDrop sets a dict, and drops the field where nothing is left in it.
func setOrDrop(in map[string]any, name string, dict map[string]any) {
	if len(dict) == 0 {
		delete(in, name)
	} else {
		in[name] = dict
	}
}
