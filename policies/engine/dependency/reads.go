// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Fields of input that have rules of their own. Now and use change all the time.
const (
	NowField   = "now"
	UsageField = "use"
	// NodePoolField is set for objects and requires only. Admission has nodePools.
	NodePoolField = "nodePool"
	// NamespaceField is set for admission only.
	NamespaceField = "namespace"
	// ParametersField holds the policy's own parameters: they are constant for a policy.
	ParametersField = "parameters"
)

// InputFields are the names of all fields of input.
var InputFields = []string{
	"review", "object", "oldObject", "workload", "project", "department", "nodePools", NamespaceField,
	NodePoolField, NowField, UsageField, ParametersField,
}

// Path is a path in input, as far as its keys are constants. It starts with the field.
type Path []string

// maxPathDepth is the number of keys after which a path is cut off.
const maxPathDepth = 6

func (p Path) hasPrefix(other Path) bool {
	return len(p) >= len(other) && slices.Equal(p[:len(other)], other)
}

// Read is one place at which a rule reads input.
type Read struct {
	// Path is the constant part of the reference; empty if the rule reads all of input.
	Path Path
	// Volatile describes how the rule reads, or may read, the time or the present use;
	// empty if it cannot.
	Volatile string
	// Location is the place in the module.
	Location *ast.Location
	// Through are the helper rules between the rule in question and this place.
	Through []string
}

// readCollector walks from a rule through all helper rules, functions and libraries
// that it uses.
type readCollector struct {
	opa     *ast.Compiler
	visited map[*ast.Rule]bool
	reads   []Read
	data    []DataRead
}

// Collect returns all places at which the rules under a reference read input.
func Collect(opa *ast.Compiler, ref ast.Ref) []Read {
	r := &readCollector{opa: opa, visited: make(map[*ast.Rule]bool)}
	for _, rule := range RulesAt(opa, ref) {
		r.visitRule(rule, nil)
	}
	return r.reads
}

// RulesAt returns the rules that a reference to data leads to.
func RulesAt(opa *ast.Compiler, ref ast.Ref) []*ast.Rule {
	return opa.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})
}

func (r *readCollector) visitRule(rule *ast.Rule, through []string) {
	if r.visited[rule] {
		return
	}
	r.visited[rule] = true
	var calls []*ast.Rule
	WalkRefs(rule, func(ref ast.Ref, location *ast.Location) {
		if IsInputRef(ref) {
			r.reads = append(r.reads, Read{
				Path: constantPath(ref), Volatile: volatileRead(ref), Location: location, Through: through,
			})
		}
		r.addData(ref, location, through)
		calls = append(calls, RulesAt(r.opa, ref)...)
	})
	for _, called := range calls {
		r.visitRule(called, append(slices.Clone(through), called.Ref().String()))
	}
}

// constantPath returns the part of a reference to input before its first variable.
func constantPath(ref ast.Ref) Path {
	var path Path
	for _, part := range ref[1:] {
		key, ok := part.Value.(ast.String)
		if !ok || len(path) == maxPathDepth {
			break
		}
		path = append(path, string(key))
	}
	return path
}

// volatileRead describes how a reference reads the time or the present use, or may.
// A rule that passes on all of input, or reads a field known only at run time, may
// read anything.
func volatileRead(ref ast.Ref) string {
	if len(ref) == 1 {
		return "all of input, which includes now and use"
	}
	field, ok := ref[1].Value.(ast.String)
	switch {
	case !ok:
		return "input[…] with a variable key, which may be now or use"
	case field == NowField || field == UsageField:
		return "input." + string(field)
	}
	return ""
}

// IsInputRef reports whether a reference leads into input.
func IsInputRef(ref ast.Ref) bool { return ref[0].Equal(ast.InputRootDocument) }

// IsDataRef reports whether a reference leads into data: to rules and functions.
func IsDataRef(ref ast.Ref) bool { return ref[0].Equal(ast.DefaultRootDocument) }

// WalkRefs visits every reference of a rule, in its else branches and in the terms of
// its head too. A bare input counts as a reference, and so does each of the names, such as those of imports.
func WalkRefs(rule *ast.Rule, visit func(ast.Ref, *ast.Location), names ...ast.Var) {
	var walk func(*ast.Term) bool
	walk = func(term *ast.Term) bool {
		location := term.Location
		if location == nil {
			location = rule.Loc()
		}
		switch value := term.Value.(type) {
		case ast.Ref:
			if len(value) > 0 {
				visit(value, location)
				for i, part := range value {
					// The first term is the root of the reference, unless it is a call.
					if _, root := part.Value.(ast.Var); i > 0 || !root {
						ast.WalkTerms(part, walk)
					}
				}
			}
			return true
		case ast.Var:
			if value.Equal(ast.InputRootDocument.Value) || slices.Contains(names, value) {
				visit(ast.Ref{ast.NewTerm(value)}, location)
			}
		}
		return false
	}
	ast.WalkTerms(rule, walk)
	for branch := rule; branch != nil; branch = branch.Else {
		for _, part := range branch.Head.Ref()[1:] {
			ast.WalkTerms(part, walk)
		}
	}
}

// Footprint is the set of paths that some rules name in input.
type Footprint struct {
	// paths has no path that is under another.
	paths []Path
	// replacesInput reports whether a rule replaces input, or a part of it, with the
	// keyword with.
	replacesInput bool
}

// NewFootprint returns the footprint of the rules under these references.
func NewFootprint(opa *ast.Compiler, refs []ast.Ref) Footprint {
	var f Footprint
	for _, ref := range refs {
		for _, read := range Collect(opa, ref) {
			f.add(read.Path)
		}
	}
	for _, module := range opa.Modules {
		ast.WalkWiths(module, func(with *ast.With) bool {
			if ref, ok := with.Target.Value.(ast.Ref); ok && IsInputRef(ref) {
				f.replacesInput = true
			}
			return false
		})
	}
	return f
}

func (f *Footprint) add(path Path) {
	if slices.ContainsFunc(f.paths, path.hasPrefix) {
		return
	}
	f.paths = slices.DeleteFunc(f.paths, func(known Path) bool { return known.hasPrefix(path) })
	f.paths = append(f.paths, path)
}

// Overlaps reports whether the rules name a path, a path under it, or one that
// contains it.
func (f *Footprint) Overlaps(path Path) bool {
	path = path[:min(len(path), maxPathDepth)]
	return slices.ContainsFunc(f.paths, func(known Path) bool {
		return path.hasPrefix(known) || known.hasPrefix(path)
	})
}
