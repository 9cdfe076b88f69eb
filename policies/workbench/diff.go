// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies/merge/schema"
)

// Diff returns the difference between an object as written and as it is afterwards, as lines of YAML; empty if they are equal.
func Diff(before, after map[string]any, afterName string) (string, error) {
	if schema.Equal(before, after) {
		return "", nil
	}
	var texts [2]string
	for i, object := range []map[string]any{before, after} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("encode the object: %w", err)
		}
		texts[i] = string(text)
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(texts[0]), B: difflib.SplitLines(texts[1]), FromFile: "as written", ToFile: afterName, Context: 3,
	})
}

// diffParts returns the difference of the parts that are expected of an object, with what it has there.
func diffParts(expected, object map[string]any) string {
	found, _ := partOf(expected, object).(map[string]any)
	wanted, err := yaml.Marshal(expected)
	if err != nil {
		return err.Error()
	}
	got, err := yaml.Marshal(found)
	if err != nil {
		return err.Error()
	}
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(wanted)), B: difflib.SplitLines(string(got)), FromFile: "expected", ToFile: "decided", Context: 3,
	})
	if err != nil {
		return err.Error()
	}
	return diff
}

// partOf returns of a value what the expected part has: the same keys of maps, and the elements of lists with the same names.
func partOf(expected, value any) any {
	switch expected := expected.(type) {
	case map[string]any:
		object, ok := value.(map[string]any)
		if !ok {
			return value
		}
		part := make(map[string]any, len(expected))
		for key, inner := range expected {
			if found, ok := object[key]; ok {
				part[key] = partOf(inner, found)
			} else if expectsNothing(inner) {
				part[key] = inner
			}
		}
		return part
	case []any:
		list, ok := value.([]any)
		names := namesOf(expected)
		if !ok || names == nil {
			return value
		}
		part := make([]any, 0, len(expected))
		rest := slices.Clone(list)
		for i, name := range names {
			at := slices.IndexFunc(rest, func(element any) bool { return schema.AsMap(element)["name"] == name })
			if at >= 0 {
				part = append(part, partOf(expected[i], rest[at]))
				rest = slices.Delete(rest, at, at+1)
			}
		}
		// A second element of an expected name is a difference.
		for _, element := range rest {
			if slices.Contains(names, schema.AsMap(element)["name"]) {
				part = append(part, element)
			}
		}
		return part
	}
	return value
}

// expectsNothing reports whether an expected value is null, or a map of such values: an absent one has it.
func expectsNothing(expected any) bool {
	object, ok := expected.(map[string]any)
	if !ok {
		return expected == nil
	}
	for _, inner := range object {
		if !expectsNothing(inner) {
			return false
		}
	}
	return true
}

// namesOf returns the names of a list's elements; nil if not all have one.
func namesOf(list []any) []any {
	if len(list) == 0 {
		return nil
	}
	names := make([]any, 0, len(list))
	for _, element := range list {
		name, ok := schema.AsMap(element)["name"].(string)
		if !ok {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
