// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice.dev/policies/engine"
)

// Two hundred libraries in a chain of twenty rows are compiled once, and only what changed again.
func TestManyLibraries(t *testing.T) {
	const count = 200
	sources := make([]engine.Source, 0, 2*count)
	for i := range count {
		text := fmt.Sprintf("package lib.l%d\n\nvalue := \"%d\"\n", i, i)
		if i >= 10 {
			text = fmt.Sprintf("package lib.l%d\n\nimport data.lib.l%d\n\nvalue := concat(\" \", [l%d.value, \"%d\"])\n", i, i-10, i-10, i)
		}
		sources = append(sources, newLibrary(fmt.Sprintf("l%d", i), 1, text))
	}
	for i := range count {
		sources = append(sources, newImporter(fmt.Sprintf("p%d", i), 1, fmt.Sprintf("package p\n\nimport data.lib.l%d\n\ndeny contains l%d.value\n", i, i)))
	}
	e := newEngine(t, sources...)
	denials := denialsOf(t, e)
	if want := "p25: 5 15 25"; len(denials) != count || !slices.Contains(denials, want) {
		t.Errorf("%d denials without %q", len(denials), want)
	}
	sources[5].Rego, sources[5].Generation = "package lib.l5\n\nvalue := \"new\"\n", 2
	e.Update(sources)
	if want := "p25: new 15 25"; !slices.Contains(denialsOf(t, e), want) {
		t.Errorf("the denials do not have %q", want)
	}
}

// What one module may import is limited, since a policy is kept with its libraries.
func TestTooManyImports(t *testing.T) {
	sources := []engine.Source{}
	var imports, uses strings.Builder
	for i := range 65 {
		sources = append(sources, newLibrary(fmt.Sprintf("l%d", i), 1, fmt.Sprintf("package lib.l%d\n\nx := 1\n", i)))
		fmt.Fprintf(&imports, "import data.lib.l%d\n", i)
		fmt.Fprintf(&uses, "deny contains \"x\" if l%d.x == 2\n", i)
	}
	sources = append(sources, newImporter("p", 1, "package p\n\n"+imports.String()+uses.String()))
	report := describeReports(newEngine(t).Update(sources))
	if want := "it imports 65 libraries of"; !strings.Contains(report[len(report)-1], want) {
		t.Errorf("report %q without %q", report[len(report)-1], want)
	}
}
