// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"maps"
	"slices"
	"strconv"

	"sluice.dev/policies/merge/value"
)

// Between returns the operations that make after of before, and none if both are
// the same JSON.
func Between(before, after any) []Operation {
	var d differ
	d.values("", before, after)
	return d.operations
}

type differ struct{ operations []Operation }

func (d *differ) add(op, path string, v any) {
	d.operations = append(d.operations, Operation{op, path, v})
}

func (d *differ) values(path string, before, after any) {
	if value.Same(before, after) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			d.maps(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok {
			d.lists(path, b, a)
			return
		}
	}
	if !value.Equal(before, after) {
		d.add("replace", path, after)
	}
}

func (d *differ) maps(path string, before, after map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		at := path + "/" + escaped(key)
		if a, ok := after[key]; ok {
			d.values(at, before[key], a)
		} else {
			d.add("remove", at, nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[key]; !ok {
			d.add("add", path+"/"+escaped(key), after[key])
		}
	}
}

func (d *differ) lists(path string, before, after []any) {
	at := 0 // the index in the list as it is when the operation's turn comes
	for _, piece := range align(before, after) {
		both := min(len(piece.before), len(piece.after))
		for i := range both {
			d.values(path+"/"+strconv.Itoa(at+i), piece.before[i], piece.after[i])
		}
		for range piece.before[both:] {
			d.add("remove", path+"/"+strconv.Itoa(at+both), nil)
		}
		for i, added := range piece.after[both:] {
			d.add("add", path+"/"+strconv.Itoa(at+both+i), added)
		}
		at += len(piece.after)
	}
}
