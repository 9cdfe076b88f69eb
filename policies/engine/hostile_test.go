// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
)

// hostilePolicies are rules that take time or memory without end, by name, with the error of
// their evaluation.
var hostilePolicies = map[string]struct{ rule, message string }{
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
	"endless search":             {`deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a + b < 0 }`, "processor time"},
	"nested comprehensions":      {`deny contains "x" if count([1 | some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a < b]) < 0`, "processor time"},
	"growing set":                {`deny contains "x" if count({[a, b, c] | some a in numbers.range(1, 1000); some b in numbers.range(1, 1000); some c in numbers.range(1, 1000)}) < 0`, "processor time"},
	"many findings": {`deny contains message if { some a in numbers.range(1, 100000); message := sprintf("%d", [a]) }
deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a * b < 0 }`, "processor time"},
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
	"many prefixes":                {`deny contains "x" if { p := {sprintf("a%d", [i]) | some i in numbers.range(1, 100000)}; some _ in numbers.range(1, 100); strings.any_prefix_match(` + longText + `, p); false }`, "processor time"},
	"a query of many parts":        {`deny contains "x" if count(urlquery.decode_object(concat("&", [sprintf("a%d", [i]) | some i in numbers.range(1, 15000)]))) == 1`, "urlquery.decode_object"},
	"a graph without end":          {`deny contains "x" if { g := {a: [b | some b in numbers.range(1, 1000)] | some a in numbers.range(1, 1000)}; count(graph.reachable(g, [1])) < 0 }`, "processor time"},
	"calls of calls":               {callsOfCalls(30), "processor time"},
	"every within every":           {`deny contains "x" if every a in numbers.range(1, 10000) { every b in numbers.range(1, 10000) { a + b > 0 } }`, "processor time"},
	"a storm of with":              {"deny contains \"x\" if { some a in numbers.range(1, 1000000 / 10); n < 0 with input as {\"project\": a} }\nn := sum([i | some i in numbers.range(1, 1000)]) + input.project", "processor time"},
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

// Every hostile policy ends, in bounded memory, and only refuses what it matches itself.
// Guards invariant 10 of the design.
func TestHostilePoliciesAreBounded(t *testing.T) {
	const maxAllocated = 512 << 20
	for name, tc := range hostilePolicies {
		t.Run(name, func(t *testing.T) {
			hostile := engine.Source{Name: "hostile", Rego: "package hostile\n\n" + tc.rule}
			modest := engine.Source{Name: "modest", Rego: "package modest\n\nwarn contains \"seen\""}
			limit := 200 * time.Millisecond
			if tc.message != "processor time" {
				limit = 5 * time.Second // another limit comes first, on a slow machine too
			}
			options := engine.Options{Limits: engine.Limits{Evaluation: limit, Request: time.Minute}}
			e := newEngineWithOptions(t, options, hostile, modest)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`))
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
				t.Errorf("%d MiB allocated, want at most %d", allocated>>20, maxAllocated>>20)
			}
			if len(outcome.Failures) != 1 || outcome.Failures[0].Policy != "hostile" {
				t.Fatalf("failures: %v", outcome.Failures)
			}
			if got := outcome.Failures[0].Err.Error(); !strings.Contains(got, tc.message) {
				t.Errorf("%s, want %s", got, tc.message)
			}
			if len(outcome.Warnings) != 1 || outcome.Warnings[0].Policy != "modest" {
				t.Errorf("the other policy's warnings: %v", outcome.Warnings)
			}
		})
	}
}

// A policy that keeps exceeding its processor time is no longer evaluated for that project: it
// refuses what it matches where it is in Deny, and is skipped where it only warns. Other projects are evaluated.
func TestQuarantinedPolicyAnswersAtOnce(t *testing.T) {
	rule := hostilePolicies["endless search"].rule
	deny := engine.Source{Name: "deny", Rego: "package deny1\n\n" + rule}
	warn := engine.Source{Name: "warn", Enforcement: "Warn", Rego: "package warn1\n\n" + rule}
	options := engine.Options{Limits: engine.Limits{Evaluation: 20 * time.Millisecond, Request: time.Minute}, CacheEntries: -1}
	e := newEngineWithOptions(t, options, deny, warn)
	in := podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`)
	for range 3 {
		if _, err := e.Evaluate(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	outcome, err := e.Evaluate(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Failures) != 1 || !errors.Is(outcome.Failures[0].Err, engine.ErrQuarantined) || outcome.Failures[0].Policy != "deny" {
		t.Errorf("failures: %v", outcome.Failures)
	}
	if len(outcome.Denials) != 1 || outcome.Denials[0].Policy != "deny" || len(outcome.Warnings) != 0 {
		t.Errorf("denials %v, warnings %v", outcome.Denials, outcome.Warnings)
	}
	in.Subject.Project = "another"
	if outcome, err = e.Evaluate(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, failure := range outcome.Failures {
		if !errors.Is(failure.Err, engine.ErrDeadline) {
			t.Errorf("another project: %v", failure.Err)
		}
	}
}

// The limits of built-in functions do not reach what policies ordinarily do.
func TestOrdinaryCallsAreWithinLimits(t *testing.T) {
	for name, condition := range map[string]string{
		"pattern":         `regex.match("^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.]){0,3}$", "example.")`,
		"matches":         `count(regex.find_n("[a-z]+", input.object.spec.text, -1)) == 13107`,
		"first groups":    `count(regex.find_all_string_submatch_n("(a)(b)(c)", input.object.spec.text, 1)) == 0`,
		"parts":           `count(split(input.object.spec.text, "-")) == 13108`,
		"YAML":            `yaml.unmarshal("a: [1, 2]\nb: ls *.txt && cat *a\n").a[1] == 2`,
		"template string": `$"{input.object.metadata.name}-x" == "a-x"`,
		"product":         `product([2, 3, 1024]) == 6144`,
		"indexes":         `count(indexof_n(input.object.spec.text, "-")) == 13107`,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Source{Name: "modest", Rego: "package modest\n\nwarn contains \"seen\" if " + condition})
			pod := `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"text": "` + strings.Repeat("aaaaaaaaa-", 13107) + `"}}`
			outcome, err := e.Evaluate(t.Context(), podInput(t, pod))
			if err != nil || len(outcome.Failures) > 0 || len(outcome.Warnings) != 1 {
				t.Errorf("error %v, failures %v, warnings %v", err, outcome.Failures, outcome.Warnings)
			}
		})
	}
}

// A large object is no policy's fault: it is converted before the first evaluation begins. Otherwise the
// policy would be abandoned, and the next one would convert it at the same time.
func TestLargeObjectIsNoPolicysFault(t *testing.T) {
	options := engine.Options{Limits: engine.Limits{Evaluation: 10 * time.Millisecond, Request: time.Minute}}
	e := newEngineWithOptions(t, options,
		engine.Source{Name: "a", Rego: "package a\n\nwarn contains \"seen\" if input.object.metadata.name"},
		engine.Source{Name: "b", Rego: "package b\n\nwarn contains \"seen\" if input.object.metadata.name"})
	pod := `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"list": [1` + strings.Repeat(`, {"a": []}`, 200_000) + `]}}`
	outcome, err := e.Evaluate(t.Context(), podInput(t, pod))
	if err != nil || len(outcome.Failures) > 0 || len(outcome.Warnings) != 2 {
		t.Errorf("error %v, failures %v, warnings %v", err, outcome.Failures, outcome.Warnings)
	}
}
