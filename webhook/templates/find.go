// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sluice.dev/policies/merge/value"
)

// template is one pod template of an object.
type template struct {
	// place is where it stands: spec.template.
	place string
	// body is its metadata and spec.
	body map[string]any
}

// maxTemplates is how many templates of one object are judged: more than any
// real object has.
const maxTemplates = 64

// templatesOf are the templates of an object at these paths, in their order.
func templatesOf(object map[string]any, paths [][]string) []template {
	var found []template
	for _, path := range paths {
		found = descend(found, object, path, "")
	}
	return found[:min(len(found), maxTemplates)]
}

func descend(found []template, at any, path []string, place string) []template {
	if len(path) == 0 {
		if body := value.Map(at); body != nil {
			found = append(found, template{place, body})
		}
		return found
	}
	if path[0] != every {
		next := value.Map(at)[path[0]]
		if place != "" {
			place += "."
		}
		return descend(found, next, path[1:], place+path[0])
	}
	for i, element := range value.List(at) {
		found = descend(found, element, path[1:], fmt.Sprintf("%s[%d]", place, i))
	}
	entries := value.Map(at)
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		found = descend(found, entries[key], path[1:], fmt.Sprintf("%s[%s]", place, key))
	}
	return found
}

// pod is the JSON of the pod that a template makes in a namespace, as far as it
// is known before there is one.
func (t template) pod(namespace string) ([]byte, error) {
	metadata := maps.Clone(value.Map(t.body["metadata"]))
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata["namespace"] = namespace
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": metadata, "spec": t.body["spec"],
	})
}

// changed are those of the templates that an older object did not have, or had
// otherwise.
func changed(now, before []template) []template {
	old := make(map[string]map[string]any, len(before))
	for _, t := range before {
		old[t.place] = t.body
	}
	return slices.DeleteFunc(now, func(t template) bool {
		body, ok := old[t.place]
		return ok && value.Equal(body, t.body)
	})
}
