// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine"
)

// templateModule is a form of a template's module: its text in a version of Rego, with the libraries that it imports.
type templateModule struct {
	rego      string
	version   ast.RegoVersion
	libraries []*sharedLibrary
}

// modules returns the forms of the template's module, the preferred one first: with shared libraries, then with the rules of
// the libraries in it, for those that cannot be a library of their own, and then as it is in v0. That is for templates whose
// v1 text would not compile in OPA's strict mode, which every policy in v1 must.
func (t *constraintTemplate) modules(shelf *libraryShelf) ([]templateModule, error) {
	var forms []templateModule
	if len(t.libraries) > 0 {
		if rego, libraries, err := t.shareLibraries(shelf); err == nil {
			forms = append(forms, templateModule{rego, ast.RegoV1, libraries})
		}
	}
	var problems []error
	for _, version := range []ast.RegoVersion{ast.RegoV1, ast.RegoV0} {
		if version == ast.RegoV0 && t.version != ast.RegoV0 {
			continue
		}
		rego, err := t.mergeLibraries(version)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		forms = append(forms, templateModule{rego: rego, version: version})
	}
	if len(forms) == 0 {
		return nil, errors.Join(problems...)
	}
	return forms, nil
}

// libraryModule is a parsed library.
type libraryModule struct {
	path   string // lib.helpers
	prefix string // of its rules in the merged module
	rules  map[string]string
	text   string
	module *ast.Module
}

// mergeLibraries returns the template's module with the rules of the libraries that it uses, under new names.
func (t *constraintTemplate) mergeLibraries(version ast.RegoVersion) (string, error) {
	renamed, err := t.renameOwnRules()
	if err != nil {
		return "", err
	}
	main, mainText, err := t.parse(renamed, version)
	if err != nil {
		return "", err
	}
	libraries, err := t.parseLibraries(version)
	if err != nil {
		return "", err
	}
	if len(libraries) == 0 {
		return mainText, nil
	}
	if err := distinctNames(mainText, libraries); err != nil {
		return "", err
	}
	merged, err := inline(mainText, main, libraries)
	if err != nil {
		return "", err
	}
	parts := []string{strings.TrimRight(merged, "\n") + "\n"}
	for _, l := range libraries {
		text, err := inline(l.text, l.module, libraries)
		if err != nil {
			return "", fmt.Errorf("library %s: %w", l.path, err)
		}
		parts = append(parts, "# The library "+l.path+".\n"+strings.TrimLeft(withoutPackage(renameIdentifiers(text, l.rules), l.module), "\n"))
	}
	return formatRego(strings.Join(parts, "\n"), version, version)
}

// parseLibraries returns the libraries of the template in a version of Rego, the longest package first.
func (t *constraintTemplate) parseLibraries(version ast.RegoVersion) ([]*libraryModule, error) {
	var libraries []*libraryModule
	for i, rego := range t.libraries {
		module, text, err := t.parse(rego, version)
		if err != nil {
			return nil, fmt.Errorf("library %d: %w", i+1, err)
		}
		l := &libraryModule{text: text, module: module, rules: make(map[string]string)}
		l.path = strings.TrimPrefix(module.Package.Path.String(), "data.")
		if l.path != "lib" && !strings.HasPrefix(l.path, "lib.") || strings.ContainsAny(l.path, `["`) {
			return nil, fmt.Errorf("library %d: the package %s is not below lib", i+1, l.path)
		}
		l.prefix = strings.ReplaceAll(l.path, ".", "_") + "_"
		for _, imported := range module.Imports {
			if path := imported.Path.String(); !strings.HasPrefix(path, "data.lib") && !isDirective(path) {
				return nil, fmt.Errorf("library %s: it imports %s, and can import only libraries", l.path, path)
			}
		}
		for _, rule := range module.Rules {
			if name := ruleName(rule); name != "" {
				l.rules[name] = l.prefix + name
			}
		}
		libraries = append(libraries, l)
	}
	slices.SortStableFunc(libraries, func(a, b *libraryModule) int { return len(b.path) - len(a.path) })
	return libraries, nil
}

// parse returns a module and its text in a version of Rego.
func (t *constraintTemplate) parse(rego string, version ast.RegoVersion) (*ast.Module, string, error) {
	text, err := formatRego(rego, t.version, version)
	if err != nil {
		return nil, "", err
	}
	if version == ast.RegoV0 {
		text = rego // unchanged, since v0 is the fallback
	}
	module, err := ast.ParseModuleWithOpts("policy", text, ast.ParserOptions{RegoVersion: version})
	if err != nil {
		return nil, "", err
	}
	if hasTemplateString(text) {
		return nil, "", errors.New("template strings are not supported")
	}
	return module, text, nil
}

// isDirective reports whether an import only changes how a module is parsed.
func isDirective(path string) bool {
	return path == "rego.v1" || strings.HasPrefix(path, "future.keywords")
}

func ruleName(rule *ast.Rule) string {
	if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
		return string(name)
	}
	return ""
}

// renameOwnRules returns the template's module with new names for some of its rules.
func (t *constraintTemplate) renameOwnRules() (string, error) {
	if err := checkSize(t.rego); err != nil {
		return "", err
	}
	module, err := ast.ParseModuleWithOpts("policy", t.rego, ast.ParserOptions{RegoVersion: t.version})
	if err != nil {
		return "", err
	}
	return renameIdentifiers(t.rego, ownRules(module, t.rego)), nil
}

// ownRules returns new names for the rules of a template whose names have a meaning in policies, other than violation, or are
// those of built-in functions, which OPA's strict mode would report as deprecated.
func ownRules(module *ast.Module, text string) map[string]string {
	taken, renamed := identifiers(text), make(map[string]string)
	for _, rule := range module.Rules {
		if name := ruleName(rule); name != "violation" && (engine.IsRuleName(name) || ast.BuiltinMap[name] != nil) {
			renamed[name] = unusedName(taken, "template_"+name)
		}
	}
	return renamed
}

// unusedName returns a name that is not taken, and takes it.
func unusedName(taken map[string]bool, name string) string {
	for taken[name] {
		name += "_"
	}
	taken[name] = true
	return name
}

// distinctNames returns an error if a new name of a library's rule occurs in one of the texts.
func distinctNames(mainText string, libraries []*libraryModule) error {
	taken := identifiers(mainText)
	paths := make(map[string]bool)
	for _, l := range libraries {
		if paths[l.path] {
			return fmt.Errorf("two libraries have the package %s", l.path)
		}
		paths[l.path] = true
		for name := range identifiers(l.text) {
			taken[name] = true
		}
	}
	for _, l := range libraries {
		for _, name := range l.rules {
			if taken[name] {
				return fmt.Errorf("the name %s is in use, so the library %s cannot be merged", name, l.path)
			}
			taken[name] = true
		}
	}
	return nil
}

// inline replaces the references of a module to libraries by the new names of their rules, and removes their imports.
func inline(text string, module *ast.Module, libraries []*libraryModule) (string, error) {
	aliases, lines := make(map[string]string), strings.Split(text, "\n")
	for _, imported := range module.Imports {
		path := imported.Path.String()
		if !strings.HasPrefix(path, "data.lib") {
			continue
		}
		alias := string(imported.Name())
		aliases[alias] = strings.TrimPrefix(path, "data.")
		lines[imported.Loc().Row-1] = ""
		if err := notDeclared(module, alias); err != nil {
			return "", err
		}
	}
	tokens := tokenize(strings.Join(lines, "\n"))
	var b strings.Builder
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		path, isAlias := aliases[t.text]
		isData := t.text == "data" && i+2 < len(tokens) && tokens[i+1].text == "." && tokens[i+2].text == "lib"
		if !t.identifier || afterDot(tokens, i) || !isAlias && !isData {
			b.WriteString(t.text)
			continue
		}
		next := i + 1
		if isData {
			path, next = "lib", i+3
		}
		for next+1 < len(tokens) && tokens[next].text == "." && tokens[next+1].identifier && librariesBelow(libraries,
			path+"."+tokens[next+1].text) {
			path, next = path+"."+tokens[next+1].text, next+2
		}
		name, err := libraryRule(libraries, path, tokens[next:])
		if err != nil {
			return "", err
		}
		if !isRule(libraries, path) {
			next += 2
		}
		b.WriteString(name)
		i = next - 1
	}
	return b.String(), nil
}

// librariesBelow reports whether a path is a library, one of its rules, or above a library.
func librariesBelow(libraries []*libraryModule, path string) bool {
	return slices.ContainsFunc(libraries, func(l *libraryModule) bool { return l.path == path || strings.HasPrefix(l.path, path+".") })
}

// isRule reports whether a path is that of a library's rule.
func isRule(libraries []*libraryModule, path string) bool {
	return slices.ContainsFunc(libraries, func(l *libraryModule) bool {
		name, ok := strings.CutPrefix(path, l.path+".")
		return ok && l.rules[name] != ""
	})
}

// libraryRule returns the new name of the rule at a path, or of the one that follows it.
func libraryRule(libraries []*libraryModule, path string, rest []token) (string, error) {
	for _, l := range libraries {
		if name, ok := strings.CutPrefix(path, l.path+"."); ok && l.rules[name] != "" {
			return l.rules[name], nil
		}
		if path == l.path && len(rest) > 1 && rest[0].text == "." && l.rules[rest[1].text] != "" {
			return l.rules[rest[1].text], nil
		}
	}
	return "", fmt.Errorf("data.%s is not a rule of a library of the template", path)
}

// notDeclared returns an error if a module declares a variable with the name of an import, which would hide it.
func notDeclared(module *ast.Module, name string) error {
	for _, rule := range module.Rules {
		declared := false
		for _, argument := range rule.Head.Args {
			ast.WalkVars(argument, func(v ast.Var) bool { declared = declared || string(v) == name; return false })
		}
		ast.WalkExprs(rule, func(e *ast.Expr) bool {
			if some, ok := e.Terms.(*ast.SomeDecl); ok {
				ast.WalkVars(some, func(v ast.Var) bool { declared = declared || string(v) == name; return false })
			}
			if e.IsAssignment() {
				ast.WalkVars(e.Operand(0), func(v ast.Var) bool { declared = declared || string(v) == name; return false })
			}
			return false
		})
		if declared {
			return fmt.Errorf("a variable has the name of the import %s", name)
		}
	}
	return nil
}

// withoutPackage removes the package statement and the imports of a module.
func withoutPackage(text string, module *ast.Module) string {
	lines := strings.Split(text, "\n")
	lines[module.Package.Loc().Row-1] = ""
	for _, imported := range module.Imports {
		if row := imported.Loc().Row - 1; row < len(lines) {
			lines[row] = ""
		}
	}
	return strings.Join(lines, "\n")
}
