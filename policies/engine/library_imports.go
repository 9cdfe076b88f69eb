// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// libraryPackage returns the package of a library's text, without parsing the rest; nil if it has none.
func libraryPackage(text string) ast.Ref {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "package ")
		if !ok {
			continue
		}
		path, err := ast.ParseRef("data." + strings.TrimSpace(name))
		if err != nil {
			return nil
		}
		return path
	}
	return nil
}

// Importers returns the sorted names of the sources that refer to a library themselves. They must have been compiled
// before, since hostile text takes long to parse.
func Importers(library Source, sources []Source) []string {
	path := libraryPackage(library.Rego)
	if path == nil {
		return nil
	}
	var names []string
	for _, source := range sources {
		if source.Name == library.Name || source.BuiltIn || !MayImport(source) {
			continue
		}
		p, _ := parseModule(source.Rego)
		if p.module == nil {
			continue
		}
		refers := func(read libraryRead) bool {
			return read.path.HasPrefix(path) || !read.isImport && path.HasPrefix(read.path)
		}
		if slices.ContainsFunc(libraryReads(p.module), refers) {
			names = append(names, source.Name)
		}
	}
	slices.Sort(names)
	return names
}

// importWord begins an import of a library.
const importWord = "import data.lib."

// LacksLibrary reports whether a source imports, in a line of its own, a package that none of the libraries among sources
// has. It does not parse the text.
func LacksLibrary(source Source, sources []Source) bool {
	if !strings.Contains(source.Rego, importWord) {
		return false
	}
	var packages []ast.Ref
	for _, other := range sources {
		if path := libraryPackage(other.Rego); other.IsLibrary() && path != nil {
			packages = append(packages, path)
		}
	}
	for line := range strings.Lines(source.Rego) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), importWord)
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
		path, err := ast.ParseRef("data.lib." + name)
		if err == nil && !slices.ContainsFunc(packages, path.HasPrefix) {
			return true
		}
	}
	return false
}
