// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// libraryWorld is one version of each library. Modules are compiled with those that compile in it.
type libraryWorld struct {
	// libraries are the versions that were chosen, the oldest library first.
	libraries []*teamLibrary
	// problems are why a library cannot be imported, by name.
	problems map[string][]Problem
	// imports are the libraries that a library imports itself, by name.
	imports map[string][]*teamLibrary
	// holders are the libraries whose package a younger one has, by name.
	holders map[string]bool
}

// newLibraryWorld resolves and compiles libraries. Of two with overlapping packages the older can be imported, if it compiles.
func (u *updater) newLibraryWorld(chosen map[string]*teamLibrary) *libraryWorld {
	broken := make(map[string][]Problem)
	for {
		w := u.compileWorld(chosen, broken)
		found := len(broken)
		for name := range w.holders {
			if problems := w.problems[name]; len(problems) > 0 {
				broken[name] = problems
			}
		}
		if len(broken) == found {
			return w
		}
	}
}

// compileWorld is newLibraryWorld without the libraries that are known not to compile: they hold no package.
func (u *updater) compileWorld(chosen map[string]*teamLibrary, broken map[string][]Problem) *libraryWorld {
	w := &libraryWorld{
		libraries: slices.SortedFunc(maps.Values(chosen), func(a, b *teamLibrary) int {
			switch {
			case a == b:
				return 0
			case a.isOlder(b):
				return -1
			}
			return 1
		}),
		problems: make(map[string][]Problem), imports: make(map[string][]*teamLibrary), holders: make(map[string]bool),
	}
	for i, library := range w.libraries {
		name := library.source.Name
		if w.problems[name] = library.problems; len(broken[name]) > 0 {
			w.problems[name] = broken[name]
		} else if library.module != nil {
			w.problems[name] = u.packageProblems(w, library, w.libraries[:i])
		}
	}
	for _, library := range w.libraries {
		if w.canImport(library) {
			w.imports[library.source.Name], _ = w.resolve(library.reads)
		}
	}
	w.rejectCycles()
	done := make(map[string]bool)
	for _, library := range w.libraries {
		u.compileInWorld(w, library, done)
	}
	return w
}

// packageProblems returns why a library must not have its package.
func (u *updater) packageProblems(w *libraryWorld, library *teamLibrary, older []*teamLibrary) []Problem {
	for _, shipped := range u.engine.compiler.libraries {
		if overlaps(library.path, shipped.Package.Path) {
			return []Problem{problemAt(library.module.Package.Loc(), "the package is Sluice's; choose another name")}
		}
	}
	for _, other := range older {
		if w.canImport(other) && overlaps(library.path, other.path) {
			w.holders[other.source.Name] = true
			return []Problem{problemAt(library.module.Package.Loc(),
				"library %s, which is older, has the package %s: choose another name", other.source.Name, packageName(other.path))}
		}
	}
	return nil
}

// packageName returns a package as modules write it.
func packageName(path ast.Ref) string { return strings.TrimPrefix(path.String(), "data.") }

// canImport reports whether modules can import a library in this world.
func (w *libraryWorld) canImport(library *teamLibrary) bool {
	return library.module != nil && len(w.problems[library.source.Name]) == 0
}

// resolve returns the libraries to which references lead, and a problem for each reference that leads to none.
func (w *libraryWorld) resolve(reads []libraryRead) ([]*teamLibrary, []Problem) {
	var found []*teamLibrary
	var problems []Problem
	for _, read := range reads {
		var served, broken *teamLibrary
		for _, library := range w.libraries {
			// A reference above a package reads the whole package.
			leads := read.path.HasPrefix(library.path) || !read.isImport && library.path.HasPrefix(read.path)
			switch {
			case library.path == nil || !leads:
			case w.canImport(library):
				served = library
				if !slices.Contains(found, library) {
					found = append(found, library)
				}
			default:
				broken = library
			}
		}
		switch {
		case served != nil || read.isImport:
		case broken != nil:
			problems = append(problems, problemAt(read.location,
				"%s is in %s, which is not in force: see its status", read.path, broken.version()))
		default:
			problems = append(problems, problemAt(read.location,
				"%s does not exist: no library has this package; apply the library first", read.path))
		}
	}
	slices.SortFunc(found, func(a, b *teamLibrary) int { return strings.Compare(a.source.Name, b.source.Name) })
	return found, problems
}

// closure returns libraries with those that they import, sorted by name.
func (w *libraryWorld) closure(direct []*teamLibrary) []*teamLibrary {
	all := make(map[string]*teamLibrary)
	var add func([]*teamLibrary)
	add = func(libraries []*teamLibrary) {
		for _, library := range libraries {
			if all[library.source.Name] == nil {
				all[library.source.Name] = library
				add(w.imports[library.source.Name])
			}
		}
	}
	add(direct)
	return slices.SortedFunc(maps.Values(all), func(a, b *teamLibrary) int { return cmp.Compare(a.source.Name, b.source.Name) })
}

// rejectCycles sets a problem for each library that imports itself through others.
func (w *libraryWorld) rejectCycles() {
	cycles := make(map[string][]Problem)
	for _, library := range w.libraries {
		path := w.pathTo(library, library, make(map[string]bool))
		if path == nil {
			continue
		}
		names := []string{library.source.Name}
		for _, step := range path {
			names = append(names, step.source.Name)
		}
		location := library.module.Package.Loc()
		for _, read := range library.reads {
			if read.path.HasPrefix(path[0].path) {
				location = read.location
				break
			}
		}
		cycles[library.source.Name] = []Problem{problemAt(location, "libraries import each other: %s", strings.Join(names, " imports "))}
	}
	maps.Copy(w.problems, cycles)
}

// pathTo returns the libraries on a way from one library to another one, without the first; nil if there is none.
func (w *libraryWorld) pathTo(from, to *teamLibrary, visited map[string]bool) []*teamLibrary {
	for _, next := range w.imports[from.source.Name] {
		if next == to {
			return []*teamLibrary{to}
		}
		if visited[next.source.Name] {
			continue
		}
		visited[next.source.Name] = true
		if rest := w.pathTo(next, to, visited); rest != nil {
			return append([]*teamLibrary{next}, rest...)
		}
	}
	return nil
}

// compileInWorld compiles a library after those that it imports.
func (u *updater) compileInWorld(w *libraryWorld, library *teamLibrary, done map[string]bool) {
	name := library.source.Name
	if done[name] || !w.canImport(library) {
		return
	}
	done[name] = true
	for _, imported := range w.imports[name] {
		u.compileInWorld(w, imported, done)
	}
	direct, problems := w.resolve(u.importable(library.reads))
	if len(problems) == 0 {
		w.imports[name] = direct
		closure := w.closure(direct)
		if problems = closureProblems(library.module, closure); len(problems) == 0 {
			problems = u.compileLibrary(library, closure)
		}
	}
	w.problems[name] = problems
}

// importable returns the references that no library of Sluice serves.
func (u *updater) importable(reads []libraryRead) []libraryRead {
	return slices.DeleteFunc(slices.Clone(reads), func(read libraryRead) bool { return u.engine.compiler.mayServe(read.path) })
}

// closureProblems returns a problem for a module that imports too much.
func closureProblems(module *ast.Module, closure []*teamLibrary) []Problem {
	size := 0
	for _, library := range closure {
		size += len(library.source.Rego)
	}
	if len(closure) <= maxImportedLibraries && size <= maxImportedBytes {
		return nil
	}
	return []Problem{problemAt(module.Package.Loc(),
		"it imports %d libraries of %d bytes, itself or through others; %d libraries of %d bytes are allowed",
		len(closure), size, maxImportedLibraries, maxImportedBytes)}
}

// importDigest identifies libraries; empty for none.
func importDigest(libraries []*teamLibrary) string {
	if len(libraries) == 0 {
		return ""
	}
	h := sha256.New()
	for _, library := range libraries {
		hashText(h, string(library.digest[:]))
	}
	return string(h.Sum(nil))
}

// compileLibrary compiles a library alone with those that it imports, or returns the earlier result.
func (u *updater) compileLibrary(library *teamLibrary, closure []*teamLibrary) []Problem {
	key := compilationKey{text: library.digest, imports: importDigest(closure), isLibrary: true}
	return u.compileOnce(key, func() (*module, []Problem) {
		return nil, u.engine.compiler.compileLibrary(library, closure)
	}).problems
}

// compileLibrary returns the problems of a library.
func (c *compiler) compileLibrary(library *teamLibrary, closure []*teamLibrary) (problems []Problem) {
	defer func() {
		if cause := recover(); cause != nil {
			problems = []Problem{{Message: fmt.Sprintf("the compiler panicked: %v", cause)}}
		}
	}()
	opa, problems := c.compileModules(c.withLibraries(library.file(), library.module, closure), true, nil)
	if len(problems) == 0 {
		problems = validateReferences(opa)
	}
	return sortProblems(problems)
}
