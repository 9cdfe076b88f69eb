// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wildcard stands for all elements of a list or all entries of an object.
const wildcard = "*"

// MaxTemplates is the largest number of templates of an object that are read, more than any real
// object has.
const MaxTemplates = 64

// Template is one pod template of an object.
type Template struct {
	// Path is the template's field, such as spec.template. It is empty for a pod, which is
	// its own template.
	Path string
	// Body is the template's metadata and spec.
	Body map[string]any

	// aliases are the fields of an object that has the pod's fields in other places.
	aliases []fieldAlias
}

// fieldAlias is the field of an object that becomes a field of its pods.
type fieldAlias struct{ pod, object string }

// Field returns the object's field that becomes a field of the pod, such as
// spec.template.spec.containers[0].image for spec.containers[0].image.
func (t Template) Field(podField string) string {
	for _, alias := range t.aliases {
		rest, ok := strings.CutPrefix(podField, alias.pod)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return alias.object + rest
		}
	}
	if podField == "" || t.Path == "" {
		return t.Path + podField
	}
	return t.Path + "." + podField
}

// Templates returns the pod templates of an object, in a fixed order and at most MaxTemplates. It
// returns none for unknown kinds.
func Templates(kind schema.GroupKind, object map[string]any) []Template {
	var found []Template
	for _, path := range byKind[kind].Templates {
		found = collectTemplates(found, object, path, "")
	}
	return found[:min(len(found), MaxTemplates)]
}

func collectTemplates(found []Template, at any, path []string, fieldPath string) []Template {
	if len(found) >= MaxTemplates {
		return found
	}
	if len(path) == 0 {
		if body := asMap(at); body != nil {
			found = append(found, Template{Path: fieldPath, Body: body})
		}
		return found
	}
	if path[0] != wildcard {
		return collectTemplates(found, asMap(at)[path[0]], path[1:], childPath(fieldPath, path[0]))
	}
	for i, element := range asSlice(at) {
		if len(found) >= MaxTemplates {
			break
		}
		found = collectTemplates(found, element, path[1:], indexPath(fieldPath, i))
	}
	named := asMap(at)
	if len(named) == 0 {
		return found
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		found = collectTemplates(found, named[name], path[1:], indexPath(fieldPath, name))
	}
	return found
}

// childPath and indexPath return paths below a path.
func childPath(fieldPath, name string) string {
	if fieldPath == "" {
		return name
	}
	return fieldPath + "." + name
}

func indexPath(fieldPath string, at any) string { return fmt.Sprintf("%s[%v]", fieldPath, at) }

// asMap returns an object, or nil for other values.
func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// asSlice returns a list, or nil for other values.
func asSlice(v any) []any {
	l, _ := v.([]any)
	return l
}

// valueAt returns the value at a path, and false if it is absent.
func valueAt(object map[string]any, path []string) (any, bool) {
	var v any = object
	for _, key := range path {
		next, ok := asMap(v)[key]
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

// WithTemplates returns a copy of an object with other pod templates, by [Template.Path]. It
// shares all other data with the object, which is not changed. Paths without a template are
// ignored.
func WithTemplates(kind schema.GroupKind, object map[string]any, bodies map[string]map[string]any) map[string]any {
	var after any = object
	for _, path := range byKind[kind].Templates {
		after = replaceTemplates(after, path, "", bodies)
	}
	return asMap(after)
}

// replaceTemplates follows the same paths as collectTemplates.
func replaceTemplates(at any, path []string, fieldPath string, bodies map[string]map[string]any) any {
	if len(path) == 0 {
		if body, ok := bodies[fieldPath]; ok && asMap(at) != nil {
			return body
		}
		return at
	}
	if path[0] != wildcard {
		object := asMap(at)
		next, ok := object[path[0]]
		if !ok {
			return at
		}
		copied := maps.Clone(object)
		copied[path[0]] = replaceTemplates(next, path[1:], childPath(fieldPath, path[0]), bodies)
		return copied
	}
	if list := asSlice(at); list != nil {
		copied := slices.Clone(list)
		for i, element := range list {
			copied[i] = replaceTemplates(element, path[1:], indexPath(fieldPath, i), bodies)
		}
		return copied
	}
	if named := asMap(at); named != nil {
		copied := maps.Clone(named)
		for name, entry := range named {
			copied[name] = replaceTemplates(entry, path[1:], indexPath(fieldPath, name), bodies)
		}
		return copied
	}
	return at
}
