// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// StandIn is a policy in force that is asked in the place of a built-in one.
type StandIn struct {
	// Policy is its name, Replaces that of the built-in one.
	Policy, Replaces string
	// Departments and Projects are for whose pods; all, where both are empty.
	Departments, Projects []string
}

// Everywhere tells whether the built-in policy is asked about nobody's pods.
func (s StandIn) Everywhere() bool { return len(s.Departments)+len(s.Projects) == 0 }

// StandIns are the policies that stand in the place of a built-in one in the last
// update, sorted by name.
func (k *Keeper) StandIns(builtIn string) []StandIn {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []StandIn
	for _, s := range k.standIns {
		if s.Replaces == builtIn {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b StandIn) int { return strings.Compare(a.Policy, b.Policy) })
	return found
}

// standIns are those of an update, by name. Of a policy whose present source is
// not in force, it is what it was before.
func (t *told) standIns(reports []engine.Report, before map[string]StandIn) map[string]StandIn {
	builtIn, teams := make(map[string]v1alpha1.PolicyMatch), make(map[string]engine.Source)
	for _, source := range t.sources {
		if source.BuiltIn {
			builtIn[source.Name] = source.Match
		} else {
			teams[source.Name] = source
		}
	}
	now := make(map[string]StandIn)
	for _, report := range reports {
		source, ok := teams[report.Name]
		_, is := builtIn[report.Name]
		switch {
		case !ok || is || !report.InForce:
		case len(report.Problems) > 0:
			if old, was := before[report.Name]; was {
				now[report.Name] = old
			}
		case source.Enforcement != v1alpha1.EnforcementDryRun && meet(source.Match, builtIn[source.Replaces]):
			if _, exists := builtIn[source.Replaces]; exists {
				now[report.Name] = StandIn{report.Name, source.Replaces, source.Match.Departments, source.Match.Projects}
			}
		}
	}
	return now
}

// meet tells whether two policies may be asked about one object, whosever it is.
func meet(a, b v1alpha1.PolicyMatch) bool {
	return overlap(a.Operations, b.Operations, func(x, y v1alpha1.PolicyOperation) bool { return x == y }) &&
		overlap(a.Kinds, b.Kinds, func(x, y string) bool {
			return x == y || strings.HasPrefix(x, y+".") || strings.HasPrefix(y, x+".")
		})
}

// overlap tells whether two lists, of which an empty one has everything, have
// something in common.
func overlap[T any](a, b []T, same func(T, T) bool) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x T) bool {
		return slices.ContainsFunc(b, func(y T) bool { return same(x, y) })
	})
}
