// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"sluice.dev/api/v1alpha1"
)

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

// Evaluate evaluates the active policies; see [Set.Evaluate].
func (e *Engine) Evaluate(ctx context.Context, in Input) (Outcome, error) {
	set, err := e.Current()
	if err != nil {
		return Outcome{}, err
	}
	return set.Evaluate(ctx, in)
}

// WorkloadType evaluates the active policies; see [Set.WorkloadType].
func (e *Engine) WorkloadType(ctx context.Context, in Input) (v1alpha1.WorkloadType, error) {
	set, err := e.Current()
	if err != nil {
		return "", err
	}
	return set.WorkloadType(ctx, in)
}
