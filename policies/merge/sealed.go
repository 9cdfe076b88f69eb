// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/policies/merge/podschema"
)

// What no policy can write: who the object is, who owns it, and how it fares.
// Of the object only its spec is open to policies, and of its metadata these.
var openMetadata = map[string]bool{"labels": true, "annotations": true}

// sealed tells whether a field of n cannot be written by any policy.
func sealed(n *node, name string) bool {
	switch {
	case n.parent == nil:
		return name == "status" || n.typ.Field(name) != nil && name != "metadata" && name != "spec"
	case n.parent.parent == nil && n.step == "metadata":
		return n.typ.Field(name) != nil && !openMetadata[name]
	}
	return false
}

// known finds the field of a struct that a policy may write.
func (b *builder) known(n *node, name string) (*podschema.Field, bool) {
	if b.dollar(n, name) {
		return nil, false
	}
	if sealed(n, name) {
		b.intent(b.policy, strings.TrimPrefix(n.path()+"."+name, "."), "cannot be written by any policy")
		return nil, false
	}
	field := n.typ.Field(name)
	if field == nil {
		b.unknown(n.path(), n.typ, name)
	}
	return field, field != nil
}

func (b *builder) unknown(path string, t *podschema.Type, name string) {
	message := called(b.root.typ) + " has no such field"
	if like := alike(t, name); like != "" {
		message += "; is " + like + " meant?"
	}
	b.intent(b.policy, strings.TrimPrefix(path+"."+name, "."), "%s", message)
}

// alike is a field whose name differs in case only, and empty if there is none.
func alike(t *podschema.Type, name string) string {
	for _, known := range slices.Sorted(slices.Values(t.Fields())) {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// dollar refuses keys that are directives to other mergers: nothing of Kubernetes
// begins so, and it would be strange to find them written into the object.
func (b *builder) dollar(n *node, key string) bool {
	if strings.HasPrefix(key, "$") {
		b.intent(b.policy, strings.TrimPrefix(n.path()+"."+key, "."), "is a directive, of which there are none: use remove, append or null in overrides")
		return true
	}
	return false
}

// sortedKeys of a map, for messages.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
