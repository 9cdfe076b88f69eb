// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patch finds the RFC 6902 JSON patch between two values.
//
// Enters: what a value was and what it became, as JSON was decoded. Leaves: the
// operations, in an order in which they apply, the same for the same values. What
// both share in memory is not looked at, so that after copy on write the cost is
// that of the change.
//
// It never changes a value, and never applies a patch.
package jsonpatch

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// Diff returns the operations that make after of before, and none if both are
// the same JSON.
func Diff(before, after any) []Operation {
	var d differ
	d.values("", before, after)
	return d.operations
}

type differ struct{ operations []Operation }

func (d *differ) add(op, path string, v any) {
	d.operations = append(d.operations, Operation{op, path, v})
}

func (d *differ) values(path string, before, after any) {
	if schema.IsSameInstance(before, after) {
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
	if !schema.Equal(before, after) {
		d.add("replace", path, after)
	}
}

func (d *differ) maps(path string, before, after map[string]any) {
	var gone, added []string
	for key, b := range before {
		if a, ok := after[key]; !ok || !isUnchanged(b, a) {
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
		at := path + "/" + escapeKey(key)
		if a, ok := after[key]; ok {
			d.values(at, before[key], a)
		} else {
			d.add("remove", at, nil)
		}
	}
	slices.Sort(added)
	for _, key := range added {
		d.add("add", path+"/"+escapeKey(key), after[key])
	}
}

// isUnchanged tells of most of what is the same, at once, that it is.
func isUnchanged(a, b any) bool {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		return ok && s == t
	}
	return schema.IsSameInstance(a, b)
}

func (d *differ) lists(path string, before, after []any) {
	at := 0 // the index in the list as it is when the operation's turn comes
	for _, piece := range alignLists(before, after) {
		both := min(len(piece.before), len(piece.after))
		for i := range both {
			if isUnchanged(piece.before[i], piece.after[i]) {
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

// Operation is one step of a patch.
type Operation struct {
	// Op is add, remove or replace.
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901).
	Path string `json:"path"`
	// Value is what is added or put in place; a removal has none.
	Value any `json:"value"`
}

// MarshalJSON leaves out the value of a removal, and only of that: null is a value
// too.
func (o Operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]string{"op": o.Op, "path": o.Path})
	}
	type plain Operation
	return json.Marshal(plain(o))
}

var keyEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// escapeKey is a key within a JSON pointer.
func escapeKey(key string) string {
	if strings.ContainsAny(key, "~/") {
		return keyEscaper.Replace(key)
	}
	return key
}

// hunk is a stretch of a list and what became of it. Element by element they are
// the same or changed; the longer of the two says what was added or removed.
type hunk struct{ before, after []any }

// maxAlignmentCells bounds the table of lengths: beyond it elements are compared in
// order, which costs a longer patch and nothing else.
const maxAlignmentCells = 1 << 14

// alignLists finds the elements that stayed, so that one that was taken out of the
// middle does not change all behind it: the longest common subsequence, with what
// lies between as pieces.
func alignLists(before, after []any) []hunk {
	head := 0
	for head < len(before) && head < len(after) && isSame(before[head], after[head]) {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && isSame(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	pieces := []hunk{{before[:head], after[:head]}}
	b, a := before[head:len(before)-tail], after[head:len(after)-tail]
	if len(b) > 0 && len(a) > 0 && len(b)*len(a) <= maxAlignmentCells {
		return append(pieces, splitAtCommon(b, a)...)
	}
	return append(pieces, hunk{b, a})
}

func isSame(a, b any) bool { return schema.IsSameInstance(a, b) || schema.Equal(a, b) }

// splitAtCommon splits both lists at the elements that they have in common.
func splitAtCommon(before, after []any) []hunk {
	// length[i][j] is that of the longest common subsequence of before[i:] and
	// after[j:].
	width := len(after) + 1
	length := make([]int, (len(before)+1)*width)
	equal := make([]bool, len(length))
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			at := i*width + j
			if equal[at] = isSame(before[i], after[j]); equal[at] {
				length[at] = length[at+width+1] + 1
			} else {
				length[at] = max(length[at+width], length[at+1])
			}
		}
	}
	var pieces []hunk
	i, j, fromI, fromJ := 0, 0, 0, 0
	for i < len(before) && j < len(after) {
		switch at := i*width + j; {
		case equal[at]:
			pieces = append(pieces, hunk{before[fromI:i], after[fromJ:j]}, hunk{before[i : i+1], after[j : j+1]})
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case length[at+width] >= length[at+1]:
			i++
		default:
			j++
		}
	}
	return append(pieces, hunk{before[fromI:], after[fromJ:]})
}
