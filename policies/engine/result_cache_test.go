// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// readPatterns are ways in which policies read the object. For each, a cached result must
// equal a fresh one.
var readPatterns = map[string]string{
	"a field of each container":    `deny contains c.name if { some c in input.object.spec.containers; c.image == "x" }`,
	"an index":                     `deny contains sprintf("%d", [i]) if { some i, c in input.object.spec.containers; c.tty }`,
	"the first element":            `deny contains "x" if input.object.spec.containers[0].name == "main"`,
	"an unknown key":               `deny contains k if { some k; input.object.metadata.labels[k] == "b" }`,
	"a count":                      `deny contains "x" if count(input.object.spec.containers) > 1`,
	"a count of some":              `deny contains "x" if count([c | some c in input.object.spec.containers; c.tty]) > 1`,
	"a count of different ones":    `deny contains "x" if count({c | some c in input.object.spec.containers}) > 1`,
	"presence":                     `deny contains "x" if input.object.spec.securityContext`,
	"absence":                      `deny contains "x" if not input.object.spec.securityContext.runAsUser`,
	"the type":                     `deny contains "x" if is_array(input.object.spec.containers)`,
	"keys":                         `deny contains k if { some k in object.keys(input.object.metadata.labels) }`,
	"a default":                    `deny contains object.get(input.object.metadata, ["labels", "app"], "none")`,
	"a default of a part":          `deny contains "x" if object.get(input.object, "spec", {}).containers[0].tty`,
	"a whole part":                 `deny contains json.marshal(input.object.spec.securityContext)`,
	"two parts compared":           `deny contains "x" if input.object.metadata.labels == input.object.metadata.annotations`,
	"two elements compared":        `deny contains c.name if { some c in input.object.spec.containers; some d in input.object.spec.initContainers; c.env == d.env }`,
	"a variable compared":          `deny contains "x" if { x := input.object.metadata.labels.app; some y in input.object.metadata.annotations; x == y }`,
	"a pattern of an array":        `deny contains a if { [a, _] = input.object.spec.containers[_].command }`,
	"a pattern of an object":       `deny contains a if { {"app": a} = input.object.metadata.labels }`,
	"a pattern with a bound value": `deny contains "x" if { a := input.object.metadata.labels.app; {"app": a} = input.object.metadata.annotations }`,
	"two unbound variables":        `deny contains "x" if { [x, y] = [input.object.metadata.labels, z]; z = input.object.metadata.annotations; x.app == y.app }`,
	"a composed object":            `deny contains w.it.name if { some w in each; w.it.tty }` + "\neach := [{\"it\": c, \"at\": i} | some i, c in input.object.spec.containers]",
	"through a function":           `deny contains name(c) if { some c in input.object.spec.containers; c.tty }` + "\nname(c) := c.name",
	"a function of patterns":       `deny contains "x" if { some c in input.object.spec.containers; odd(c.name, c) }` + "\nodd(\"main\", c) if c.tty\nodd(_, c) if c.env",
	"a function of itself":         `deny contains f(f(input.object.spec)).x` + "\nf(x) := {\"x\": object.get(x, \"containers\", 1)}",
	"several values":               `deny contains "x" if one.tty` + "\none := c if { some c in input.object.spec.containers; c.name == \"main\" }",
	"several rules":                `deny contains "x" if one.tty` + "\none := input.object.spec.containers[0]\none := input.object.spec.containers[1]",
	"else":                         `deny contains which` + "\nwhich := input.object.metadata.labels.app if input.object.metadata.labels.app else := input.object.metadata.name",
	"every":                        `deny contains "x" if every c in input.object.spec.containers { c.tty }`,
	"every with a key":             `deny contains "x" if every k, v in input.object.metadata.labels { v != "b"; k != "c" }`,
	"a union":                      `deny contains k if { some k, _ in object.union(input.object.metadata.labels, input.object.metadata.annotations) }`,
	"both lists":                   `deny contains c.name if { some c in array.concat(input.object.spec.containers, input.object.spec.initContainers); c.tty }`,
	"one of both lists":            `deny contains "x" if array.concat(input.object.spec.containers, input.object.spec.initContainers)[1].tty`,
	"a walk":                       `deny contains "x" if { walk(input.object.spec, [_, value]); value == "x" }`,
	"an object of containers":      `deny contains "x" if { by := {c.name: c | some c in input.object.spec.containers}; by.main.tty }`,
	"a set of names":               `deny contains "x" if { names := {c.name | some c in input.object.spec.containers}; "main" in names }`,
	"a set of rules":               `deny contains n if { some n in names }` + "\nnames contains c.name if { some c in input.object.spec.containers; c.tty }",
	"a map of rules":               `deny contains "x" if tty.main` + "\ntty[c.name] := c.tty if some c in input.object.spec.containers",
	"a nested rule":                `deny contains "x" if facts.tty` + "\nfacts.tty if some c in input.object.spec.containers\nfacts.name := input.object.metadata.name",
	"in a list":                    `deny contains "x" if {"name": "A", "value": "1"} in input.object.spec.containers[0].env`,
	"a variable for a key":         `deny contains "x" if { some k in ["tty", "stdin"]; input.object.spec.containers[_][k] }`,
	"a key from the object":        `deny contains "x" if input.object.metadata.labels[input.object.metadata.name]`,
	"the review":                   `deny contains c.name if { some c in input.review.object.spec.containers; c.tty }`,
	"a template's message":         `deny contains $"no {c.name}" if { some c in input.object.spec.containers; c.tty }`,
	"with another input":           `deny contains "x" if tty with input as {"a": input.object.spec.containers[0]}` + "\ntty if input.object.spec.containers[1].tty",
	"with another function":        `deny contains "x" if f(1) with f as g` + "\nf(_) := input.object.metadata.name == \"b\"\ng(_) := input.object.spec.containers[0].tty",
	"a closure":                    `deny contains "x" if { c := input.object.spec.containers[_]; l := [e | some e in input.object.metadata.labels; e == c.name]; count(l) > 0 }`,
	"one variable name twice":      `deny contains "x" if { l := [y | y = input.object.metadata.labels[_]]; m := [y | y = input.object.metadata.annotations[_]]; l[0] == "a"; m[0] == "a" }`,
	"a mutation":                   `overrides.spec.containers := [{"name": c.name, "tty": true} | some c in input.object.spec.containers; not c.tty]`,
	"the type of a workload":       `type := "interactive" if input.object.spec.containers[_].tty`,
}

const readPatternPod = `{"metadata": {"name": "a", "labels": {"app": "a", "b": "b"}, "annotations": {"app": "b", "c": "a"}},
	"spec": {"securityContext": {"runAsUser": 1}, "containers": [
		{"name": "main", "image": "x", "tty": true, "command": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
		{"name": "a", "image": "y", "env": []}],
	"initContainers": [{"name": "init", "tty": false, "env": [{"name": "A", "value": "1"}]}]}}`

// equalValuesPod has equal values, so that a comparison that the analysis misses becomes
// visible.
const equalValuesPod = `{"metadata": {"name": "a", "labels": {"app": "a"}, "annotations": {"app": "a"}},
	"spec": {"containers": [{"name": "main", "tty": true, "image": "x"}, {"name": "main", "tty": true, "image": "x"}],
	"initContainers": [{"name": "main", "tty": true, "image": "x"}]}}`

func TestCachedResultsEqualFreshResults(t *testing.T) {
	for name, rego := range readPatterns {
		t.Run(name, func(t *testing.T) {
			source := engine.Source{Name: "way", Rego: "package way\nimport rego.v1\n" + rego + "\n"}
			p := newEnginePair(t, engine.Options{}, source)
			for _, text := range []string{readPatternPod, equalValuesPod} {
				var pod any
				if err := json.Unmarshal([]byte(text), &pod); err != nil {
					t.Fatal(err)
				}
				p.requireEqualForVariants(t, pod, sampleOneIn(5))
			}
		})
	}
}

func TestCachedResultsOfBuiltInPoliciesEqualFreshResults(t *testing.T) {
	p := newEnginePair(t, engine.Options{Libraries: policies.Libraries()}, policies.BuiltIn()...)
	files, err := filepath.Glob("../../test/testdata/pods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pods, %v", len(files), err)
	}
	// All variants of all pods would take minutes.
	some := sampleOneIn(53)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var pod any
		if err := yaml.Unmarshal(text, &pod); err != nil {
			t.Fatal(err)
		}
		p.requireEqualForVariants(t, pod, some)
	}
}

// enginePair are two engines with the same policies; one has no cache.
type enginePair struct{ cached, uncached *engine.Engine }

func newEnginePair(t *testing.T, options engine.Options, sources ...engine.Source) enginePair {
	t.Helper()
	// A slow machine must not fail the policies.
	options.Limits = engine.Limits{Evaluation: time.Minute, Request: time.Minute}
	p := enginePair{cached: newEngineWithOptions(t, options, sources...)}
	options.CacheEntries = -1
	p.uncached = newEngineWithOptions(t, options, sources...)
	return p
}

// sampleOneIn returns a function that selects one of many calls.
func sampleOneIn(many int) func() bool {
	turn := 0
	return func() bool {
		turn++
		return turn%many == 0
	}
}

// requireEqualForVariants evaluates a pod, and pods that differ from it in one place.
func (p enginePair) requireEqualForVariants(t *testing.T, pod any, selected func() bool) {
	t.Helper()
	p.requireEqual(t, pod)
	for _, other := range variants(pod) {
		if other != nil && selected() {
			p.requireEqual(t, other)
		}
	}
}

func (p enginePair) requireEqual(t *testing.T, pod any) {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	in := podInput(t, string(raw))
	in.Workload = decodeDocument(t, `{"form": "Whole", "devices": 1, "type": "train", "resources": {"nvidia.com/gpu": 1}, "container": "main", "nodePools": [], "owner": {"kind": "", "group": ""}}`)
	results := make([]string, 0, 2)
	for _, e := range []*engine.Engine{p.cached, p.uncached} {
		outcome, err := e.Evaluate(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		kind, err := e.WorkloadType(context.Background(), in)
		outcome.Evaluations = nil
		text, jsonErr := json.Marshal(outcome)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		failures := fmt.Sprint(outcome.Failures)
		results = append(results, strings.Join([]string{string(text), failures, string(kind), fmt.Sprint(err)}, "\n"))
	}
	if results[0] != results[1] {
		t.Errorf("%s: the cached result differs (-fresh +cached):\n%s", raw, cmp.Diff(results[1], results[0]))
	}
}

// variants returns the values that differ from a value in one place.
func variants(value any) []any {
	others := []any{nil, "x", true, float64(7), []any{}, map[string]any{}, []any{value}}
	switch value := value.(type) {
	case string:
		others = append(others, value+"x", "b", "a")
	case []any:
		for i, element := range value {
			for _, other := range append(variants(element), value...) {
				changed := slices.Clone(value)
				changed[i] = other
				others = append(others, changed)
			}
			others = append(others, slices.Delete(slices.Clone(value), i, i+1), append(slices.Clone(value), element))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			for _, other := range variants(value[key]) {
				changed := maps.Clone(value)
				changed[key] = other
				others = append(others, changed)
			}
			without := maps.Clone(value)
			delete(without, key)
			renamed := maps.Clone(without)
			renamed[key+"x"] = value[key]
			others = append(others, without, renamed)
		}
		more := maps.Clone(value)
		more["main"], more["c"] = "a", true
		others = append(others, more)
	}
	return others
}

// A pod that differs only in fields that the policy does not read hits the cache.
func TestResultsAreCachedByReadFields(t *testing.T) {
	tests := map[string]struct {
		rego     string
		recalled map[string]bool
	}{
		"a field of each element": {
			`deny contains "x" if { some c in input.object.spec.containers; c.image == "x" }`,
			map[string]bool{`"tty": true`: true, `"name": "main"`: true, `"image": "x"`: false},
		},
		"a composed object": {readPatterns["a composed object"], map[string]bool{`"image": "x"`: true, `"tty": true`: false, `"name": "main"`: false}},
		"a whole part":      {`deny contains json.marshal(input.object.spec)`, map[string]bool{`"app": "a"`: true, `"tty": true`: false}},
		"the time":          {`deny contains input.now`, map[string]bool{`"app": "a"`: false}},
		"untraceable":       {readPatterns["with another input"], map[string]bool{`"app": "a"`: false}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for text, want := range tt.recalled {
				recalled := false
				e := newEngineWithOptions(t, engine.Options{Observe: func(e engine.Evaluation) { recalled = e.Cached }},
					engine.Source{Name: "way", Rego: "package way\n" + tt.rego + "\n"})
				label, _, _ := strings.Cut(text, ":")
				for _, pod := range []string{readPatternPod, strings.Replace(readPatternPod, text, label+`: "other"`, 1)} {
					if _, err := e.Evaluate(t.Context(), podInput(t, pod)); err != nil {
						t.Fatal(err)
					}
				}
				if recalled != want {
					t.Errorf("with another %s it is recalled: %v, want %v", text, recalled, want)
				}
			}
		})
	}
}
