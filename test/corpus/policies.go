// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corpus has policies and pods that take time, memory or words without bound, so that the engine,
// the check of policies, the handlers of pods and the webhook's binary are tested with the same ones.
package corpus

import (
	"fmt"
	"strings"
)

// Policies are rules that take time without end, by name, as a mistake of their author can.
var Policies = map[string]string{
	"endless search":        `deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a + b < 0 }`,
	"nested comprehensions": `deny contains "x" if count([1 | some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a < b]) < 0`,
	"growing set":           `deny contains "x" if count({[a, b, c] | some a in numbers.range(1, 1000); some b in numbers.range(1, 1000); some c in numbers.range(1, 1000)}) < 0`,
	"many findings": `deny contains message if { some a in numbers.range(1, 100000); message := sprintf("%d", [a]) }
deny contains "x" if { some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a * b < 0 }`,
	"large range":          `deny contains "x" if count(numbers.range(1, 1000000000)) > 0`,
	"many prefixes":        `deny contains "x" if { p := {sprintf("a%d", [i]) | some i in numbers.range(1, 100000)}; some _ in numbers.range(1, 100000); strings.any_prefix_match("b", p) }`,
	"a graph without end":  `deny contains "x" if { g := {a: [b | some b in numbers.range(1, 1000)] | some a in numbers.range(1, 1000)}; count(graph.reachable(g, [1])) < 0 }`,
	"calls of calls":       callsOfCalls(30),
	"every within every":   `deny contains "x" if every a in numbers.range(1, 10000) { every b in numbers.range(1, 10000) { a + b > 0 } }`,
	"a storm of with":      "deny contains \"x\" if { some a in numbers.range(1, 1000000 / 10); n < 0 with input as {\"project\": a} }\nn := sum([i | some i in numbers.range(1, 1000)]) + input.project",
	"each other container": `deny contains "x" if { some a, _ in numbers.range(1, 5120); some b, _ in numbers.range(1, 5120); a < b; a == b }`,
}

// callsOfCalls returns functions of which each calls the next twice, with different arguments.
func callsOfCalls(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "f%d(x) := f%d(x + 1) + f%d(x * 2)\n", i, i+1, i+1)
	}
	return text.String() + fmt.Sprintf("f%d(x) := x\ndeny contains \"x\" if f0(1) < 0\n", n)
}
