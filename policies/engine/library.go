// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

const (
	// teamLibraryFolder starts the file names of the libraries of teams. No policy's module has such a name.
	teamLibraryFolder = "library/"
	// maxImportedLibraries and maxImportedBytes limit the libraries that one module imports, itself or through
	// others: the last good version of a policy is kept with them in one object.
	maxImportedLibraries = 64
	maxImportedBytes     = 512 << 10
)

// teamLibrary is a version of a library of a team.
type teamLibrary struct {
	// source is complete, with its text.
	source Source
	digest digest
	// path is the package, as far as the text says it. module is the parsed text; nil if there are problems.
	path     ast.Ref
	module   *ast.Module
	problems []Problem
	reads    []libraryRead
}

// newTeamLibrary parses a library.
func newTeamLibrary(source Source) *teamLibrary {
	source.LastGood = nil
	l := &teamLibrary{source: source, digest: libraryDigest(source)}
	// A library's text must never end the process.
	defer func() {
		if cause := recover(); cause != nil {
			l.module, l.problems = nil, []Problem{{Message: fmt.Sprintf("the parser panicked: %v", cause)}}
		}
	}()
	l.path = libraryPackage(source.Rego)
	if l.problems = source.Rejections; len(l.problems) > 0 {
		return l
	}
	if l.problems = append(validateText(source.Rego), source.libraryProblems()...); len(l.problems) > 0 {
		return l
	}
	module, err := ast.ParseModuleWithOpts(l.file(), source.Rego, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
	if err != nil {
		l.problems = problemsFromOPA(err)
		return l
	}
	path := module.Package.Path
	if !path.HasPrefix(gatekeeperRoot) || len(path) == len(gatekeeperRoot) {
		l.problems = append(l.problems, problemAt(module.Package.Loc(),
			"the package of a library must be below lib, such as lib.registries, and is %s", strings.TrimPrefix(path.String(), "data.")))
	}
	if problem, ok := findDeepNesting(module); ok {
		l.problems = append(l.problems, problem)
	}
	if l.problems = append(l.problems, forbiddenReferences(module)...); len(l.problems) > 0 {
		return l
	}
	l.path, l.module, l.reads = path, module, libraryReads(module)
	return l
}

// libraryProblems returns a problem for each field that a library must not have. The schema of the kind refuses them.
func (s Source) libraryProblems() []Problem {
	var problems []Problem
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"spec.enforcement", s.Enforcement != ""},
		{"spec.parameters", len(s.Parameters) > 0},
		{"spec.parametersSchema", len(s.ParametersSchema) > 0},
		{"spec.replaces", s.Replaces != ""},
		{"spec.exemptions", len(s.Exemptions) > 0},
	} {
		if field.set {
			problems = append(problems, Problem{Message: field.name + " is set, which a library does not have"})
		}
	}
	return problems
}

// libraryDigest identifies what the importers of a library are compiled with.
func libraryDigest(source Source) digest {
	h := sha256.New()
	hashText(h, source.Name)
	hashText(h, source.Rego)
	return digest(h.Sum(nil))
}

// file returns the file name of the module.
func (l *teamLibrary) file() string { return teamLibraryFolder + l.source.Name }

// version describes the library in a message.
func (l *teamLibrary) version() string {
	if l.source.Generation == 0 {
		return "library " + l.source.Name
	}
	return fmt.Sprintf("library %s (generation %d)", l.source.Name, l.source.Generation)
}

// isOlder reports whether a library has precedence over another one with the same package. A library that is not
// created yet has the least.
func (l *teamLibrary) isOlder(other *teamLibrary) bool {
	if a, b := l.source.Created, other.source.Created; !a.Equal(b) {
		return !a.IsZero() && (b.IsZero() || a.Before(b))
	}
	return l.source.Name < other.source.Name
}

// overlaps reports whether one of two packages is, or contains, the other.
func overlaps(a, b ast.Ref) bool { return a.HasPrefix(b) || b.HasPrefix(a) }

// packageClashes returns a problem for each imported library whose package overlaps with that of the policy: the rules of
// both would be one.
func packageClashes(module *ast.Module, imported []*teamLibrary) []Problem {
	var problems []Problem
	for _, library := range imported {
		if overlaps(module.Package.Path, library.path) {
			problems = append(problems, problemAt(module.Package.Loc(),
				"the package is also that of %s, which the policy imports: choose another name", library.version()))
		}
	}
	return problems
}

// libraryRead is a place at which a module refers to data.lib or below.
type libraryRead struct {
	// path begins with data.lib, and has constant keys.
	path     ast.Ref
	location *ast.Location
	// isImport: the place is an import. It counts if a library serves it; else the uses of its name do.
	isImport bool
}

// libraryReads returns the places at which a module refers to the libraries of teams, also through the names of its
// imports. A local variable with the name of an import counts as the import.
func libraryReads(module *ast.Module) []libraryRead {
	var reads []libraryRead
	own := module.Package.Path
	add := func(ref ast.Ref, location *ast.Location, isImport bool) {
		path := ref.ConstantPrefix()
		if path.HasPrefix(gatekeeperRoot) && !path.HasPrefix(own) {
			reads = append(reads, libraryRead{path, location, isImport})
		}
	}
	imported := make(map[ast.Var]ast.Ref)
	for _, one := range module.Imports {
		if path, ok := one.Path.Value.(ast.Ref); ok {
			imported[one.Name()] = path
			add(path, one.Location, true)
		}
	}
	names := slices.Collect(maps.Keys(imported))
	for _, rule := range module.Rules {
		dependency.WalkRefs(rule, func(ref ast.Ref, location *ast.Location) {
			if root, isName := ref[0].Value.(ast.Var); isName && imported[root] != nil {
				ref = append(imported[root].Copy(), ref[1:]...)
			}
			add(ref, location, false)
		}, names...)
	}
	return reads
}
