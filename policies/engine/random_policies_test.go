// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"sluice.dev/policies/engine"
)

// randomPolicies is the number of random policies that a test run tries; SLUICE_RANDOM_POLICIES sets another.
const randomPolicies = 300

// A cached result equals a fresh one, for random policies and pods that differ in one place. The first seed is
// fixed, so that a failure can be repeated; it prints its policy. Guards invariant 1 of the design: the same pod
// and policies give the same answer.
func TestCachedResultsOfRandomPoliciesEqualFreshResults(t *testing.T) {
	number := randomPolicies
	if text := os.Getenv("SLUICE_RANDOM_POLICIES"); text != "" {
		var err error
		if number, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var pods []any
	for _, text := range []string{readPatternPod, equalValuesPod} {
		var pod any
		if err := json.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	compiled := 0
	for seed := uint64(1); compiled < number; seed++ {
		if seed > 20*uint64(number) {
			t.Fatalf("%d of %d random policies compile", compiled, seed)
		}
		if requireRandomPolicy(t, seed, pods) {
			compiled++
		}
		if t.Failed() {
			return
		}
	}
}

// FuzzCachedResults compares cached and fresh results for random policies without end.
func FuzzCachedResults(f *testing.F) {
	var pod any
	if err := json.Unmarshal([]byte(readPatternPod), &pod); err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { requireRandomPolicy(t, seed, []any{pod}) })
}

// requireRandomPolicy fails if a cached result of the policy of a seed differs. It returns false if the policy does
// not compile.
func requireRandomPolicy(t *testing.T, seed uint64, pods []any) bool {
	t.Helper()
	text := newRandomPolicy(seed)
	source := engine.Source{Name: "random", Rego: text}
	_, reports, err := engine.Compile([]engine.Source{source}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(reports[0].Problems) > 0 {
		return false
	}
	pair := newEnginePair(t, engine.Options{}, source)
	random := rand.New(rand.NewPCG(seed, 2))
	for _, pod := range pods {
		others := variants(pod)
		pair.requireEqual(t, pod)
		for range 12 {
			if other := others[random.IntN(len(others))]; other != nil {
				pair.requireEqual(t, other)
			}
		}
		pair.requireEqual(t, pod)
	}
	if t.Failed() {
		t.Logf("seed %d:\n%s", seed, text)
	}
	return true
}

// policyGenerator writes a random policy.
type policyGenerator struct {
	*rand.Rand
	// rules and functions count those that are written already: later ones may use them.
	rules, functions int
	variables        int
}

// newRandomPolicy returns the policy of a seed.
func newRandomPolicy(seed uint64) string {
	g := &policyGenerator{Rand: rand.New(rand.NewPCG(seed, 1))}
	var text strings.Builder
	text.WriteString("package random\n\n")
	for range g.IntN(3) {
		body := g.body(2, "x", nil)
		fmt.Fprintf(&text, "f%d(x) := %s if {\n%s}\n\n", g.functions, g.value(2, []string{"x"}), body)
		g.functions++
	}
	for range g.IntN(4) {
		text.WriteString(g.rule() + "\n")
		g.rules++
	}
	for range 1 + g.IntN(2) {
		variables := []string{}
		body := g.bodyOf(2, &variables)
		fmt.Fprintf(&text, "deny contains json.marshal(%s) if {\n%s}\n\n", g.value(2, variables), body)
	}
	return text.String()
}

// rule returns a complete rule, with else or a default, or partial rules.
func (g *policyGenerator) rule() string {
	name := fmt.Sprintf("r%d", g.rules)
	variables := []string{}
	body := g.bodyOf(2, &variables)
	value := g.value(2, variables)
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf("%s contains %s if {\n%s}\n", name, value, body)
	case 1:
		return fmt.Sprintf("%s[json.marshal(%s)] := %s if {\n%s}\n", name, value, value, body)
	case 2:
		return fmt.Sprintf("%s := %s if {\n%s} else := %s\n", name, value, body, g.value(1, nil))
	case 3:
		return fmt.Sprintf("default %s := \"none\"\n\n%s := %s if {\n%s}\n", name, name, value, body)
	}
	return fmt.Sprintf("%s := %s if {\n%s}\n", name, value, body)
}

// body returns the expressions of a body in which a variable is bound.
func (g *policyGenerator) body(depth int, variable string, variables []string) string {
	all := append(append([]string(nil), variables...), variable)
	return g.bodyOf(depth, &all) + "\t_ = " + variable + "\n"
}

// bodyOf returns the expressions of a body, and adds the variables that they bind. Each variable is used, as the
// compiler demands, in a way that reads nothing.
func (g *policyGenerator) bodyOf(depth int, variables *[]string) string {
	var text strings.Builder
	before := len(*variables)
	for range 1 + g.IntN(3) {
		text.WriteString("\t" + g.expression(depth, variables) + "\n")
	}
	for _, variable := range (*variables)[before:] {
		text.WriteString("\t_ = " + variable + "\n")
	}
	return text.String()
}

func (g *policyGenerator) expression(depth int, variables *[]string) string {
	known := *variables
	if depth > 0 {
		name := fmt.Sprintf("v%d", g.variables)
		g.variables++
		switch g.IntN(10) {
		case 0, 1:
			collection := g.collection(depth-1, known)
			*variables = append(known, name)
			return fmt.Sprintf("some %s in %s", name, collection)
		case 2:
			collection := g.collection(depth-1, known)
			*variables = append(known, name, name+"k")
			return fmt.Sprintf("some %sk, %s in %s", name, name, collection)
		case 3:
			value := g.value(depth-1, known)
			*variables = append(known, name)
			return fmt.Sprintf("%s := %s", name, value)
		case 4:
			collection := g.collection(depth-1, known)
			*variables = append(known, name)
			return fmt.Sprintf("%s := %s[_]", name, collection)
		case 5:
			return fmt.Sprintf("every %s in %s {\n%s\t}", name, g.collection(depth-1, known), g.body(depth-1, name, known))
		}
	}
	switch g.IntN(6) {
	case 0:
		return "not " + g.value(depth-1, known)
	case 1:
		return g.value(depth-1, known) + " != " + g.value(depth-1, known)
	case 2:
		return g.value(depth-1, known) + " in " + g.collection(depth-1, known)
	case 3:
		return fmt.Sprintf("count(%s) > %d", g.collection(depth-1, known), g.IntN(3))
	case 4:
		return g.value(depth-1, known)
	}
	return g.value(depth-1, known) + " == " + g.value(depth-1, known)
}

var (
	randomScalars = []string{
		"input.object.metadata.name", "input.object.metadata.labels.app", "input.object.metadata.labels.b", "input.object.metadata.annotations.app",
		"input.object.spec.securityContext.runAsUser", "input.object.spec.containers[0].name", "input.object.spec.containers[1].image",
		"input.object.spec.containers[0].tty", "input.review.object.metadata.labels.app", "input.object.spec.initContainers[0].env[0].value",
		"input.workload.type", "input.project.name", `"a"`, `"b"`, `"main"`, `"x"`, "1", "true",
	}
	randomCollections = []string{
		"input.object.spec.containers", "input.object.spec.initContainers", "input.object.metadata.labels", "input.object.metadata.annotations",
		"input.object.spec.containers[0].env", "input.object.spec.containers[0].command", "input.object.spec", "input.review.object.spec.containers",
		`["a", "main", "tty"]`, `object.get(input.object, "metadata", {})`,
	}
	randomFields = []string{"name", "image", "tty", "env", "value", "app"}
)

func pick[T any](g *policyGenerator, all []T) T { return all[g.IntN(len(all))] }

// collection returns an expression that is mostly a list or an object.
func (g *policyGenerator) collection(depth int, variables []string) string {
	if depth > 0 {
		switch g.IntN(8) {
		case 0:
			return fmt.Sprintf("array.concat(%s, %s)", pick(g, randomCollections[:2]), pick(g, randomCollections[:2]))
		case 1:
			inner := append([]string(nil), variables...)
			body := g.bodyOf(depth-1, &inner)
			return fmt.Sprintf("[%s | %s]", g.value(depth-1, inner), strings.ReplaceAll(strings.TrimSpace(body), "\n", "; "))
		case 2:
			inner := append([]string(nil), variables...)
			body := g.bodyOf(depth-1, &inner)
			return fmt.Sprintf("{%s | %s}", g.value(depth-1, inner), strings.ReplaceAll(strings.TrimSpace(body), "\n", "; "))
		case 3:
			return fmt.Sprintf("object.union(%s, %s)", pick(g, randomCollections[2:4]), pick(g, randomCollections[2:4]))
		case 4:
			return fmt.Sprintf("object.keys(%s)", pick(g, randomCollections[2:4]))
		}
	}
	if g.rules > 0 && g.IntN(5) == 0 {
		return fmt.Sprintf("r%d", g.IntN(g.rules))
	}
	if len(variables) > 0 && g.IntN(5) == 0 {
		return pick(g, variables)
	}
	return pick(g, randomCollections)
}

// value returns an expression.
func (g *policyGenerator) value(depth int, variables []string) string {
	if len(variables) > 0 && g.IntN(2) == 0 {
		variable := pick(g, variables)
		if g.IntN(2) == 0 {
			variable += "." + pick(g, randomFields)
		}
		return variable
	}
	if depth > 0 {
		switch g.IntN(9) {
		case 0:
			return fmt.Sprintf("[%s, %s]", g.value(depth-1, variables), g.value(depth-1, variables))
		case 1:
			return fmt.Sprintf("{\"name\": %s, \"it\": %s}", g.value(depth-1, variables), g.value(depth-1, variables))
		case 2:
			return fmt.Sprintf("object.get(%s, %q, %s)", g.collection(depth-1, variables), pick(g, randomFields), g.value(depth-1, variables))
		case 3:
			return g.collection(depth, variables)
		case 4:
			return fmt.Sprintf("count(%s)", g.collection(depth-1, variables))
		case 5:
			return fmt.Sprintf("sprintf(\"%%v\", [%s])", g.value(depth-1, variables))
		case 6:
			if g.functions > 0 {
				return fmt.Sprintf("f%d(%s)", g.IntN(g.functions), g.value(depth-1, variables))
			}
		case 7:
			return fmt.Sprintf("{\"name\": %s, \"it\": %s}.%s", g.value(depth-1, variables), g.value(depth-1, variables), pick(g, []string{"name", "it"}))
		}
	}
	if g.rules > 0 && g.IntN(4) == 0 {
		return fmt.Sprintf("r%d", g.IntN(g.rules))
	}
	return pick(g, randomScalars)
}
