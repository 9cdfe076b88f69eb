// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// mergeStatusLists returns an applied status, with the elements of its lists merged into
// those of the present ones, by their type or name: each controller applies its own
// conditions and fields. The stub removes none.
func mergeStatusLists(before, applied any) any {
	switch applied := applied.(type) {
	case map[string]any:
		present, _ := before.(map[string]any)
		merged := make(map[string]any, len(applied))
		for key, value := range applied {
			merged[key] = mergeStatusLists(present[key], value)
		}
		return merged
	case []any:
		present, _ := before.([]any)
		merged := runtime.DeepCopyJSONValue(present).([]any) //nolint:forcetypeassert // a copy of the same
		for _, value := range applied {
			element, ok := value.(map[string]any)
			if !ok {
				return applied // a list of scalars is replaced
			}
			at := slices.IndexFunc(merged, func(other any) bool {
				known, _ := other.(map[string]any)
				return known["type"] == element["type"] && known["name"] == element["name"]
			})
			if at < 0 {
				merged = append(merged, element)
				continue
			}
			known, _ := merged[at].(map[string]any)
			merged[at] = applyMergePatch(known, element)
		}
		return merged
	default:
		return applied
	}
}
