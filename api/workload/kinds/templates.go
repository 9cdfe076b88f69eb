// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// every stands for all elements of a list, or all entries of an object.
const every = "*"

// MaxTemplates is how many templates of one object are looked at: more than any
// real object has.
const MaxTemplates = 64

// Template is one pod template of an object.
type Template struct {
	// Place is where it stands: spec.template; empty for a pod, which is its own.
	Place string
	// Body is its metadata and spec.
	Body map[string]any
}

// Templates are the pod templates of an object of that kind, in a fixed order
// and at most 64; none where the kind is not known or has none.
func Templates(kind schema.GroupKind, object map[string]any) []Template {
	var found []Template
	for _, path := range byKind[kind].Templates {
		found = descend(found, object, path, "")
	}
	return found[:min(len(found), MaxTemplates)]
}

func descend(found []Template, at any, path []string, place string) []Template {
	if len(found) >= MaxTemplates {
		return found
	}
	if len(path) == 0 {
		if body := entries(at); body != nil {
			found = append(found, Template{place, body})
		}
		return found
	}
	if path[0] != every {
		return descend(found, entries(at)[path[0]], path[1:], key(place, path[0]))
	}
	for i, element := range elements(at) {
		found = descend(found, element, path[1:], index(place, i))
	}
	named := entries(at)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		found = descend(found, named[name], path[1:], index(place, name))
	}
	return found
}

// key and index are the places below a place.
func key(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}

func index(place string, at any) string { return fmt.Sprintf("%s[%v]", place, at) }

// entries is the object, and nil for all else.
func entries(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// elements is the list, and nil for all else.
func elements(v any) []any {
	l, _ := v.([]any)
	return l
}

// at is what stands at a path, and nil where nothing does.
func at(object map[string]any, path []string) (any, bool) {
	var v any = object
	for _, key := range path {
		next, ok := entries(v)[key]
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}
