// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"sluice.dev/policies/engine"
)

// Hostile libraries are problems of theirs.
func FuzzLibrary(f *testing.F) {
	for _, seed := range []string{
		registriesV1, registriesWithoutAllowed, "package lib.a\nimport data.lib.a\nx := a.x\n", "package lib[\"a b\"]\n", "package lib.a\nimport data\nx := data[y]\n",
		"package lib.a\nx := data.lib\n", "\xff", "package lib.a\nimport data.lib.registries as lib\nx { lib[y] }\n", "package lib.registries\nx := http.send({})\n",
	} {
		f.Add(seed)
	}
	e, err := engine.New(engine.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, rego string) {
		if len(rego) > 4096 {
			return
		}
		library := newLibrary("fuzzed", 1, rego)
		report := e.Check(library, nil, newLibrary("registries", 1, registriesV1), newImporter("p", 1, usesMessage))
		if report.Active == (len(report.Problems) > 0) {
			t.Errorf("report %+v", report)
		}
		e.CheckTypes(library, engine.InputTypes{})
	})
}

// What the webhook looks up in hostile texts, without compiling them, is bounded and ends.
func FuzzImportsOfTexts(f *testing.F) {
	for _, seed := range []string{
		usesMessage, registriesV1, "package", "package lib.a # b\nimport data.lib.", "import data.lib.a[", "import data.lib.a as b\n", "package lib[\"a\"]\n",
		"package a\nimport data.lib\nx := lib\n", "\xff\npackage lib.registries",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rego string) {
		if len(rego) > 4096 {
			return
		}
		policy, known := engine.Source{Name: "p", Rego: rego}, newLibrary("registries", 1, registriesV1)
		if engine.LacksLibrary(policy, []engine.Source{known}) && !engine.LacksLibrary(policy, nil) {
			t.Error("a library that exists makes another one missing")
		}
		for _, name := range engine.Importers(known, []engine.Source{policy, known}) {
			if name != "p" {
				t.Errorf("importer %q", name)
			}
		}
		engine.Importers(newLibrary("fuzzed", 1, rego), []engine.Source{newImporter("q", 1, usesMessage)})
	})
}
