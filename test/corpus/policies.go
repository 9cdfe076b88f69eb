// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corpus has policies and pods that take time, memory or words without bound, so that the engine,
// the check of policies, the handlers of pods and the webhook's binary are tested with the same ones.
package corpus

import (
	"fmt"
	"strings"
)

// A Policy is a rule that takes time or memory without end, with a part of the error of its evaluation.
type Policy struct{ Rule, Message string }

// ProcessorTime is the message of policies that no other limit ends.
const ProcessorTime = "processor time"

// Policies are hostile policies by name.
var Policies = map[string]Policy{
	"doubled text by concat": {`deny contains "x" if {
	a := "0123456789abcdef"
	b := concat("", [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a])
	c := concat("", [b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b])
	d := concat("", [c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c])
	e := concat("", [d, d, d, d, d, d, d, d, d, d, d, d, d, d, d, d])
	f := concat("", [e, e, e, e, e, e, e, e, e, e, e, e, e, e, e, e])
	count(f) > 0
}`, "concat"},
	"doubled list": {doublings(`array.concat(%, %)`, "[1, 2, 3, 4]", 40, "count(%) > 0"), "array.concat: the call is too large"},
	"wide sprintf": {`deny contains "x" if count(sprintf("%999999999d", [1])) > 0`, "sprintf: the call is too large"},
	"many wide verbs": {`deny contains "x" if {
	format := concat("", [verb | some _ in numbers.range(1, 20000); verb := "%[1]1000d"])
	count(sprintf(format, [1])) > 0
}`, "sprintf: the call is too large"},
	"width from an argument":     {`deny contains "x" if count(sprintf("%*d", [99999999, 1])) > 0`, "sprintf: the call is too large"},
	"precision":                  {`deny contains "x" if count(sprintf("%.99999999f", [1.5])) > 0`, "sprintf: the call is too large"},
	"long argument, many times":  {`deny contains "x" if count(sprintf(concat("", ["%[1]s" | some _ in numbers.range(1, 50000)]), [concat("", ["0123456789" | some _ in numbers.range(1, 50000)])])) > 0`, ""},
	"empty pattern":              {doublings(`replace(%, "", %)`, `"0123456789"`, 10, "count(%) > 0"), "replace"},
	"empty regular pattern":      {doublings(`regex.replace(%, "", %)`, `"0123456789"`, 10, "count(%) > 0"), "regex.replace"},
	"several patterns":           {doublings(`strings.replace_n({"a": %}, %)`, `"aaaaaaaaaa"`, 10, "count(%) > 0"), "strings.replace_n"},
	"large range":                {`deny contains "x" if count(numbers.range(1, 1000000000)) > 0`, "numbers.range: the call is too large"},
	"large range downward":       {`deny contains "x" if count(numbers.range(1000000000, 1)) > 0`, "numbers.range: the call is too large"},
	"large range in steps":       {`deny contains "x" if count(numbers.range_step(1, 1000000000000, 3)) > 0`, "numbers.range_step: the call is too large"},
	"marshal of doubled lists":   {doublings(`[%, %]`, `"0123456789"`, 19, "count(json.marshal(%)) > 0"), tooLargeValue},
	"marshal of doubled objects": {doublings(`{"a": %, "b": %}`, `"0123456789"`, 18, "count(json.marshal(%)) > 0"), tooLargeValue},
	"YAML of doubled lists":      {doublings(`[%, %]`, `"0123456789"`, 19, "count(yaml.marshal(%)) > 0"), tooLargeValue},
	"format of doubled lists":    {doublings(`[%, %]`, `"0123456789"`, 19, `count(sprintf("%v", [%])) > 0`), tooLargeValue},
	"walk of doubled lists":      {doublings(`[%, %]`, `"0123456789"`, 19, "count([1 | walk(%, _)]) > 0"), tooLargeValue},
	"sort of doubled lists":      {doublings(`[%, %]`, `"0123456789"`, 19, "count(sort([%, 1])) > 0"), tooLargeValue},
	"union of doubled objects":   {doublings(`{"a": %, "b": %}`, `"0123456789"`, 18, "count(object.union(%, {})) > 0"), tooLargeValue},
	"remainder of large numbers": {`deny contains "x" if (1e300 * 1e300) % 7 > 0`, "the number has 601 characters"},
	"product of many numbers":    {`deny contains "x" if product(numbers.range(1, 100000)) % 7 > 0`, ""},
	"product of products":        {doublings(`% * %`, "1234567890", 40, "% > 0"), "the number has"},
	"product of many digits":     {`deny contains "x" if product([a | some i in numbers.range(1, 100); a := 1e300 + i]) > 0`, "product: the call is too large"},
	"one long template string":   {doublings(`$"{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}{%}"`, `"0123456789"`, 8, "count(%) > 0"), "internal.template_string"},
	"YAML aliases of a text":     {`deny contains "x" if { count(yaml.unmarshal(concat("", ["a: &a ", ` + longText + `, "\nb: [", concat(",", ["*a" | some _ in numbers.range(1, 5000)]), "]\n"]))) > 0 }`, "yaml.unmarshal: the call is too large"},
	"repetitions in a pattern":   {`deny contains "x" if regex.match(concat("", ["a{1000}" | some _ in numbers.range(1, 1000)]), "x")`, "regex.match: operand 1: the pattern has more than 10000 steps"},
	"a long pattern":             {`deny contains "x" if regex.is_valid(` + longText + `)`, "regex.is_valid: operand 1: the pattern has more than 10000 steps"},
	"each byte a match":          {`deny contains "x" if count(regex.find_n(".", ` + longText + `, -1)) > 0`, "regex.find_n: the call is too large"},
	"each byte many groups":      {`deny contains "x" if count(regex.find_all_string_submatch_n("((((((((((((((((((((((((((((((.))))))))))))))))))))))))))))))", ` + longText + `, -1)) > 0`, "regex.find_all_string_submatch_n: the call is too large"},
	"each byte a part":           {`deny contains "x" if count(regex.split("", ` + longText + `)) > 0`, "regex.split: the call is too large"},
	"each byte an index":         {`deny contains "x" if count(indexof_n(` + longText + `, "aa")) > 0`, "indexof_n: the call is too large"},
	"each byte a counted part":   {`deny contains "x" if count(strings.split_n(` + longText + `, "", 900000)) > 0`, "strings.split_n: the call is too large"},
	"encoded again and again":    {doublings(`base64.encode(concat("", [%, %]))`, `"0123456789"`, 40, "count(%) > 0"), "bytes, and 1048576 are allowed"},
	"endless search":             {`deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a + b < 0 }`, ProcessorTime},
	"nested comprehensions":      {`deny contains "x" if count([1 | some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a < b]) < 0`, ProcessorTime},
	"growing set":                {`deny contains "x" if count({[a, b, c] | some a in numbers.range(1, 1000); some b in numbers.range(1, 1000); some c in numbers.range(1, 1000)}) < 0`, ProcessorTime},
	"many findings": {`deny contains message if { some a in numbers.range(1, 100000); message := sprintf("%d", [a]) }
deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a * b < 0 }`, ProcessorTime},
	"doubled locals":             {doublings("[%, %]", `"a"`, 40, "count(%) > 0"), tooLargeValue},
	"doubled objects":            {doublings(`{"a": %, "b": %}`, `"a"`, 40, "count(%) > 0"), tooLargeValue},
	"doubled sets":               {doublings(`{[1, %], [2, %]}`, `"a"`, 40, "count(%) > 0"), tooLargeValue},
	"doubled by a function":      {"f(x) := [x, x]\n" + doublings("f(%)", `"a"`, 40, "count(%) > 3"), tooLargeValue},
	"doubled by arguments":       {nestedCalls("f%(x) := f%i([x, x])", 40), tooLargeValue},
	"doubled by patterns":        {doublings("[[%, %], 1][0]", `"a"`, 40, "count(%) > 0"), tooLargeValue},
	"doubled by destructuring":   {destructurings(40), tooLargeValue},
	"doubled by rules":           {nestedRules(`v%i := {"a": v%, "b": v%} if input`, 18), tooLargeValue},
	"doubled by partial objects": {nestedRules("v%i[k] := v% if some k in numbers.range(1, 100)", 12), tooLargeValue},
	"doubled by partial sets":    {nestedRules("v%i contains [k, v%] if some k in numbers.range(1, 100)", 12), tooLargeValue},
	"doubled by comprehensions":  {doublings("[% | some _ in numbers.range(1, 100)]", `"a"`, 12, "count(%) > 0"), tooLargeValue},
	"doubled by with":            {nestedRules("v%i := x if x := v% with input as [input, input]", 40, "v := input"), tooLargeValue},
	"doubled by concatenations":  {doublings("array.concat([%], [%])", `"a"`, 40, "count(%) > 0"), tooLargeValue},
	"equal doubled comprehensions": {`deny contains "x" if {
	a := [[] | some _ in numbers.range(1, 2000)]
	b := [[[a | some _ in numbers.range(1, 2)] | some _ in numbers.range(1, 9)] | some _ in numbers.range(1, 9)]
	b == [[[a | some _ in numbers.range(1, 2)] | some _ in numbers.range(1, 9)] | some _ in numbers.range(1, 9)]
}`, tooLargeValue},
	"equal lists of lists": {`deny contains "x" if {
	a := [[] | some _ in numbers.range(1, 30000)]
	a == [[] | some _ in numbers.range(1, 30000)]
	1 / (count(a) - 30000) > 0
}`, "divide by zero"},
	"each step at each byte":       {`deny contains "x" if regex.match("(a|aa){900}c", ` + longText + `)`, "regex.match: the call is too large"},
	"alternatives of a glob":       {`deny contains "x" if glob.match(concat("", ["{*a,a*}" | some _ in numbers.range(1, 12)]), [], "` + strings.Repeat("a", 60) + `b")`, "glob.match: the call is too large"},
	"nested alternatives":          {`deny contains "x" if glob.match("` + strings.Repeat("{a,b", 30) + strings.Repeat("}", 30) + `", [], "c")`, "glob.match: the call is too large"},
	"a number of a million digits": {`deny contains "x" if json.unmarshal(` + longDigits + `) > 1`, "json.unmarshal: the call is too large"},
	"digits in YAML":               {`deny contains "x" if yaml.unmarshal(` + longDigits + `) > 1`, "yaml.unmarshal: the call is too large"},
	"digits with a unit":           {`deny contains "x" if units.parse_bytes(concat("", [` + longDigits + `, "Gi"])) > 1`, "units.parse_bytes: the call is too large"},
	"a large exponent":             {`deny contains "x" if sprintf("%d", [to_number("1e999999999")]) == ""`, "to_number: strconv.ParseFloat"},
	"exponent of a unit":           {`deny contains "x" if units.parse("1e99999999Gi") > 1`, "units.parse: units.parse: exponent too large"},
	"deep JSON":                    {`deny contains "x" if json.unmarshal(concat("", ["[[[[[[[[[[" | some _ in numbers.range(1, 100000)])) == 1`, "json.unmarshal"},
	"deep YAML":                    {`deny contains "x" if yaml.unmarshal(concat("", ["- " | some _ in numbers.range(1, 130000)])) == 1`, "yaml.unmarshal: yaml: exceeded max depth"},
	"many patches":                 {`deny contains "x" if { l := numbers.range(1, 60000); count(json.patch(l, [{"op": "add", "path": "/0", "value": 1} | some _ in numbers.range(1, 90000)])) == 1 }`, ""},
	"patches of themselves":        {"deny contains \"x\" if {\n\tp := [{\"op\": \"copy\", \"from\": \"/a\", \"path\": \"/a/-\"} | some _ in numbers.range(1, 40)]\n\tcount(sprintf(\"%v\", [json.patch({\"a\": [1]}, p)])) > 0\n}", ""},
	"many prefixes":                {`deny contains "x" if { p := {sprintf("a%d", [i]) | some i in numbers.range(1, 100000)}; some _ in numbers.range(1, 100); strings.any_prefix_match(` + longText + `, p); false }`, ProcessorTime},
	"a query of many parts":        {`deny contains "x" if count(urlquery.decode_object(concat("&", [sprintf("a%d", [i]) | some i in numbers.range(1, 15000)]))) == 1`, "urlquery.decode_object"},
	"a graph without end":          {`deny contains "x" if { g := {a: [b | some b in numbers.range(1, 1000)] | some a in numbers.range(1, 1000)}; count(graph.reachable(g, [1])) < 0 }`, ProcessorTime},
	"calls of calls":               {callsOfCalls(30), ProcessorTime},
	"every within every":           {`deny contains "x" if every a in numbers.range(1, 10000) { every b in numbers.range(1, 10000) { a + b > 0 } }`, ProcessorTime},
	"a storm of with":              {"deny contains \"x\" if { some a in numbers.range(1, 1000000 / 10); n < 0 with input as {\"project\": a} }\nn := sum([i | some i in numbers.range(1, 1000)]) + input.project", ProcessorTime},
	"large overrides":              {`overrides := {"metadata": {"labels": {key: key | some a in numbers.range(1, 70000); key := sprintf("l%d", [a])}}}`, ""},
	"deep overrides":               {doublings(`{"a": %, "b": %}`, "1", 40, "true", `overrides := %`), ""},
}

const tooLargeValue = "internal.value: the value is too large"

// nestedRules returns rules of which each is made of the one before, and compares the last with itself.
func nestedRules(rule string, n int, first ...string) string {
	name := func(i int) string { return strings.Repeat("i", i) }
	var text strings.Builder
	text.WriteString(strings.Join(append(first, ""), "\n"))
	if len(first) == 0 {
		text.WriteString("v := \"a\"\n")
	}
	for i := range n {
		text.WriteString(strings.ReplaceAll(rule, "%", name(i)) + "\n")
	}
	return text.String() + "deny contains \"x\" if count(v" + name(n) + ") > 0\n"
}

// nestedCalls returns functions of which each calls the next.
func nestedCalls(rule string, n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.ReplaceAll(rule, "%", strings.Repeat("i", i)) + "\n")
	}
	text.WriteString("f" + strings.Repeat("i", n) + "(x) := count(x)\n")
	return text.String() + "deny contains \"x\" if f(input) > 0\n"
}

// destructurings returns a rule in which each variable is in a pattern that is compared with a list.
func destructurings(n int) string {
	var text strings.Builder
	text.WriteString("deny contains \"x\" if {\n\tv := \"a\"\n")
	name := func(i int) string { return "v" + strings.Repeat("i", i) }
	for i := range n {
		text.WriteString("\t[" + name(i+1) + ", _] := [[" + name(i) + ", " + name(i) + "], 1]\n")
	}
	return text.String() + "\tcount(" + name(n) + ") > 0\n}"
}

// longText is a text of one million bytes.
const longText = `concat("", ["aaaaaaaaaaaaaaaaaaaa" | some _ in numbers.range(1, 50000)])`

// longDigits is a number of one million digits.
const longDigits = `concat("", ["12345678901234567890" | some _ in numbers.range(1, 50000)])`

// callsOfCalls returns functions of which each calls the next twice, with different arguments.
func callsOfCalls(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "f%d(x) := f%d(x + 1) + f%d(x * 2)\n", i, i+1, i+1)
	}
	return text.String() + fmt.Sprintf("f%d(x) := x\ndeny contains \"x\" if f0(1) < 0\n", n)
}

// doublings returns a rule in which each of n variables is made of the one before, named by %.
func doublings(step, first string, n int, condition string, more ...string) string {
	name := func(i int) string { return "v" + strings.Repeat("i", i) }
	var text strings.Builder
	if len(more) > 0 {
		for i := range n {
			text.WriteString(name(i+1) + " := " + strings.ReplaceAll(step, "%", name(i)) + "\n")
		}
		return name(0) + " := " + first + "\n" + text.String() + strings.ReplaceAll(more[0], "%", name(n)) + "\n"
	}
	text.WriteString("deny contains \"x\" if {\n\t" + name(0) + " := " + first + "\n")
	for i := range n {
		text.WriteString("\t" + name(i+1) + " := " + strings.ReplaceAll(step, "%", name(i)) + "\n")
	}
	condition = strings.ReplaceAll(condition, `"%v"`, `"$v"`)
	condition = strings.ReplaceAll(strings.ReplaceAll(condition, "%", name(n)), `"$v"`, `"%v"`)
	return text.String() + "\t" + condition + "\n}"
}
