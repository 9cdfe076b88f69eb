// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WithTemplates is a copy of an object of that kind in which other pod templates
// stand in the places of some, by [Template.Place]. It shares all else with the
// object, which is not changed; a place where the object has no template is passed
// over.
func WithTemplates(kind schema.GroupKind, object map[string]any, bodies map[string]map[string]any) map[string]any {
	var after any = object
	for _, path := range byKind[kind].Templates {
		after = rewrite(after, path, "", bodies)
	}
	return entries(after)
}

// rewrite goes the same way as descend.
func rewrite(at any, path []string, place string, bodies map[string]map[string]any) any {
	if len(path) == 0 {
		if body, ok := bodies[place]; ok && entries(at) != nil {
			return body
		}
		return at
	}
	if path[0] != every {
		object := entries(at)
		next, ok := object[path[0]]
		if !ok {
			return at
		}
		with := maps.Clone(object)
		with[path[0]] = rewrite(next, path[1:], key(place, path[0]), bodies)
		return with
	}
	if list := elements(at); list != nil {
		with := slices.Clone(list)
		for i, element := range list {
			with[i] = rewrite(element, path[1:], index(place, i), bodies)
		}
		return with
	}
	if named := entries(at); named != nil {
		with := maps.Clone(named)
		for name, entry := range named {
			with[name] = rewrite(entry, path[1:], index(place, name), bodies)
		}
		return with
	}
	return at
}
