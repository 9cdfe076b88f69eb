// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"sluice.dev/api/v1alpha1"
)

// A scheduler's policy is asked where the object may use a pool of that scheduler,
// and so is one in its place; all others always are.
func TestMatchSkipsPoliciesOfOtherSchedulers(t *testing.T) {
	tests := map[string]struct {
		source  Source
		serving Schedulers
		want    bool
	}{
		"its own":            {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kueue", "kai"), true},
		"another's":          {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kueue"), false},
		"one that begins so": {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf("kai-too"), false},
		"none":               {Source{Name: "schedulers.kai", BuiltIn: true}, SchedulersOf(), false},
		"nobody said":        {Source{Name: "schedulers.kai", BuiltIn: true}, "", true},
		"in its place":       {Source{Name: "ours", Replaces: "schedulers.kai"}, SchedulersOf("kai"), true},
		"in another's place": {Source{Name: "ours", Replaces: "schedulers.kai"}, SchedulersOf("kueue"), false},
		"tried only":         {Source{Name: "ours", Replaces: "schedulers.kai", Enforcement: v1alpha1.EnforcementDryRun}, SchedulersOf("kueue"), true},
		"no scheduler's":     {Source{Name: "core.quota", BuiltIn: true}, SchedulersOf(), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (&policy{source: tc.source}).servesAnyOf(tc.serving); got != tc.want {
				t.Errorf("asked: %v", got)
			}
		})
	}
}
