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

// Guards secrets of authors in the fields of workloads that are no pods, and outside of spec.
func TestRedactWorkloads(t *testing.T) {
	const secret = "ghp_0123456789abcdef"
	for name, object := range map[string]map[string]any{
		"a PodTemplate": {"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"env": []any{map[string]any{"name": "T", "value": secret}}},
		}}}},
		"arguments of a Workflow": {"spec": map[string]any{"arguments": map[string]any{"parameters": []any{
			map[string]any{"name": "token", "value": secret},
		}}}},
		"script of a Workflow":   {"spec": map[string]any{"templates": []any{map[string]any{"script": map[string]any{"source": "export T=" + secret}}}}},
		"manifest of a Workflow": {"spec": map[string]any{"templates": []any{map[string]any{"resource": map[string]any{"manifest": "t: " + secret}}}}},
		"a RayService":           {"spec": map[string]any{"serveConfigV2": "env_vars: {T: " + secret + "}"}},
		"a RayCluster": {"spec": map[string]any{"headGroupSpec": map[string]any{
			"rayStartParams": map[string]any{"redis-password": secret},
		}}},
		"a header of a probe": {"spec": map[string]any{"containers": []any{map[string]any{"livenessProbe": map[string]any{
			"httpGet": map[string]any{"httpHeaders": []any{map[string]any{"name": "Authorization", "value": "Bearer " + secret}}},
		}}}}},
		"a volume": {"spec": map[string]any{"volumes": []any{map[string]any{"csi": map[string]any{
			"volumeAttributes": map[string]any{"key": secret},
		}}}}},
	} {
		// The character before the secret can be a part of the value.
		if got := Redact("do not use "+secret, object); strings.Contains(got, "ghp") || strings.Contains(got, "def") {
			t.Errorf("%s: %q", name, got)
		}
	}
	labeled := map[string]any{"metadata": map[string]any{"labels": map[string]any{"env": "production"}}, "spec": map[string]any{
		"parameters": []any{map[string]any{"name": "partition"}},
	}}
	if got := Redact("production partition", labeled); got != "production partition" {
		t.Errorf("a label, and the name of a parameter: %q", got)
	}
}
