// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"slices"

	"sluice.dev/policies/engine/dependency"
)

// Distinguishing returns the sorted names of the policies that match the subject of one input and whose result may
// differ for the other one. The result of every other policy is the same for both: what it reads of them is equal.
// Policies in DryRun count, and those that determine the workload's type.
func (s *Set) Distinguishing(one, other Input) []string {
	a, b := one.bind(), other.bind()
	var names []string
	for _, kind := range []requestKind{admissionRequest, typeRequest} {
		for _, m := range s.match(one.Subject, kind) {
			if m.unusable == nil && m.distinguishes(kind, a, b) {
				names = append(names, m.source.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// distinguishes reports whether the rules for a kind of request may have different results.
func (m *member) distinguishes(kind requestKind, a, b *boundInput) bool {
	if !m.module.traced[kind] {
		return true
	}
	return slices.ContainsFunc(m.module.reads[kind], func(read dependency.Segment) bool {
		return !bytes.Equal(read.AppendKey(nil, a.valueAt(read.Path)), read.AppendKey(nil, b.valueAt(read.Path)))
	})
}
