// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// footprint is what the rules that answer one question read of input, all told.
type footprint struct {
	// paths are what is read, none under another.
	paths []inputPath
	// replaced tells that a rule puts something else in the place of input, or of
	// part of it, with the keyword with.
	replaced bool
}

// momentaryOf returns those of a module's rules that read the time or the present
// use, or may.
func momentaryOf(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) ruleSet {
	var momentary ruleSet
	for rule := range ruleCount {
		if rules.has(rule) && slices.ContainsFunc(readsOf(opa, ruleRef(pkg, rule)), func(read read) bool { return read.momentary != "" }) {
			momentary.add(rule)
		}
	}
	return momentary
}

// footprintOf returns the footprint of a module's rules that answer a question.
func footprintOf(opa *ast.Compiler, pkg ast.Ref, rules ruleSet, asked question) footprint {
	var f footprint
	for rule := range ruleCount {
		if !rules.has(rule) || meanings[rule].asked != asked {
			continue
		}
		for _, read := range readsOf(opa, ruleRef(pkg, rule)) {
			f.add(read.path)
		}
	}
	for _, module := range opa.Modules {
		ast.WalkWiths(module, func(with *ast.With) bool {
			if ref, ok := with.Target.Value.(ast.Ref); ok && isInput(ref) {
				f.replaced = true
			}
			return false
		})
	}
	return f
}

func (f *footprint) add(path inputPath) {
	for _, known := range f.paths {
		if path.under(known) {
			return
		}
	}
	f.paths = slices.DeleteFunc(f.paths, func(known inputPath) bool { return known.under(path) })
	f.paths = append(f.paths, path)
}

// touches tells whether what is at a path, or under it, or around it, is read.
func (f *footprint) touches(path inputPath) bool {
	return slices.ContainsFunc(f.paths, func(known inputPath) bool {
		return path.under(known) || known.under(path)
	})
}

// under tells whether a path is another one or leads on from it.
func (p inputPath) under(other inputPath) bool {
	return len(p) >= len(other) && slices.Equal(p[:len(other)], other)
}

// piecesOf returns the parts of input that a module's rules for a question read;
// false where they cannot be told.
func piecesOf(opa *ast.Compiler, pkg ast.Ref, rules ruleSet, asked question, named footprint) ([]piece, bool) {
	var refs []ast.Ref
	for rule := range ruleCount {
		if rules.has(rule) && meanings[rule].asked == asked {
			refs = append(refs, ruleRef(pkg, rule))
		}
	}
	if read, ok := readBy(opa, refs); ok {
		return read.pieces()
	}
	if named.replaced {
		return nil, false
	}
	// What is not followed reads all that it names.
	read := &part{}
	for _, path := range named.paths {
		at := read
		for _, step := range path {
			if at.fields == nil {
				at.fields = make(map[string]*part)
			}
			if at.fields[step] == nil {
				at.fields[step] = &part{}
			}
			at = at.fields[step]
		}
		at.whole = true
	}
	return read.settle().pieces()
}
