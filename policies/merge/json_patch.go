// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// Diff returns the operations of the RFC 6902 patch that turns before into after, in an order in
// which they apply; none if both are the same JSON. It takes a value as decoded from JSON and a
// changed copy of it, and changes neither. Equal values give equal bytes. Parts that both values
// share in memory are skipped, so after copy on write the cost depends on the size of the change.
//
// gomodules.xyz/jsonpatch cannot replace it, as TestLibraryCannotReplaceDiff shows. It reads
// integers as float64, so it misses or changes large ones, and it rewrites all list elements behind
// a removed one. It needs both documents as text: a label added to a pod of 30 kB takes it 6 ms
// instead of 8 µs.
func Diff(before, after any) []PatchOperation {
	var d differ
	d.values("", before, after)
	return d.operations
}

type differ struct{ operations []PatchOperation }

func (d *differ) add(op, path string, v any) {
	d.operations = append(d.operations, PatchOperation{op, path, v})
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

// isUnchanged is a cheap test that recognizes most equal values.
func isUnchanged(a, b any) bool {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		return ok && s == t
	}
	return schema.IsSameInstance(a, b)
}

func (d *differ) lists(path string, before, after []any) {
	at := 0 // the index in the list when the operation applies
	for _, h := range alignLists(before, after) {
		both := min(len(h.before), len(h.after))
		for i := range both {
			if isUnchanged(h.before[i], h.after[i]) {
				continue
			}
			d.values(path+"/"+strconv.Itoa(at+i), h.before[i], h.after[i])
		}
		for range h.before[both:] {
			d.add("remove", path+"/"+strconv.Itoa(at+both), nil)
		}
		for i, added := range h.after[both:] {
			d.add("add", path+"/"+strconv.Itoa(at+both+i), added)
		}
		at += len(h.after)
	}
}

// PatchOperation is one operation of a patch.
type PatchOperation struct {
	// Op is add, remove or replace.
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901).
	Path string `json:"path"`
	// Value is the value to add or to replace with; a removal has none.
	Value any `json:"value"`
}

// MarshalJSON omits the value of a removal only, since null is a value too.
func (o PatchOperation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]string{"op": o.Op, "path": o.Path})
	}
	type plain PatchOperation
	return json.Marshal(plain(o))
}

var keyEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// escapeKey returns a key as part of a JSON pointer.
func escapeKey(key string) string {
	if strings.ContainsAny(key, "~/") {
		return keyEscaper.Replace(key)
	}
	return key
}

// hunk is a range of a list before and after the change. Elements at the same index are
// equal or changed; the longer side has the added or removed ones.
type hunk struct{ before, after []any }

// maxAlignmentCells limits the table of lengths. Beyond it elements are compared in
// order, which only makes the patch longer.
const maxAlignmentCells = 1 << 14

// alignLists finds the elements that stayed, so that a removal from the middle does not
// change every element behind it. It splits both lists at their longest common
// subsequence.
func alignLists(before, after []any) []hunk {
	head := 0
	for head < len(before) && head < len(after) && isSame(before[head], after[head]) {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && isSame(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	hunks := []hunk{{before[:head], after[:head]}}
	b, a := before[head:len(before)-tail], after[head:len(after)-tail]
	if len(b) > 0 && len(a) > 0 && len(b)*len(a) <= maxAlignmentCells {
		return append(hunks, splitAtCommon(b, a)...)
	}
	return append(hunks, hunk{b, a})
}

func isSame(a, b any) bool { return schema.IsSameInstance(a, b) || schema.Equal(a, b) }

// splitAtCommon splits both lists at their common elements.
func splitAtCommon(before, after []any) []hunk {
	// length[i][j] is that of the longest common subsequence of before[i:] and
	// after[j:].
	width := len(after) + 1
	// length[i][j] is the length of the longest common subsequence of before[i:] and
	// after[j:].
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
	var hunks []hunk
	i, j, fromI, fromJ := 0, 0, 0, 0
	for i < len(before) && j < len(after) {
		switch at := i*width + j; {
		case equal[at]:
			hunks = append(hunks, hunk{before[fromI:i], after[fromJ:j]}, hunk{before[i : i+1], after[j : j+1]})
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case length[at+width] >= length[at+1]:
			i++
		default:
			j++
		}
	}
	return append(hunks, hunk{before[fromI:], after[fromJ:]})
}
