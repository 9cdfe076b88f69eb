// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
)

// dataFlow finds what rules read of input. It follows the values of input through
// variables, iterations, composed arrays and objects, and into and out of functions.
//
// It may overestimate, and never underestimates. A value that is compared, passed to a
// built-in function or returned is read whole. A value of which the rules take only a
// field is not. Passes over the rules repeat until one learns nothing new, so neither the
// order of expressions nor the order of rules matters. At any construct that it does not
// know it fails, and the caller assumes that the rules read all that they name.
type dataFlow struct {
	opa *ast.Compiler
	// input is what the rules read of all of input.
	input        *readSet
	readSetCount int

	rules      map[*ast.Rule]*ruleFlow
	composites map[any]*composite
	// visited are the rules of this pass. changed reports whether the pass learned
	// anything.
	visited map[*ast.Rule]bool
	changed bool
	err     error
}

// errUntraceable: the rules contain a construct that dataFlow does not follow.
var errUntraceable = errors.New("the rules cannot be traced")

// valueSet is the set of values that a term can have, as far as they come from input:
// parts of input, and composites that may hold such parts. Every other value depends only
// on values that were read whole.
type valueSet struct {
	readSets   map[*readSet]struct{}
	composites map[*composite]struct{}
}

// composite is an array or object that a rule composes, identified by its place in the
// module. Array elements, and values under variable keys, are stored under the empty key.
type composite struct {
	fields map[string]*valueSet
	// readWhole: the rules read all of it, including what is added later.
	readWhole bool
}

// ruleFlow is what the passes learned about a rule or function.
type ruleFlow struct {
	arguments []*valueSet
	result    *valueSet
	variables []map[ast.Var]*valueSet
}

// maxPasses limits the passes; three are usual.
const maxPasses = 64

// traceReads returns what the rules under these references read of input. It returns
// false if they cannot be traced.
func traceReads(opa *ast.Compiler, refs []ast.Ref) (*readSet, bool) {
	f := &dataFlow{
		opa: opa, input: &readSet{}, readSetCount: 1,
		rules: make(map[*ast.Rule]*ruleFlow), composites: make(map[any]*composite),
	}
	for range maxPasses {
		f.changed, f.visited = false, make(map[*ast.Rule]bool)
		for _, ref := range refs {
			f.markWhole(f.ruleValues(ref, nil))
		}
		if f.err != nil {
			return nil, false
		}
		if !f.changed {
			return f.input.normalize(), true
		}
	}
	return nil, false
}

func (f *dataFlow) untraceable() *valueSet {
	f.err = errUntraceable
	return &valueSet{}
}

// traceRule walks a rule and its else branches, once in each pass.
func (f *dataFlow) traceRule(rule *ast.Rule) *ruleFlow {
	known := f.rules[rule]
	if known == nil {
		known = &ruleFlow{result: &valueSet{}}
		for range rule.Head.Args {
			known.arguments = append(known.arguments, &valueSet{})
		}
		for branch := rule; branch != nil; branch = branch.Else {
			known.variables = append(known.variables, make(map[ast.Var]*valueSet))
		}
		f.rules[rule] = known
	}
	if f.visited[rule] {
		return known
	}
	f.visited[rule] = true
	several := f.hasSeveralDefinitions(rule)
	index := 0
	for branch := rule; branch != nil; branch = branch.Else {
		s := &scope{dataFlow: f, variables: known.variables[index], bound: make(map[ast.Var]bool)}
		index++
		for i, argument := range branch.Head.Args {
			if i < len(known.arguments) {
				s.bind(argument, known.arguments[i])
			}
		}
		s.traceBody(branch.Body)
		f.traceHead(s, branch.Head, known, several)
	}
	return known
}

// traceHead records the value that a rule returns. If there can be several, OPA compares
// them: they are the elements of a set, or a conflict.
func (f *dataFlow) traceHead(s *scope, head *ast.Head, known *ruleFlow, several bool) {
	for _, step := range head.Ref()[1:] {
		f.markWhole(s.readTerm(step))
		several = true
	}
	if head.Key != nil {
		f.markWhole(s.readTerm(head.Key))
	}
	if head.Value != nil {
		result := s.readTerm(head.Value)
		if several || s.repeated {
			f.markWhole(result)
		}
		f.join(known.result, result)
	}
}

// hasSeveralDefinitions reports whether OPA compares the rule's value with that of
// another rule of the same name.
func (f *dataFlow) hasSeveralDefinitions(rule *ast.Rule) bool {
	count := 0
	for _, other := range RulesAt(f.opa, rule.Ref()) {
		if !other.Default {
			count++
		}
	}
	return count > 1
}

// ruleValues returns the values of the rules that a reference to data leads to.
func (f *dataFlow) ruleValues(ref ast.Ref, s *scope) *valueSet {
	rules := RulesAt(f.opa, ref)
	if len(rules) == 0 {
		return f.untraceable()
	}
	found, rest := &valueSet{}, 1
	for _, rule := range rules {
		name := rule.Ref()
		known := f.traceRule(rule)
		if len(rule.Head.Ref()) != 1 || !ref.HasPrefix(name) {
			// The reference reads several rules together, or has a variable in its name.
			for _, other := range rules {
				f.markWhole(f.traceRule(other).result)
			}
			found, rest = &valueSet{}, 1
			break
		}
		if len(rule.Head.Args) > 0 {
			return f.untraceable()
		}
		addValues(found, known.result)
		rest = len(name)
	}
	if s == nil {
		return found
	}
	return s.followPath(found, ref[rest:])
}

// join adds the values of one term to those of another.
func (f *dataFlow) join(to, from *valueSet) {
	for p := range from.readSets {
		if _, known := to.readSets[p]; !known {
			if to.readSets == nil {
				to.readSets = make(map[*readSet]struct{})
			}
			to.readSets[p] = struct{}{}
			f.changed = true
		}
	}
	for c := range from.composites {
		if _, known := to.composites[c]; !known {
			if to.composites == nil {
				to.composites = make(map[*composite]struct{})
			}
			to.composites[c] = struct{}{}
			f.changed = true
		}
	}
}

// markWhole records that the rules read all of a value.
func (f *dataFlow) markWhole(v *valueSet) {
	for p := range v.readSets {
		if !p.whole {
			p.whole = true
			f.changed = true
		}
	}
	for c := range v.composites {
		if c.readWhole {
			continue
		}
		c.readWhole = true
		f.changed = true
		for _, field := range c.fields {
			f.markWhole(field)
		}
	}
}

// markPresence records that the rules read whether a value exists, and its type.
func (f *dataFlow) markPresence(v *valueSet) {
	for p := range v.readSets {
		if !p.presence {
			p.presence = true
			f.changed = true
		}
	}
}
