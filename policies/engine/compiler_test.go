// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/engine"
)

// testLibrary is a library for the policies of these tests.
var testLibrary = engine.Library{Name: "time.rego", Rego: `package sluice.lib

late if hour > 18

hour := to_number(substring(moment(input), 11, 2))

moment(whole) := whole.now

team(labels) := object.get(labels, "team", "none")
`}

// compileProblems compiles one module and returns its problems.
func compileProblems(tb testing.TB, rego string) []string {
	tb.Helper()
	_, reports, err := engine.Compile([]engine.Source{{Name: "it", Rego: rego}}, engine.Options{Libraries: []engine.Library{testLibrary}})
	if err != nil {
		tb.Fatal(err)
	}
	var texts []string
	for _, problem := range reports[0].Problems {
		texts = append(texts, problem.Error())
	}
	return texts
}

func TestCompileReportsProblemsWithLocation(t *testing.T) {
	tests := map[string]struct {
		rego string
		want []string
	}{
		"a policy may define all rules, helpers and functions": {
			rego: `package it
import data.sluice.lib

defaults := {"metadata": {"labels": {"team": lib.team(input.object.metadata.labels)}}}
overrides.spec.schedulerName := "sluice" if gpus > 0
nodes contains {"key": "pool", "operator": "In", "values": ["a"]} if gpus > 0
append contains {"path": ["spec", "tolerations"], "value": {"operator": "Exists"}} if gpus > 0
remove contains ["spec", "nodeName"] if gpus > 0
deny contains "too late" if lib.late
violation contains {"msg": "too late"} if lib.hour > 20
warn contains sprintf("%v GPUs in use", [input.use.gpus]) if gpus > 0
objects contains {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "x"}}
requires contains {"crd": "queues.scheduling.run.ai", "fix": "install KAI"}

gpus := input.workload.gpus
`,
		},
		"a syntax error": {
			rego: "package it\n\ndeny contains msg if {\n\tmsg := \n}\n",
			want: []string{"it:5:1: unexpected } token"},
		},
		"truncated text": {
			rego: "package it\ndeny contains msg if {",
			want: []string{"it:2:22: unexpected eof token"},
		},
		"no module": {
			rego: "\x00\xff",
			want: []string{"it: the module is not UTF-8 text"},
		},
		"an empty module": {
			rego: "",
			want: []string{"it: empty module"},
		},
		"all forbidden functions and undefined fields at once": {
			rego: `package it
deny contains "a" if http.send({"method": "get", "url": "http://example.org"}).status_code == 200
deny contains "b" if { input.request.uid == "x" }
deny contains "c" if { time.now_ns() > 3; rand.intn("x", 3) == 2; net.cidr_contains("10.0.0.0/8", "10.0.0.1") }
deny contains "d" if opa.runtime().env.HOME == "/root"
`,
			want: []string{
				"it:2:22: http.send is not available in policies: policies have no network; read input instead",
				"it:3:24: input.request does not exist; input has review, object, oldObject, workload, project, department, nodePools, namespace, nodePool, now, use, parameters",
				"it:4:24: time.now_ns is not available in policies: policies have no clock; the time of the request is input.now",
				"it:4:43: rand.intn is not available in policies: a policy must give the same answer twice",
				"it:4:67: net.cidr_contains is not available in policies: policies have no network",
				"it:5:22: opa.runtime is not available in policies: policies cannot read the host's environment",
			},
		},
		"a function of the policy's own may have any name": {
			rego: "package it\ntrace(x) := x + 1\ndeny contains \"a\" if trace(input.workload.gpus) > 3\n",
		},
		"data that does not exist": {
			rego: "package it\ndeny contains \"a\" if data.inventory.cluster[input.object.kind]\n",
			want: []string{"it:2:22: data.inventory.cluster does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib"},
		},
		"data as a whole": {
			rego: "package it\ndeny contains \"a\" if { some name; data[name] }\n",
			want: []string{"it:2:1: rule data.it.deny is recursive: data.it.deny -> data.it.deny"},
		},
		"a library that does not exist": {
			rego: "package it\nimport data.sluice.lib\ndeny contains \"a\" if lib.nothing\n",
			want: []string{"it:3:22: data.sluice.lib.nothing does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib"},
		},
		"a reserved package": {
			rego: "package sluice.lib\nlate := false\n",
			want: []string{"it:1:1: the package data.sluice.lib is reserved for Sluice; choose another name"},
		},
		"rules of the wrong shape": {
			rego: `package it
deny if input.workload.gpus > 3
warn := "careful"
nodes[key] := "x" if key := input.object.kind
violation(x) := x
default remove := false
objects.a contains "b"
overrides contains "x"
defaults := "x"
append contains {"path": ["a"], "value": 1}
`,
			want: []string{
				`it:2:1: deny has one value here, and must be a set: write deny contains msg if { …; msg := "…" }`,
				`it:3:1: warn has one value here, and must be a set: write warn contains msg if { …; msg := "…" }`,
				`it:4:1: nodes is an object here, and must be a set: write nodes contains {"key": "a", "operator": "In", "values": ["b"]} if { … }`,
				`it:5:1: violation is a function here, and must be a rule: write violation contains {"msg": msg} if { …; msg := "…" }`,
				`it:6:1: remove is a set and has no default value: write remove contains ["spec", "nodeName"] if { … }`,
				`it:7:1: objects is an object here, and must be a set: write objects contains {"apiVersion": "v1", …} if { … }`,
				`it:8:1: overrides is a set here, and must be an object: write overrides := {"metadata": {"labels": {"a": "b"}}} if { … }`,
				`it:9:1: defaults is "x" here, and must be an object: write defaults := {"metadata": {"labels": {"a": "b"}}} if { … }`,
			},
		},
		"deep recursion": {
			rego: "package it\nf(x) := g(x)\ng(x) := f(x)\ndeny contains \"a\" if f(1)\n",
			want: []string{
				"it:2:1: rule data.it.f is recursive: data.it.f -> data.it.g -> data.it.f",
				"it:3:1: rule data.it.g is recursive: data.it.g -> data.it.f -> data.it.g",
			},
		},
		"an error of strict mode": {
			rego: "package it\nimport data.sluice.lib\ndeny contains \"a\" if { x := 1; input.workload.gpus > 3 }\n",
			want: []string{
				"it:2:1: import data.sluice.lib unused",
				"it:3:24: assigned var x unused",
			},
		},
		"a type error with details": {
			rego: "package it\ndeny contains \"a\" if { x := upper(3); x == \"b\" }\n",
			want: []string{"it:2:29: upper: invalid argument(s); have: (number, ???); want: (x: string, y: string)"},
		},
		"Rego v0 that is no template of Gatekeeper's": {
			rego: "package it\ndeny[msg] { msg := \"a\" }\n",
			want: []string{
				"it:1:1: the module is Rego v0, which only a Gatekeeper template may be: rewrite it with opa fmt --v0-v1 --write",
				"it:2:1: `contains` keyword is required for partial set rules",
				"it:2:1: `if` keyword is required before rule body",
			},
		},
		"a later version of Rego": {
			rego: "package it\nimport rego.v2\ndeny contains \"a\" if input.workload.gpus > 1\n",
			want: []string{"it:2:8: invalid import, `rego.v2` is not supported by current capabilities"},
		},
		"more than 256 KiB": {
			rego: "package it\n" + strings.Repeat("# a comment\n", 25_000),
			want: []string{"it: the module has 300011 bytes; 262144 are allowed: split the policy"},
		},
		"expressions that nest too deep": {
			rego: "package it\nx := " + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + "\n",
			want: []string{"it:2:1: the rule x nests too deep: split it into several rules"},
		},
		"sums that nest too deep": {
			rego: "package it\nx := 1" + strings.Repeat(" + 1", 60_000) + "\n",
			want: []string{"it:2:1: the rule x nests too deep: split it into several rules"},
		},
		"an endless chain of else branches": {
			rego: "package it\nf(x) := 1 if x == 1" + strings.Repeat(" else := 2 if x == 2", 3000) + "\n",
			want: []string{"it:2:1: the rule f nests too deep: split it into several rules"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, compileProblems(t, tt.rego)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// moduleWithOverride returns a module whose rule overrides is one line; other lines may
// follow.
func moduleWithOverride(line string) string {
	return "package it\nimport data.sluice.lib\nuses_lib := lib.team({})\n" + line + "\n"
}

func TestMutatingRulesCannotReadTimeOrUsage(t *testing.T) {
	const only = "; only deny, violation and warn may"
	tests := map[string]struct {
		rego string
		want []string
	}{
		"deny may read both": {
			rego: moduleWithOverride(`deny contains "a" if { input.now > "2026"; input.use.gpus > 3 }`),
		},
		"violation and warn may, through all of input": {
			rego: moduleWithOverride("violation contains {\"msg\": \"a\"} if lib.moment(input) > \"2026\"\nwarn contains \"a\" if { some field; input[field] == 3 }"),
		},
		"overrides reads the time": {
			rego: moduleWithOverride(`overrides := {"a": input.now}`),
			want: []string{"it:4:20: overrides must not depend on the time or the present use, and reads input.now" + only},
		},
		"defaults reads the present use in its body": {
			rego: moduleWithOverride(`defaults := {"a": 1} if input.use.gpus > 3`),
			want: []string{"it:4:25: defaults must not depend on the time or the present use, and reads input.use" + only},
		},
		"in an else branch": {
			rego: moduleWithOverride(`overrides := {"a": 1} if { input.workload.gpus > 3 } else := {"a": input.now}`),
			want: []string{"it:4:68: overrides must not depend on the time or the present use, and reads input.now" + only},
		},
		"in the head of a rule": {
			rego: moduleWithOverride(`overrides[input.now] := 1`),
			want: []string{"it:4:11: overrides must not depend on the time or the present use, and reads input.now" + only},
		},
		"in a comprehension": {
			rego: moduleWithOverride(`nodes contains {"key": k, "operator": "Exists"} if { some k in [x | x := input.now] }`),
			want: []string{"it:4:74: nodes must not depend on the time or the present use, and reads input.now" + only},
		},
		"under every": {
			rego: moduleWithOverride(`remove contains ["a"] if { every c in input.object.spec.containers { c.name == input.now } }`),
			want: []string{"it:4:80: remove must not depend on the time or the present use, and reads input.now" + only},
		},
		"under not": {
			rego: moduleWithOverride(`append contains {"path": ["a"], "value": 1} if not input.now == "x"`),
			want: []string{"it:4:52: append must not depend on the time or the present use, and reads input.now" + only},
		},
		"through two helper rules": {
			rego: moduleWithOverride("overrides := {\"a\": soon}\nsoon := later\nlater := input.now"),
			want: []string{"it:6:10: overrides must not depend on the time or the present use, and reads input.now through data.it.soon, then data.it.later" + only},
		},
		"through a function and a library's rule": {
			rego: moduleWithOverride("overrides := {\"a\": f(1)}\nf(x) := x + lib.hour"),
			want: []string{
				"it (library time.rego):5:36: overrides must not depend on the time or the present use, and reads all of input, which includes now and use through data.it.f, then data.sluice.lib.hour" + only,
			},
		},
		"by an import": {
			rego: "package it\nimport input.now\noverrides := {\"a\": now}\n",
			want: []string{"it:3:20: overrides must not depend on the time or the present use, and reads input.now" + only},
		},
		"by a variable field": {
			rego: moduleWithOverride(`overrides := {"a": input[field]} if { field := "now" }`),
			want: []string{"it:4:20: overrides must not depend on the time or the present use, and reads input[…] with a variable key, which may be now or use" + only},
		},
		"by an alias of input": {
			rego: moduleWithOverride(`overrides := {"a": all.now} if { all := input }`),
			want: []string{"it:4:41: overrides must not depend on the time or the present use, and reads all of input, which includes now and use" + only},
		},
		"by walking all of input": {
			rego: moduleWithOverride(`overrides := {"a": v} if { some v; walk(input, [["now"], v]) }`),
			want: []string{"it:4:41: overrides must not depend on the time or the present use, and reads all of input, which includes now and use" + only},
		},
		"by object.get": {
			rego: moduleWithOverride(`overrides := {"a": object.get(input, "now", "")}`),
			want: []string{"it:4:31: overrides must not depend on the time or the present use, and reads all of input, which includes now and use" + only},
		},
		"by a helper chosen at run time": {
			rego: moduleWithOverride("overrides := {\"a\": data.it.helpers[input.object.kind]}\nhelpers.a := input.now\nhelpers.b := 1"),
			want: []string{"it:5:14: overrides must not depend on the time or the present use, and reads input.now through data.it.helpers.a" + only},
		},
		"by replacing a field": {
			rego: moduleWithOverride("overrides := {\"a\": x} if { x := helper with input.object as input.now }\nhelper := input.object"),
			want: []string{"it:4:61: overrides must not depend on the time or the present use, and reads input.now" + only},
		},
		"objects, too": {
			rego: moduleWithOverride(`objects contains {"apiVersion": "v1", "kind": "A", "metadata": {"name": input.now}}`),
			want: []string{"it:4:73: objects must not depend on the time or the present use, and reads input.now" + only},
		},
		"requires, too": {
			rego: moduleWithOverride(`requires contains {"crd": "a", "fix": "b"} if input.use.gpus > 3`),
			want: []string{"it:4:47: requires must not depend on the time or the present use, and reads input.use" + only},
		},
		"all other fields of input are allowed": {
			rego: moduleWithOverride(`overrides := {"a": [input.review, input.object, input.oldObject, input.workload, input.project, input.department, input.nodePools, input.parameters]}`),
		},
		"a helper of deny may read it": {
			rego: moduleWithOverride("overrides := {\"a\": early}\nearly := 1\ndeny contains \"a\" if late > \"x\"\nlate := input.now"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, compileProblems(t, tt.rego)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompileWarnsOfMisspelledRules(t *testing.T) {
	tests := map[string]struct {
		rego string
		want []string
	}{
		"denies": {
			rego: "package it\ndeny contains \"a\" if input.workload.gpus > 1\ndenies contains \"b\" if input.workload.gpus > 2\n",
			want: []string{"it:3:1: the rule denies is unused and has no meaning to Sluice; did you mean deny?"},
		},
		"override and warnings": {
			rego: "package it\noverride := {\"a\": 1}\nwarnings contains \"b\"\ndney contains \"c\"\nremoved contains [\"a\"]\n",
			want: []string{
				"it:1:1: the policy defines no rule that Sluice evaluates, so it has no effect",
				"it:2:1: the rule override is unused and has no meaning to Sluice; did you mean overrides?",
				"it:3:1: the rule warnings is unused and has no meaning to Sluice; did you mean warn?",
				"it:4:1: the rule dney is unused and has no meaning to Sluice; did you mean deny?",
				"it:5:1: the rule removed is unused and has no meaning to Sluice; did you mean remove?",
			},
		},
		"names of helpers are free": {
			rego: "package it\ndeny contains \"a\" if node == 1\nnode := input.workload.gpus\nlimit := 3\nobject(x) := x\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, reports, err := engine.Compile([]engine.Source{{Name: "it", Rego: tt.rego}}, engine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, warning := range reports[0].Warnings {
				got = append(got, warning.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(reports[0].Problems) > 0 {
				t.Errorf("warnings (-want +got):\n%s%v", diff, reports[0].Problems)
			}
		})
	}
}

func TestLibrariesMustCompile(t *testing.T) {
	tests := map[string]struct {
		libraries []engine.Library
		want      string
	}{
		"one of another package":   {[]engine.Library{{Name: "a.rego", Rego: "package other\n"}}, "libraries (library a.rego):1:1: the package data.other is not data.sluice.lib, data.lib or below one of them"},
		"one that reads the clock": {[]engine.Library{{Name: "a.rego", Rego: "package sluice.lib\nx := time.now_ns()\n"}}, "libraries (library a.rego):2:6: undefined function time.now_ns"},
		"one that reads data":      {[]engine.Library{{Name: "a.rego", Rego: "package sluice.lib\nx := data.y.z\n"}}, "libraries (library a.rego):2:6: data.y.z does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib"},
		"two with one name":        {[]engine.Library{testLibrary, testLibrary}, "libraries (library time.rego): a library needs a unique name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := engine.New(engine.Options{Libraries: tt.libraries})
			if want := "compile the policies' libraries: " + tt.want; err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
}

func TestCompileModuleOf256KiB(t *testing.T) {
	var b strings.Builder
	b.WriteString("package it\n")
	for i := 0; b.Len() < 250<<10; i++ {
		fmt.Fprintf(&b, "deny contains {\"msg\": \"rule %d\", \"field\": \"spec.f%d\"} if input.object.spec.f%d == %d\n", i, i, i, i)
	}
	began := time.Now()
	if wrong := compileProblems(t, b.String()); wrong != nil {
		t.Fatal(wrong)
	}
	t.Logf("%d bytes in %v", b.Len(), time.Since(began).Round(time.Millisecond))
}

// The fuzz test: the compiler may reject any text, and never panics.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		"", "package", "package it\ndeny contains msg if { msg := input.now }", "package a.b\nimport data.sluice.lib\noverrides.a[x] := y if { x := 1; y := lib.team({}) }",
		"package it\nviolation[{\"msg\": msg}] { msg := \"a\" }", "package it\n# METADATA\n# title: x\ndeny if {", "package it\nf(x) := y if { walk(x, [_, y]) } else := 3 with input as 4",
		"package it\ndeny contains $\"{input.object.kind} is {input[x]}\" if some x", "package it\ndefault overrides := {}\noverrides := input",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, reports, err := engine.Compile([]engine.Source{{Name: "it", Rego: text}}, engine.Options{Libraries: []engine.Library{testLibrary}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(set.Names()); (got == 1) != (len(reports[0].Problems) == 0) {
			t.Errorf("%d policies in force with the problems %v", got, reports[0].Problems)
		}
		for _, problem := range reports[0].Problems {
			if strings.Contains(problem.Message, "the compiler panicked") {
				t.Error(problem)
			}
		}
	})
}
