// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// created returns a time of creation; a larger number is later.
func created(number int) time.Time { return time.Date(2026, 1, 1, 0, 0, number, 0, time.UTC) }

func newLibrary(name string, generation int64, rego string) engine.Source {
	return engine.Source{Name: name, Type: v1alpha1.PolicyTypeLibrary, Generation: generation, Rego: rego, Created: created(1)}
}

func newImporter(name string, generation int64, rego string) engine.Source {
	return engine.Source{Name: name, Generation: generation, Rego: rego, Created: created(2)}
}

const (
	registriesV1 = "package lib.registries\n\nmessage := \"v1\"\n\nallowed(image) := startswith(image, \"a/\")\n"
	registriesV2 = "package lib.registries\n\nmessage := \"v2\"\n\nallowed(image) := startswith(image, \"a/\")\n"
	// breaks the importers of allowed.
	registriesWithoutAllowed = "package lib.registries\n\nmessage := \"v3\"\n"
	usesMessage              = "package uses_message\n\nimport data.lib.registries\n\ndeny contains registries.message\n"
	usesAllowed              = "package uses_allowed\n\nimport data.lib.registries\n\ndeny contains sprintf(\"allowed %v\", [registries.allowed(\"a/b\")])\n"
)

// denialsOf returns the messages that deny a pod, each with its policy.
func denialsOf(t *testing.T, e *engine.Engine) []string {
	t.Helper()
	outcome, err := e.Evaluate(t.Context(), podInput(t, `{"kind": "Pod"}`))
	if err != nil {
		t.Fatal(err)
	}
	denials := []string{}
	for _, denial := range outcome.Denials {
		denials = append(denials, denial.Policy+": "+denial.Message)
	}
	return denials
}

// describeReports returns the reports as lines: name, generation in force, problems and warnings.
func describeReports(reports []engine.Report) []string {
	var lines []string
	for _, r := range reports {
		parts := []string{fmt.Sprintf("%s %d/%d", r.Name, r.EnforcedGeneration, r.Generation)}
		for _, problem := range r.Problems {
			parts = append(parts, problem.Error())
		}
		for _, warning := range r.Warnings {
			parts = append(parts, "warning "+warning.Error())
		}
		lines = append(lines, strings.Join(parts, " | "))
	}
	return lines
}

// Libraries and the policies that import them come into force together, or not at all.
func TestLibrariesAndImportersAreAUnit(t *testing.T) {
	type step struct {
		sources []engine.Source
		denials []string
		reports []string
	}
	message, allowed := newImporter("message", 1, usesMessage), newImporter("allowed", 1, usesAllowed)
	v1, v2, v3 := newLibrary("registries", 1, registriesV1), newLibrary("registries", 2, registriesV2), newLibrary("registries", 3, registriesWithoutAllowed)
	both := func(version string) []string {
		return []string{"allowed: allowed true", "message: " + version}
	}
	withCreated := func(source engine.Source, at int) engine.Source {
		source.Created = created(at)
		return source
	}
	for name, steps := range map[string][]step{
		"an update reaches all importers": {
			{[]engine.Source{v1, message, allowed}, both("v1"), []string{"allowed 1/1", "message 1/1", "registries 1/1"}},
			{[]engine.Source{v2, message, allowed}, both("v2"), []string{"allowed 1/1", "message 1/1", "registries 2/2"}},
			{[]engine.Source{v1, message, allowed}, both("v1"), []string{"allowed 1/1", "message 1/1", "registries 1/1"}},
		},
		"an update that breaks one of two importers": {
			{[]engine.Source{v1, message, allowed}, both("v1"), []string{"allowed 1/1", "message 1/1", "registries 1/1"}},
			{
				[]engine.Source{v3, message, allowed},
				both("v1"),
				[]string{
					"allowed 1/1 | warning allowed: library registries (generation 3) is not in force, since this one does not compile with it: " +
						"5:38: undefined function data.lib.registries.allowed",
					"message 1/1",
					"registries 1/3 | registries: policy allowed does not compile with this version: allowed:5:38: undefined function data.lib.registries.allowed",
				},
			},
			// Without the importer, and with one that fits.
			{[]engine.Source{v3, message}, []string{"message: v3"}, []string{"message 1/1", "registries 3/3"}},
			{
				[]engine.Source{v1, message, newImporter("allowed", 2, usesMessage)},
				[]string{"allowed: v1", "message: v1"},
				[]string{"allowed 2/2", "message 1/1", "registries 1/1"},
			},
		},
		"the importer that fits comes later": {
			{[]engine.Source{v1, allowed}, []string{"allowed: allowed true"}, []string{"allowed 1/1", "registries 1/1"}},
			{[]engine.Source{v3, newImporter("allowed", 2, usesMessage)}, []string{"allowed: v3"}, []string{"allowed 2/2", "registries 3/3"}},
		},
		"a broken importer does not hold a library back": {
			{[]engine.Source{v1, message}, []string{"message: v1"}, []string{"message 1/1", "registries 1/1"}},
			{
				[]engine.Source{v2, newImporter("message", 2, "package x\n\ndeny contains input.objekt\n")},
				[]string{"message: v2"},
				[]string{"message 1/2 | message:3:15: input.objekt does not exist; input has review, object, oldObject, workload, project, department, " +
					"nodePools, namespace, nodePool, now, use, parameters", "registries 2/2"},
			},
		},
		"a library that does not compile": {
			{[]engine.Source{v1, message}, []string{"message: v1"}, []string{"message 1/1", "registries 1/1"}},
			{
				[]engine.Source{newLibrary("registries", 2, "package lib.registries\n\nmessage := nothing\n"), message},
				[]string{"message: v1"},
				[]string{"message 1/1", "registries 1/2 | registries:3:12: var nothing is unsafe"},
			},
		},
		"a library with an error, and its importer": {
			{
				[]engine.Source{newLibrary("registries", 1, "package lib.registries\n\nmessage := \n"), message},
				[]string{
					"message: the policy message could not be evaluated: no version of it is in force: " +
						"message:5:15: data.lib.registries.message is in library registries (generation 1), which is not in force: see its status",
				},
				[]string{
					"message 0/1 | message:5:15: data.lib.registries.message is in library registries (generation 1), which is not in force: see its status",
					"registries 0/1 | registries:4:1: unexpected eof token | registries:4:1: unexpected eof token: " +
						"expected rule value term (e.g., message := <VALUE> { ... })",
				},
			},
		},
		"an older library that does not compile takes no package": {
			{[]engine.Source{v1}, []string{}, []string{"registries 1/1"}},
			{
				[]engine.Source{withCreated(newLibrary("other", 1, "package lib.registries\n\nmessage := data.lib.missing.text\n"), 0), v1},
				[]string{},
				[]string{"other 0/1 | other:3:12: data.lib.missing.text does not exist: no library has this package; apply the library first", "registries 1/1"},
			},
		},
		"a deleted library": {
			{[]engine.Source{v1, message, allowed}, both("v1"), []string{"allowed 1/1", "message 1/1", "registries 1/1"}},
			{[]engine.Source{message, allowed}, both("v1"), []string{
				"allowed 1/1 | allowed:5:38: data.lib.registries.allowed does not exist: no library has this package; apply the library first",
				"message 1/1 | message:5:15: data.lib.registries.message does not exist: no library has this package; apply the library first",
			}},
			// Another library of the package with which one of them does not compile.
			{[]engine.Source{newLibrary("other", 1, registriesWithoutAllowed), message, allowed}, []string{"allowed: allowed true", "message: v3"}, []string{
				"allowed 1/1 | allowed:5:38: undefined function data.lib.registries.allowed", "message 1/1", "other 1/1",
			}},
		},
		"a package of two libraries": {
			{
				[]engine.Source{withCreated(newLibrary("younger", 1, registriesV2), 3), withCreated(newLibrary("older", 1, registriesV1), 2), message},
				[]string{"message: v1"},
				[]string{
					"message 1/1", "older 1/1",
					"younger 0/1 | younger:1:1: library older, which is older, has the package lib.registries: choose another name",
				},
			},
			{[]engine.Source{withCreated(newLibrary("younger", 1, registriesV2), 3), message}, []string{"message: v2"}, []string{"message 1/1", "younger 1/1"}},
			{
				[]engine.Source{newLibrary("b", 1, registriesV2), newLibrary("a", 1, registriesV1), message},
				[]string{"message: v1"},
				[]string{"a 1/1", "b 0/1 | b:1:1: library a, which is older, has the package lib.registries: choose another name", "message 1/1"},
			},
		},
		"a package within another": {
			{
				[]engine.Source{newLibrary("a", 1, "package lib.x\n\ny := 1\n"), newLibrary("b", 1, "package lib.x.y\n\nz := 1\n")},
				[]string{},
				[]string{"a 1/1", "b 0/1 | b:1:1: library a, which is older, has the package lib.x: choose another name"},
			},
		},
		"a library through another": {
			{
				[]engine.Source{
					v1, newLibrary("between", 1, "package lib.between\n\nimport data.lib.registries\n\ntext := registries.message\n"),
					newImporter("p", 1, "package p\n\nimport data.lib\n\ndeny contains lib.between.text\n"),
				},
				[]string{"p: v1"},
				[]string{"between 1/1", "p 1/1", "registries 1/1"},
			},
			{
				[]engine.Source{
					v2, newLibrary("between", 1, "package lib.between\n\nimport data.lib.registries\n\ntext := registries.message\n"),
					newImporter("p", 1, "package p\n\nimport data.lib\n\ndeny contains lib.between.text\n"),
				},
				[]string{"p: v2"},
				[]string{"between 1/1", "p 1/1", "registries 2/2"},
			},
			{
				[]engine.Source{
					newLibrary("registries", 4, "package lib.registries\n\nother := 1\n"),
					newLibrary("between", 1, "package lib.between\n\nimport data.lib.registries\n\ntext := registries.message\n"),
					newImporter("p", 1, "package p\n\nimport data.lib\n\ndeny contains lib.between.text\n"),
				},
				[]string{"p: v2"},
				[]string{
					"between 1/1 | warning between: library registries (generation 4) is not in force, since this one does not compile with it: " +
						"5:9: data.lib.registries.message does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib",
					"p 1/1 | warning p: library registries (generation 4) is not in force, since this one does not compile with it: " +
						"5:15: data.lib.between.text is in library between (generation 1), which is not in force: see its status",
					"registries 2/4 | registries: library between does not compile with this version: between:5:9: data.lib.registries.message does not exist; " +
						"policies see no data but their own rules, data.config, data.objects and data.sluice.lib" +
						" | registries: policy p does not compile with this version: p:5:15: data.lib.between.text is in library between (generation 1), which is not in force: see its status",
				},
			},
		},
		"a cycle": {
			{
				[]engine.Source{
					newLibrary("a", 1, "package lib.a\n\nimport data.lib.b\n\nx := b.x\n\ny := 1\n"), newLibrary("b", 1, "package lib.b\n\nimport data.lib.c\n\nx := c.x\n"),
					newLibrary("c", 1, "package lib.c\n\nimport data.lib.a\n\nx := a.y\n"),
				},
				[]string{},
				[]string{
					"a 0/1 | a:3:1: libraries import each other: a imports b imports c imports a",
					"b 0/1 | b:3:1: libraries import each other: b imports c imports a imports b",
					"c 0/1 | c:3:1: libraries import each other: c imports a imports b imports c",
				},
			},
		},
		"packages that a library must not have": {
			{
				[]engine.Source{newLibrary("a", 1, "package lib\n"), newLibrary("b", 1, "package sluice.lib.b\n"), newLibrary("c", 1, "package other\n"), newLibrary("d", 1, "no rego")},
				[]string{},
				[]string{
					"a 0/1 | a:1:1: the package of a library must be below lib, such as lib.registries, and is lib",
					"b 0/1 | b:1:1: the package of a library must be below lib, such as lib.registries, and is sluice.lib.b",
					"c 0/1 | c:1:1: the package of a library must be below lib, such as lib.registries, and is other",
					"d 0/1 | d:1:1: package expected | d:1:4: var cannot be used for rule name",
				},
			},
		},
		"a policy in the package of a library": {
			{
				[]engine.Source{v1, newImporter("p", 1, "package lib.registries.deny\n\nimport data.lib.registries\n\ndeny contains registries.message\n")},
				[]string{"p: the policy p could not be evaluated: no version of it is in force: " +
					"p:1:1: the package is also that of library registries (generation 1), which the policy imports: choose another name"},
				[]string{"p 0/1 | p:1:1: the package is also that of library registries (generation 1), which the policy imports: choose another name", "registries 1/1"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			for i, s := range steps {
				reports := e.Update(s.sources)
				if diff := cmp.Diff(s.reports, describeReports(reports)); diff != "" {
					t.Errorf("step %d: reports (-want +got):\n%s", i, diff)
				}
				if diff := cmp.Diff(s.denials, denialsOf(t, e)); diff != "" {
					t.Errorf("step %d: denials (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// After a restart, the last good versions come with the sources: the policy with its libraries, and the library.
func TestLibrariesAfterARestart(t *testing.T) {
	v1, v3 := newLibrary("registries", 1, registriesV1), newLibrary("registries", 3, registriesWithoutAllowed)
	kept := newImporter("allowed", 1, usesAllowed)
	kept.Libraries = []engine.Source{v1}
	allowed := newImporter("allowed", 1, usesAllowed)
	allowed.LastGood = &kept
	breaking := v3
	breaking.LastGood = &v1
	running := newEngine(t, v1, newImporter("allowed", 1, usesAllowed))
	want := currentDigest(t, running)
	for name, sources := range map[string][]engine.Source{
		"the library was deleted":             {allowed},
		"the library is broken for a policy":  {breaking, allowed},
		"the library was replaced meanwhile":  {v3, allowed},
		"nothing changed":                     {v1, allowed},
		"the library has errors":              {newLibrary("registries", 2, "package lib.registries\n\nx := y\n"), allowed},
		"the policy's version has errors too": {v1, func() engine.Source { s := newImporter("allowed", 2, brokenSource); s.LastGood = &kept; return s }()},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			reports := e.Update(sources)
			if diff := cmp.Diff([]string{"allowed: allowed true"}, denialsOf(t, e)); diff != "" {
				t.Errorf("denials (-want +got):\n%s\n%q", diff, describeReports(reports))
			}
			if got := currentDigest(t, e); got != want {
				t.Errorf("the digest %s differs from that of a process that runs since before, %s", got, want)
			}
		})
	}
}

func currentDigest(t *testing.T, e *engine.Engine) string {
	t.Helper()
	set, err := e.Current()
	if err != nil {
		t.Fatal(err)
	}
	return set.Digest()
}

// The digests of a set and of a policy cover the libraries that the policy imports, and no others.
func TestDigestCoversImportedLibraries(t *testing.T) {
	version := func(sources ...engine.Source) string {
		set, err := newEngine(t, sources...).Current()
		if err != nil {
			t.Fatal(err)
		}
		v, _ := set.Version("message")
		return set.Digest() + " " + v.Digest
	}
	message, other := newImporter("message", 1, usesMessage), newLibrary("other", 1, "package lib.other\n\nx := 1\n")
	v1 := version(newLibrary("registries", 1, registriesV1), message)
	if version(newLibrary("registries", 7, registriesV1), message, other) != v1 {
		t.Error("another library, or another generation, changes the digest")
	}
	a, b := strings.Fields(v1), strings.Fields(version(newLibrary("registries", 1, registriesV2), message))
	if a[0] == b[0] || a[1] == b[1] {
		t.Errorf("the library changes no digest: %v, %v", a, b)
	}
	set, err := newEngine(t, newLibrary("registries", 1, registriesV1), message, other).Current()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, source := range set.Imports("message") {
		names = append(names, source.Name+" "+source.Rego)
	}
	if diff := cmp.Diff([]string{"registries " + registriesV1}, names); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
}
