// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"sluice.dev/api/v1alpha1"
)

// A policy for a scheduler, or one that replaces it, matches objects that may use a node
// pool of that scheduler. All other policies match any object.
func TestMatchSkipsPoliciesOfOtherSchedulers(t *testing.T) {
	tests := map[string]struct {
		source  Source
		serving Schedulers
		want    bool
	}{
		"its scheduler":             {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kueue", "kai"), true},
		"another scheduler":         {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kueue"), false},
		"a longer name":             {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kai-too"), false},
		"no scheduler":              {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf(), false},
		"any scheduler":             {Source{Name: "schedulers.kai", BuiltIn: true}, "", true},
		"a replacement":             {Source{Name: "ours", Replaces: "schedulers.kai"}, SchedulersOf("kai"), true},
		"a replacement for another": {Source{Name: "ours", Replaces: "schedulers.kai"}, SchedulersOf("kueue"), false},
		"a replacement in DryRun":   {Source{Name: "ours", Replaces: "schedulers.kai", Enforcement: v1alpha1.EnforcementDryRun}, SchedulersOf("kueue"), true},
		"not a scheduler policy":    {Source{Name: "core.quota", BuiltIn: true}, SchedulersOf(), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (&policy{source: tc.source}).servesAnyOf(tc.serving); got != tc.want {
				t.Errorf("matched: %v", got)
			}
		})
	}
}
