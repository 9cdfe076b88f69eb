// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

func TestWhoStandsInAnothersPlace(t *testing.T) {
	pods := v1alpha1.PolicyMatch{Kinds: []string{"Pod"}, Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationCreate}}
	builtIn := []engine.Source{{Name: "core.type", BuiltIn: true, Match: pods}}
	ours := map[string]StandIn{"team": {Policy: "team", Replaces: "core.type"}}
	for name, tt := range map[string]struct {
		match       v1alpha1.PolicyMatch
		replaces    string
		enforcement v1alpha1.Enforcement
		problems    int
		inForce     bool
		before      map[string]StandIn
		want        map[string]StandIn
	}{
		"for all":                  {replaces: "core.type", inForce: true, want: ours},
		"for some":                 {match: v1alpha1.PolicyMatch{Projects: []string{"a"}}, replaces: "core.type", inForce: true, want: map[string]StandIn{"team": {Policy: "team", Replaces: "core.type", Projects: []string{"a"}}}},
		"warning":                  {replaces: "core.type", enforcement: v1alpha1.EnforcementWarn, inForce: true, want: ours},
		"on trial":                 {replaces: "core.type", enforcement: v1alpha1.EnforcementDryRun, inForce: true},
		"nobody":                   {inForce: true},
		"what is not there":        {replaces: "core.old", inForce: true},
		"about other objects":      {match: v1alpha1.PolicyMatch{Kinds: []string{"Job.batch"}}, replaces: "core.type", inForce: true},
		"about the kind as it is":  {match: v1alpha1.PolicyMatch{Kinds: []string{"Job", "Pod"}}, replaces: "core.type", inForce: true, want: ours},
		"at another time":          {match: v1alpha1.PolicyMatch{Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationUpdate}}, replaces: "core.type", inForce: true},
		"not in force":             {replaces: "core.type", problems: 1},
		"an earlier one in force":  {problems: 1, inForce: true, before: ours, want: ours},
		"it did before, no longer": {inForce: true, before: ours},
	} {
		t.Run(name, func(t *testing.T) {
			team := engine.Source{Name: "team", Match: tt.match, Replaces: tt.replaces, Enforcement: tt.enforcement}
			toldOf := told{sources: append(builtIn[:1:1], team)}
			report := engine.Report{Name: "team", InForce: tt.inForce, Problems: make([]engine.Problem, tt.problems)}
			want := tt.want
			if want == nil {
				want = map[string]StandIn{}
			}
			if diff := cmp.Diff(want, toldOf.standIns([]engine.Report{{Name: "core.type", InForce: true}, report}, tt.before)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
