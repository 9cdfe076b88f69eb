// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// EditDistance returns the number of bytes to insert, delete, replace or swap with the next one, to get from one word to the other. Words
// whose lengths differ by more than limit are limit+1 apart, without a comparison.
func EditDistance(a, b string, limit int) int {
	if difference := len(a) - len(b); difference > limit || difference < -limit {
		return limit + 1
	}
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(replace, last[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}

// NearestWord returns the known word with the smallest [EditDistance], the first of several, or "" if all are more than limit apart.
func NearestWord(word string, known []string, limit int) string {
	nearest := ""
	for _, candidate := range known {
		if edits := EditDistance(word, candidate, limit); edits <= limit {
			nearest, limit = candidate, edits-1
		}
	}
	return nearest
}
