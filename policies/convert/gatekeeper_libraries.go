// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// sharedLibrary is a library of one or more templates that becomes a Policy of the type Library.
type sharedLibrary struct {
	// path is its package, such as lib.helpers. Packages of libraries do not overlap.
	path string
	// rego is its text in Rego v1, with this package.
	rego string
	// imports are the libraries that it refers to itself.
	imports []*sharedLibrary
	// policy has a name once the library was checked.
	policy v1alpha1.Policy
	// problem is why it does not pass the check.
	problem string
	// templates are those whose policies import it.
	templates []string
}

// libraryShelf has the libraries of all templates: one for each distinct text.
type libraryShelf struct {
	byContent map[string]*sharedLibrary
	paths     []string
}

// place returns the library with this text, which is new or known.
func (s *libraryShelf) place(path, rego string, module *ast.Module, imports []*sharedLibrary) *sharedLibrary {
	if known := s.byContent[rego]; known != nil {
		return known
	}
	l := &sharedLibrary{path: s.freePath(path), imports: imports}
	lines := strings.Split(rego, "\n")
	lines[module.Package.Loc().Row-1] = "package " + l.path
	l.rego = strings.Join(lines, "\n")
	if s.byContent == nil {
		s.byContent = make(map[string]*sharedLibrary)
	}
	s.byContent[rego] = l
	s.paths = append(s.paths, l.path)
	return l
}

// freePath returns a package below lib that overlaps with none of the others.
func (s *libraryShelf) freePath(path string) string {
	if path == "lib" {
		path = "lib.lib"
	}
	overlaps := func(known string) bool {
		return known == path || strings.HasPrefix(known, path+".") || strings.HasPrefix(path, known+".")
	}
	base := "lib." + strings.ReplaceAll(strings.TrimPrefix(path, "lib."), ".", "_")
	for n := 2; slices.ContainsFunc(s.paths, overlaps); n++ {
		if path != base && n == 2 {
			path, n = base, 1
			continue
		}
		path = fmt.Sprintf("%s_%d", base, n)
	}
	return path
}

// shareLibraries returns the template's module in Rego v1, and the libraries that it imports from the shelf.
func (t *constraintTemplate) shareLibraries(shelf *libraryShelf) (string, []*sharedLibrary, error) {
	renamed, err := t.renameOwnRules()
	if err != nil {
		return "", nil, err
	}
	main, text, err := t.parse(renamed, ast.RegoV1)
	if err != nil {
		return "", nil, err
	}
	libraries, err := t.parseLibraries(ast.RegoV1)
	if err != nil {
		return "", nil, err
	}
	s := sharing{shelf: shelf, libraries: libraries, placed: make(map[*libraryModule]*sharedLibrary)}
	text, direct, err := s.redirect(text)
	if err != nil {
		return "", nil, err
	}
	for _, l := range direct {
		if main.Package.Path.HasPrefix(ast.MustParseRef("data." + l.path)) {
			return "", nil, fmt.Errorf("the package of the template is also that of the library %s", l.path)
		}
	}
	return text, direct, nil
}

// sharing places the libraries of one template.
type sharing struct {
	shelf     *libraryShelf
	libraries []*libraryModule // the longest package first
	// placed has nil for a library whose imports are being placed.
	placed map[*libraryModule]*sharedLibrary
}

// place places a library after those that it refers to.
func (s *sharing) place(l *libraryModule) (*sharedLibrary, error) {
	if done, begun := s.placed[l]; begun {
		if done == nil {
			return nil, fmt.Errorf("the library %s imports itself through others", l.path)
		}
		return done, nil
	}
	s.placed[l] = nil
	text, imports, err := s.redirect(l.text)
	if err != nil {
		return nil, fmt.Errorf("library %s: %w", l.path, err)
	}
	s.placed[l] = s.shelf.place(l.path, text, l.module, imports)
	return s.placed[l], nil
}

// redirect returns a text whose references to libraries have the packages of the shelf, and these libraries.
func (s *sharing) redirect(text string) (string, []*sharedLibrary, error) {
	tokens := tokenize(text)
	var b strings.Builder
	var found []*sharedLibrary
	for i := 0; i < len(tokens); i++ {
		if !isIdentifierAt(tokens, i, "data") || afterDot(tokens, i) || i+2 >= len(tokens) || tokens[i+1].text != "." || tokens[i+2].text != "lib" {
			b.WriteString(tokens[i].text)
			continue
		}
		path, next := "lib", i+3
		for next+1 < len(tokens) && tokens[next].text == "." && tokens[next+1].identifier && !s.isPackage(path) {
			path, next = path+"."+tokens[next+1].text, next+2
		}
		at := slices.IndexFunc(s.libraries, func(l *libraryModule) bool { return l.path == path })
		if at < 0 {
			return "", nil, fmt.Errorf("data.%s is not a library of the template", path)
		}
		library, err := s.place(s.libraries[at])
		if err != nil {
			return "", nil, err
		}
		if !slices.Contains(found, library) {
			found = append(found, library)
		}
		b.WriteString("data." + library.path)
		if name := lastPart(path); isImportedAs(tokens, i, next) && name != lastPart(library.path) {
			b.WriteString(" as " + name)
		}
		i = next - 1
	}
	return b.String(), found, nil
}

// isPackage reports whether a path is the package of a library, and not above that of another one.
func (s *sharing) isPackage(path string) bool {
	return slices.ContainsFunc(s.libraries, func(l *libraryModule) bool { return l.path == path }) &&
		!slices.ContainsFunc(s.libraries, func(l *libraryModule) bool { return strings.HasPrefix(l.path, path+".") })
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func isIdentifierAt(tokens []token, index int, name string) bool {
	return index >= 0 && index < len(tokens) && tokens[index].identifier && tokens[index].text == name
}

// isImportedAs reports whether the tokens from start to end are an import whose name is the last of them.
func isImportedAs(tokens []token, start, end int) bool {
	if !isIdentifierAt(tokens, start-2, "import") || end < len(tokens) && strings.HasPrefix(tokens[end].text, ".") {
		return false
	}
	return end+1 >= len(tokens) || strings.Trim(tokens[end].text, " \t") != "" || !isIdentifierAt(tokens, end+1, "as")
}

// withImports returns libraries and all that they import, each after its imports.
func withImports(libraries []*sharedLibrary) []*sharedLibrary {
	var all []*sharedLibrary
	visited := make(map[*sharedLibrary]bool)
	var visit func([]*sharedLibrary)
	visit = func(libraries []*sharedLibrary) {
		for _, l := range libraries {
			if !visited[l] {
				visited[l] = true
				visit(l.imports)
				all = append(all, l)
			}
		}
	}
	visit(libraries)
	return all
}

// sourcesOf returns libraries as the engine compiles them.
func sourcesOf(libraries []*sharedLibrary) []engine.Source {
	sources := make([]engine.Source, len(libraries))
	for i, l := range libraries {
		sources[i] = engine.FromPolicy(&l.policy)
	}
	return sources
}

// checkLibraries returns why a library does not pass the check; empty if all do. Each is checked once, and has a name then.
func (c *conversion) checkLibraries(ctx context.Context, checker Checker, libraries []*sharedLibrary) (string, error) {
	for _, l := range libraries {
		if l.policy.Name == "" {
			l.policy = v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Type: v1alpha1.PolicyTypeLibrary, Rego: l.rego}}
			c.nameUniquely(&l.policy, strings.NewReplacer(".", "-", "_", "-").Replace(strings.TrimPrefix(l.path, "lib.")))
			result, err := checker(ctx, engine.FromPolicy(&l.policy), sourcesOf(withImports(l.imports))...)
			if err != nil {
				return "", fmt.Errorf("library %s: %w", l.path, err)
			}
			if len(result.Problems) > 0 {
				l.problem = result.Problems[0].Error()
			}
		}
		if l.problem != "" {
			return l.problem, nil
		}
	}
	return "", nil
}

// importedLibraries returns the libraries of accepted drafts, and names them in the entries of their templates.
func importedLibraries(accepted []*draft) []*sharedLibrary {
	var all []*sharedLibrary
	for _, d := range accepted {
		for _, l := range d.libraries() {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
			l.templates = appendOnce(l.templates, d.template.Object)
			d.template.Policies = appendOnce(d.template.Policies, l.policy.Name)
		}
	}
	return all
}
