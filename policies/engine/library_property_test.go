// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/policies/engine"
)

// libraryHistory is a random sequence of applied and deleted libraries and policies.
type libraryHistory struct {
	generation int64
	sources    map[string]engine.Source
	// versions are all sources that were ever applied, by name and generation.
	versions map[string]engine.Source
	engine   *engine.Engine
}

func versionKey(name string, generation int64) string { return fmt.Sprintf("%s/%d", name, generation) }

// randomModule returns a module that defines and reads random functions of libraries a, b and c; sometimes it does not
// compile.
func randomModule(t *rapid.T, name string, isLibrary bool) string {
	var text, imports strings.Builder
	var reads []string
	for _, library := range []string{"a", "b", "c"} {
		if library == name || !rapid.Bool().Draw(t, "imports "+library) {
			continue
		}
		fmt.Fprintf(&imports, "import data.lib.%s\n", library)
		reads = append(reads, fmt.Sprintf("%s.f%d(1)", library, rapid.IntRange(0, 1).Draw(t, "function")))
	}
	if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
		reads = append(reads, "nothing")
	}
	list := "[" + strings.Join(reads, ", ") + "]"
	if !isLibrary {
		return fmt.Sprintf("package p\n\n%s\ndeny contains sprintf(\"%%v\", [%s])\n", imports.String(), list)
	}
	fmt.Fprintf(&text, "package lib.%s\n\n%s", rapid.SampledFrom([]string{name, name, name, "a"}).Draw(t, "package"), imports.String())
	marker := rapid.IntRange(0, 99).Draw(t, "marker")
	for i := range 2 {
		if rapid.IntRange(0, 3).Draw(t, "defines") > 0 {
			fmt.Fprintf(&text, "\nf%d(x) := [x, %d, %s]\n", i, marker, list)
		}
	}
	if len(reads) > 0 {
		fmt.Fprintf(&text, "\nused := %s\n", list)
	}
	return text.String()
}

func (h *libraryHistory) step(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "p", "q"}).Draw(t, "name")
	isLibrary := name < "p"
	if rapid.IntRange(0, 5).Draw(t, "delete") == 0 {
		delete(h.sources, name)
		return
	}
	h.generation++
	source := newImporter(name, h.generation, randomModule(t, name, isLibrary))
	if isLibrary {
		source = newLibrary(name, h.generation, source.Rego)
	}
	h.sources[name], h.versions[versionKey(name, h.generation)] = source, source
}

func (h *libraryHistory) list() []engine.Source {
	return slices.SortedFunc(maps.Values(h.sources), func(a, b engine.Source) int { return strings.Compare(a.Name, b.Name) })
}

// After any sequence of changes, each policy in force compiled with the libraries that it has; all policies without
// problems have the same version of a library, the one in force; and a policy that was in force once stays in force until it
// is deleted, also after a restart. Guards invariants 4 and 10 of the design.
func TestLibrariesInForceCompiledTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := engine.New(engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := &libraryHistory{sources: make(map[string]engine.Source), versions: make(map[string]engine.Source), engine: e}
		active := make(map[string]bool)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			h.step(t)
			reports := h.engine.Update(h.list())
			for _, report := range reports {
				if active[report.Name] && !report.Active && report.Name >= "p" {
					t.Fatalf("%s is no longer in force: %q", report.Name, describeReports(reports))
				}
				active[report.Name] = report.Active
			}
			for name := range active {
				if _, ok := h.sources[name]; !ok {
					delete(active, name)
				}
			}
			h.requireCompiled(t, reports)
			h.requireRestart(t, reports)
			again := describeReports(h.engine.Update(h.list()))
			if diff := cmp.Diff(describeReports(reports), again); diff != "" {
				t.Fatalf("an update without changes (-before +after):\n%s", diff)
			}
		}
	})
}

func (h *libraryHistory) requireCompiled(t *rapid.T, reports []engine.Report) {
	set, err := h.engine.Current()
	if err != nil {
		t.Fatal(err)
	}
	inForce := make(map[string]string)
	for _, library := range h.engine.Libraries() {
		inForce[library.Name] = library.Rego
	}
	for _, report := range reports {
		if report.Name < "p" {
			if report.Active != (inForce[report.Name] != "") || report.Active && h.versions[versionKey(report.Name, report.EnforcedGeneration)].Rego != inForce[report.Name] {
				t.Fatalf("library %s: %+v, and %q is in force", report.Name, report, inForce[report.Name])
			}
			continue
		}
		if !report.Active {
			continue
		}
		imports := set.Imports(report.Name)
		alone := append(slices.Clone(imports), h.versions[versionKey(report.Name, report.EnforcedGeneration)])
		_, compiled, err := engine.Compile(alone, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range compiled {
			if len(one.Problems) > 0 {
				t.Fatalf("%s does not compile with its libraries: %q", report.Name, one.Problems)
			}
		}
		for _, library := range imports {
			if len(report.Problems) == 0 && inForce[library.Name] != library.Rego {
				t.Fatalf("%s has another version of %s than the one in force", report.Name, library.Name)
			}
		}
	}
}

// requireRestart starts another engine with the versions that lifecycle keeps.
func (h *libraryHistory) requireRestart(t *rapid.T, reports []engine.Report) {
	set, err := h.engine.Current()
	if err != nil {
		t.Fatal(err)
	}
	restarted, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sources := h.list()
	for i := range sources {
		at := slices.IndexFunc(reports, func(r engine.Report) bool { return r.Name == sources[i].Name })
		if kept, ok := h.versions[versionKey(sources[i].Name, reports[at].EnforcedGeneration)]; ok && reports[at].Active {
			kept.Libraries = set.Imports(kept.Name)
			sources[i].LastGood = &kept
		}
	}
	after := restarted.Update(sources)
	for i, report := range reports {
		if report.Name >= "p" && report.Active && !after[i].Active {
			t.Fatalf("%s is not in force after a restart:\n%q\n%q", report.Name, describeReports(reports), describeReports(after))
		}
	}
}
