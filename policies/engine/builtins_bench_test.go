// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
)

// BenchmarkBuiltInFunctions calls each function that OPA cannot stop with the worst argument known for it, which is text in a pod: of
// 250 KiB, or of the largest size that its limit allows. The table is in docs/developer/performance.md.
func BenchmarkBuiltInFunctions(b *testing.B) {
	const most, limited, searched = 250 << 10, 128 << 10, 64 << 10
	fill := func(text string, size int) string { return strings.Repeat(text, size/len(text)) }
	for _, bc := range []struct{ name, condition, text string }{
		{"split", `count(split(input.object.text, ",")) > 0`, fill(",", most)},
		{"indexof_n", `count(indexof_n(input.object.text, "a")) > 0`, fill("a", most)},
		{"upper", `upper(input.object.text) != ""`, fill("ß", most)},
		{"trim", `trim(input.object.text, "a") == ""`, fill("a", most)},
		{"json.is_valid", `json.is_valid(input.object.text)`, "[" + fill("1,", most) + "1]"},
		{"json.unmarshal", `count(json.unmarshal(input.object.text)) > 0`, "[" + fill("1,", limited-8) + "1]"},
		{"yaml.is_valid", `yaml.is_valid(input.object.text)`, fill("- a\n", limited)},
		{"yaml.unmarshal", `count(yaml.unmarshal(input.object.text)) > 0`, fill("- a\n", limited)},
		{"regex.is_valid", `regex.is_valid(input.object.text)`, fill("(a|b)", searched)},
		{"regex.match", `not regex.match("^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.]){0,3}$", input.object.text)`, fill("a", searched)},
		{"regex.match (many repetitions)", `not regex.match("(a|aa){200}c$", input.object.text)`, fill("a", searched)},
		{"regex.find_n", `count(regex.find_n("[a-z]", input.object.text, -1)) > 0`, fill("a", searched)},
		{"regex.find_all_string_submatch_n", `count(regex.find_all_string_submatch_n("(([a-z]))", input.object.text, -1)) > 0`, fill("a", searched)},
		{"regex.split", `count(regex.split(",", input.object.text)) > 0`, fill(",", searched)},
		{"glob.match", `not glob.match(input.object.text, [], "aaaaaaaaaaaaaaaaaab")`, strings.Repeat("{*a,a*}", 3) + "c"},
		{"units.parse_bytes", `units.parse_bytes(input.object.text) >= 0`, fill("9", limited)},
		{"units.parse", `units.parse(input.object.text) >= 0`, fill("9", limited)},
		{"to_number", `round(to_number(input.object.text)) > 0`, "9e300"},
		{"object.subset", `object.subset(split(input.object.text, ","), ["x", "y"])`, fill("a,", most) + "x,y"},
		{"base64.decode", `base64.decode(input.object.text) != ""`, fill("aaaa", most)},
		{"hex.encode", `hex.encode(input.object.text) != ""`, fill("aaaa", most)},
		{"crypto.sha256", `crypto.sha256(input.object.text) != ""`, fill("aaaa", most)},
		{"urlquery.decode_object", `count(urlquery.decode_object(input.object.text)) > 0`, strings.Repeat("a&", 9_000)},
		{"semver.is_valid", `not semver.is_valid(input.object.text)`, fill("1.", most)},
		{"sprintf", `sprintf("%s%s%s%s", [input.object.text, input.object.text, input.object.text, input.object.text]) != ""`, fill("a", most)},
		{"strings.any_prefix_match", `not strings.any_prefix_match("x", split(input.object.text, ","))`, fill("a,", most) + "a"},
		{"strings.reverse", `strings.reverse(input.object.text) != ""`, fill("a", most)},
		{"sort", `count(sort(split(input.object.text, ","))) > 0`, fill("b,a,", most)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			limits := engine.Limits{Evaluation: time.Minute, Request: time.Minute}
			e := newEngineWithOptions(b, engine.Options{Limits: limits, CacheEntries: -1},
				engine.Source{Name: "a", Rego: "package a\n\nwarn contains \"seen\" if " + bc.condition})
			text, err := json.Marshal(bc.text)
			if err != nil {
				b.Fatal(err)
			}
			in := podInput(b, `{"kind": "Pod", "text": `+string(text)+`}`)
			for b.Loop() {
				outcome, err := e.Evaluate(b.Context(), in)
				if err != nil || len(outcome.Failures) > 0 || len(outcome.Warnings) != 1 {
					b.Fatalf("%v, %v, %d warnings", err, outcome.Failures, len(outcome.Warnings))
				}
			}
		})
	}
}
