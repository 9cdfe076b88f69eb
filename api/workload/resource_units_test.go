// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// The pattern of v1alpha1.MIGProfile's schema; it is in a marker there.
var profilePattern = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)

func TestIsMIGProfileMatchesSchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-9]?g?\.?[0-9]{0,5}(gb|g)?([+-]?(me|gfx|[a-z]{0,3})(\.(all|[a-z]{0,20}))?)?`).Draw(t, "text")
		want := profilePattern.MatchString(text) && len(text) <= 24
		if got := isMIGProfile(text); got != want {
			t.Fatalf("isProfile(%q) = %v, want %v", text, got, want)
		}
	})
}

// Every profile in the tables of NVIDIA's GPU models.
func TestIsMIGProfileAcceptsGPUModelProfiles(t *testing.T) {
	for _, profile := range []v1alpha1.MIGProfile{
		"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.80gb", "1g.6gb+me", "2g.12gb+me", "4g.24gb",
		"1g.12gb", "3g.47gb", "7g.94gb", "1g.18gb+me", "3g.71gb", "7g.141gb", "7g.269gb", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+me.all", "2g.24gb-me", "4g.96gb+gfx",
	} {
		if wrong := validateMIGResource(v1alpha1.ResourceMIG(profile)); wrong != "" {
			t.Errorf("%s %s", profile, wrong)
		}
	}
}
