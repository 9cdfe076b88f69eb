// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// The index finds exactly the policies whose lists select an object and whose exclusion does not.
func TestMatchIndexIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2, rapid.ID[string])
		var sources []engine.Source
		for i := range rapid.IntRange(1, 8).Draw(t, "policies") {
			sources = append(sources, engine.Source{Name: "p" + strconv.Itoa(i), Rego: goodSource, Match: v1alpha1.PolicyMatch{
				Departments: names.Draw(t, "departments"), Projects: names.Draw(t, "projects"),
				Exclude: v1alpha1.PolicyExclusion{Departments: names.Draw(t, "excluded departments"), Projects: names.Draw(t, "excluded projects")},
			}})
		}
		set, _, err := engine.Compile(sources, engine.Options{CacheEntries: -1})
		if err != nil {
			t.Fatal(err)
		}
		for _, department := range []string{"", "a", "b"} {
			for _, project := range []string{"", "a", "c"} {
				var want []string
				for _, source := range sources {
					match := source.Match
					if (len(match.Departments) == 0 || slices.Contains(match.Departments, department)) &&
						(len(match.Projects) == 0 || slices.Contains(match.Projects, project)) &&
						!slices.Contains(match.Exclude.Departments, department) && !slices.Contains(match.Exclude.Projects, project) {
						want = append(want, source.Name)
					}
				}
				got := set.MatchingPolicies(engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Department: department, Project: project})
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("department %q, project %q (-want +got):\n%s", department, project, diff)
				}
			}
		}
	})
}
