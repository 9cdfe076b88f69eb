// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"fmt"
	"strconv"
	"strings"
)

// A PolicyText is the Rego of a policy, with a part of the first problem: "" for any or none, "-" for none.
type PolicyText struct{ Rego, Problem string }

// PolicyTexts returns texts of policies on which a compiler may fail, by name, with a part of the first problem; none if
// the policy is accepted. Those that exhaust the compiler end with the problem of a limit.
func PolicyTexts() map[string]PolicyText {
	repeat := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			text.WriteString(strings.ReplaceAll(format, "%d", strconv.Itoa(i)))
		}
		return text.String()
	}
	const tooLarge = "the module has"
	deny := func(condition string) string { return "package p\n\ndeny contains \"x\" if " + condition + "\n" }
	texts := map[string]PolicyText{
		"nothing":                 {"", ""},
		"zero bytes":              {"\x00\x00\x00", ""},
		"invalid UTF-8":           {"package p\n\ndeny contains \"\xff\xfe\"\n", "-"}, // JSON replaces them
		"byte order mark":         {"\ufeffpackage p\n\ndeny contains \"x\"\n", ""},
		"text from right to left": {"package p\n\n# \u202e\ndeny contains \"\u202ex\u202c\"\n", "-"},
		"look-alike letters":      {"package p\n\nd\u0435ny contains \"x\"\n", ""},
		"line separators":         {"package p\u2028deny contains \"x\"\n", ""},
		"too long":                {"package p\n" + strings.Repeat("# comment\n", 200_000), tooLarge},
		"a long string":           {deny(`input.object.kind == "` + strings.Repeat("a", 900_000) + `"`), ""},
		"a long name":             {deny("input.object." + strings.Repeat("a", 200_000)), ""},
		"a large number":          {deny("1e999999999 > 1"), "number too big"},
		"many digits":             {deny(strings.Repeat("9", 200_000) + " > 1"), ""},
		"brackets":                {deny(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), ""},
		"negations":               {deny(strings.Repeat("not ", 50_000) + "true"), ""},
		"sums":                    {deny("1" + strings.Repeat(" + 1", 50_000) + " > 1"), ""},
		"template strings":        {deny(strings.Repeat("$\"{", 2_000) + "1" + strings.Repeat("}\"", 2_000) + " == 1"), ""},
		"many rules":              {"package p\n\n" + repeat(20_000, "r%d := %d\n"), ""},
		"many definitions":        {"package p\n\n" + repeat(20_000, "deny contains \"%d\" if input.object.kind == \"%d\"\n"), ""},
		"many branches":           {"package p\n\nr := 0 if false\n" + repeat(3_000, "else := %d if input.object.kind == \"%d\"\n"), ""},
		"many arguments":          {"package p\n\nf(" + repeat(5_000, "a%d, ") + "b) := 1\n", ""},
		"many variables":          {deny("{\n" + repeat(5_000, "\ta%d := input.object[\"%d\"]\n") + "}"), ""},
		"many unifications":       {deny("{\n" + repeat(2_000, "\t[a%d, b%d] = [c%d, d%d]; c%d = 1; d%d = a%d; b%d = 2\n") + "}"), ""},
		"variables in a circle":   {deny("{\n" + repeat(3_000, "\ta%d = [b%d]; b%d = [a%d]\n") + "}"), ""},
		"rules in a circle":       {"package p\n\na := b\nb := c\nc := a\n", "rule"},
		"a function of itself":    {"package p\n\nf(x) := f(x - 1)\n", "rule"},
		"all rules of a package":  {"package p\n\ndeny contains x if x := data.p\n", ""},
		"data of others":          {deny("data.other.deny"), "data.other"},
		"the package of Sluice":   {"package sluice.lib.request\n\nincludes_gpu := false\n", "sluice"},
		"a package below it":      {"package sluice\n\nlib := {}\n", "sluice"},
		"the package system":      {"package system.main\n\nmain := true\ndeny contains \"x\"\n", "-"},
		"a long package":          {"package " + strings.TrimSuffix(repeat(2_000, "a%d."), ".") + "\n\ndeny contains \"x\"\n", "-"},
		"a network":               {deny(`count(net.cidr_expand("0.0.0.0/0")) > 1`), "policies have no network"},
		"the host":                {deny("opa.runtime().env"), "host's environment"},
		"another built-in":        {deny("internal.value([1], x)"), "internal.value"},
		"a later language":        {"package p\n\nimport rego.v2\n\ndeny contains \"x\"\n", "rego.v2"},
		"future imports":          {"package p\n\nimport future.keywords.in\nimport future.keywords\n\ndeny contains \"x\"\n", ""},
		"an import of input":      {"package p\n\nimport input as data\n\ndeny contains \"x\"\n", ""},
		"metadata":                {"# METADATA\n# scope: package\n# custom:\n#   a: &a [1, 2]\n#   b: [*a, *a, *a]\npackage p\n\ndeny contains \"x\"\n", "-"},
		"large metadata":          {"# METADATA\n# scope: rule\n# custom:\n" + repeat(20_000, "#   a%d: [%d]\n") + "package p\n\ndeny contains \"x\"\n", ""},
		"schemas of metadata":     {"package p\n\n# METADATA\n# scope: rule\n# schemas:\n#   - input: {\"$ref\": \"file:///etc/passwd\"}\ndeny contains \"x\" if input.project\n", ""},
		"a default function":      {"package p\n\ndefault f(_) := 1\nf(x) := x if x > 1\ndeny contains \"x\" if f(2) == 2\n", "-"},
		"comprehensions":          {deny("count(" + strings.Repeat("[x | x := ", 200) + "1" + strings.Repeat("]", 200) + ") > 1"), ""},
		"an every in an every":    {deny(strings.Repeat("every x in [1] { ", 60) + "true" + strings.Repeat(" }", 60)), ""},
		"a storm of with":         {deny("true" + strings.Repeat(" with input.a as 1", 5_000)), ""},
		"a wide object":           {deny("count({" + repeat(30_000, "\"%d\": %d, ") + "\"a\": 1}) > 1"), ""},
		"a wide set":              {deny("count({" + repeat(30_000, "%d, ") + "1}) > 1"), ""},
	}
	for name, rego := range ExhaustingPolicies() {
		texts[name] = PolicyText{rego, "the policy cannot be compiled"}
	}
	return texts
}

// ExhaustingPolicies returns small policies with which the compiler is busy for hours, or takes all
// memory.
func ExhaustingPolicies() map[string]string {
	var types strings.Builder
	types.WriteString("package bomb\n\ndeny contains \"x\" if {\n\tx0 := [1, \"a\"]\n")
	for i := 1; i <= 40; i++ {
		fmt.Fprintf(&types, "\tx%d := [x%d, x%d]\n", i, i-1, i-1)
	}
	types.WriteString("\tstartswith(x40, \"a\")\n}\n")
	const depth = 40
	return map[string]string{
		"types that double with each line": types.String(),
		"nested comprehensions": "package bomb\n\ndeny contains \"x\" if " +
			strings.Repeat("count([y | y := ", depth) + "1" + strings.Repeat("])", depth) + " > 1\n",
	}
}
