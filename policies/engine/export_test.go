// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// MatchingPolicies returns the sorted names of the policies that are evaluated for a
// subject.
func (s *Set) MatchingPolicies(subject Subject) []string {
	var names []string
	for _, m := range s.match(subject, admissionRequest) {
		names = append(names, m.source.Name)
	}
	return names
}

// MatchesPattern reports whether a name matches a pattern of an exemption.
func MatchesPattern(pattern, name string) bool { return matchesPattern(pattern, name) }
