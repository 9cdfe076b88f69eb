// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sluice.dev/api/v1alpha1"
)

// departmentChange is a field in which two departments differ.
type departmentChange struct {
	// Field is the path below spec, such as projects.validity.
	Field string `json:"field"`
	// Before and After are its values; empty if it is not set.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// compareDepartmentSpecs returns the fields in which two departments differ, in alphabetical order, without their names.
func compareDepartmentSpecs(before, after *v1alpha1.DepartmentSpec) ([]departmentChange, error) {
	var fields [2]map[string]string
	for i, spec := range []*v1alpha1.DepartmentSpec{before, after} {
		raw, err := json.Marshal(spec)
		if err != nil {
			return nil, fmt.Errorf("encode department: %w", err)
		}
		var tree map[string]any
		if err := json.Unmarshal(raw, &tree); err != nil {
			return nil, fmt.Errorf("decode department: %w", err)
		}
		delete(tree, "displayName")
		fields[i] = map[string]string{}
		flattenFields(fields[i], "", tree)
	}
	changes := []departmentChange{}
	all := maps.Clone(fields[0])
	maps.Copy(all, fields[1])
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if fields[0][field] != fields[1][field] {
			changes = append(changes, departmentChange{Field: field, Before: fields[0][field], After: fields[1][field]})
		}
	}
	return changes, nil
}

// flattenFields adds the values of a decoded object by their paths. The elements of a list have their names as keys; a list
// without names is one value.
func flattenFields(fields map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if path != "" {
				key = path + "." + key
			}
			flattenFields(fields, key, child)
		}
		return
	case []any:
		if elements, ok := namedElements(value); ok {
			for name, element := range elements {
				flattenFields(fields, fmt.Sprintf("%s[%s]", path, name), element)
			}
			return
		}
	case string:
		fields[path] = value
		return
	}
	text, _ := json.Marshal(value) // it was decoded from JSON
	fields[path] = string(text)
}

// namedElements returns the elements of a list by their names, if each has another name.
func namedElements(list []any) (map[string]any, bool) {
	elements := map[string]any{}
	for _, element := range list {
		object, _ := element.(map[string]any)
		name, _ := object["name"].(string)
		if name == "" {
			return nil, false
		}
		rest := maps.Clone(object)
		delete(rest, "name")
		if elements[name] = rest; len(rest) == 0 {
			return nil, false
		}
	}
	return elements, len(elements) == len(list)
}
