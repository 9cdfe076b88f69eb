// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
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
	var gone, added []string
	for key, b := range before {
		if a, ok := after[key]; !ok || !alike(b, a) {
			gone = append(gone, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			added = append(added, key)
		}
	}
	slices.Sort(gone)
	for _, key := range gone {
		at := path + "/" + escaped(key)
		if a, ok := after[key]; ok {
			d.values(at, before[key], a)
		} else {
			d.add("remove", at, nil)
		}
	}
	slices.Sort(added)
	for _, key := range added {
		d.add("add", path+"/"+escaped(key), after[key])
	}
}

// alike tells of most of what is the same, at once, that it is.
func alike(a, b any) bool {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		return ok && s == t
	}
	return value.Same(a, b)
}

func (d *differ) lists(path string, before, after []any) {
	at := 0 // the index in the list as it is when the operation's turn comes
	for _, piece := range align(before, after) {
		both := min(len(piece.before), len(piece.after))
		for i := range both {
			if alike(piece.before[i], piece.after[i]) {
				continue
			}
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
