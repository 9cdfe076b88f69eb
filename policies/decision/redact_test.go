// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"strings"
	"testing"
)

// Guards secrets of authors: the examples of violations that others read quote no value of a container, and
// no part of one.
func TestRedact(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name":    "main",
		"env":     []any{map[string]any{"name": "TOKEN", "value": "ghp_0123456789abcdef"}, map[string]any{"name": "PIN", "value": "481516"}},
		"args":    []any{"--password=größer-als-alles"},
		"command": []any{"sh"},
	}}}}}}
	tests := map[string]struct{ message, want string }{
		"nothing":              {"", ""},
		"no value":             {"image main is not allowed", "image main is not allowed"},
		"a whole value":        {"TOKEN=ghp_0123456789abcdef is a secret", "TOKEN=*** is a secret"},
		"the beginning of one": {"TOKEN begins with ghp_0123", "TOKEN begins with ***"},
		"the end of one":       {"ends with 89abcdef.", "ends with ***."},
		"the middle, twice":    {"34567890 p_012345678 and 0123456789", "34567890 *** and ***"},
		"less than eight":      {"ghp_012 ends", "ghp_012 ends"},
		"two that meet":        {"ghp_0123456789abcdef--password=größer", "******"},
		"a short value":        {"PIN 481516 is short", "PIN *** is short"},
		"a character in parts": {"Größer-al is it", "G*** is it"},
		"a short word":         {"sh is a shell", "sh is a shell"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Redact(tc.message, object); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := Redact(strings.Repeat("ghp_0123456789abcdef ", 20), object); strings.Contains(got, "ghp_") {
		t.Errorf("a repeated value: %q", got)
	}
}
