// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import "sluice.dev/policies/merge/value"

// piece is a stretch of a list and what became of it. Element by element they are
// the same or changed; the longer of the two says what was added or removed.
type piece struct{ before, after []any }

// alignAtMost bounds the table of lengths: beyond it elements are compared in
// order, which costs a longer patch and nothing else.
const alignAtMost = 1 << 14

// align finds the elements that stayed, so that one that was taken out of the
// middle does not change all behind it: the longest common subsequence, with what
// lies between as pieces.
func align(before, after []any) []piece {
	head := 0
	for head < len(before) && head < len(after) && same(before[head], after[head]) {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && same(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	pieces := []piece{{before[:head], after[:head]}}
	b, a := before[head:len(before)-tail], after[head:len(after)-tail]
	if len(b) > 0 && len(a) > 0 && len(b)*len(a) <= alignAtMost {
		return append(pieces, common(b, a)...)
	}
	return append(pieces, piece{b, a})
}

func same(a, b any) bool { return value.Same(a, b) || value.Equal(a, b) }

// common splits both lists at the elements that they have in common.
func common(before, after []any) []piece {
	// length[i][j] is that of the longest common subsequence of before[i:] and
	// after[j:].
	width := len(after) + 1
	length := make([]int, (len(before)+1)*width)
	equal := make([]bool, len(length))
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			at := i*width + j
			if equal[at] = same(before[i], after[j]); equal[at] {
				length[at] = length[at+width+1] + 1
			} else {
				length[at] = max(length[at+width], length[at+1])
			}
		}
	}
	var pieces []piece
	i, j, fromI, fromJ := 0, 0, 0, 0
	for i < len(before) && j < len(after) {
		switch at := i*width + j; {
		case equal[at]:
			pieces = append(pieces, piece{before[fromI:i], after[fromJ:j]}, piece{before[i : i+1], after[j : j+1]})
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case length[at+width] >= length[at+1]:
			i++
		default:
			j++
		}
	}
	return append(pieces, piece{before[fromI:], after[fromJ:]})
}
