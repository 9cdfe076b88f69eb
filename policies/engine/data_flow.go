// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
)

// dataFlow finds what rules read of input, by following the values of input through
// them: through variables, through what is iterated over, through arrays and
// objects that are composed, and into and out of functions.
//
// It never says too little. A value that is compared, handed to a built-in
// function or answered is read whole; one of which only a field is taken is not.
// All that it is told about what a variable can be is kept from one pass over the
// rules to the next, and passes are made until nothing new is learned, so neither
// the order of expressions nor that of rules matters. Wherever it meets what it
// does not know, it gives up, and the rules are taken to read all that they name.
type dataFlow struct {
	opa *ast.Compiler
	// input is all of input.
	input        *readSet
	readSetCount int

	rules      map[*ast.Rule]*ruleFlow
	composites map[any]*composite
	// visited are the rules of this pass, and changed tells that it learned something.
	visited map[*ast.Rule]bool
	changed bool
	err     error
}

// errUntraceable: there is something that flow does not follow.
var errUntraceable = errors.New("not followed")

// valueSet are what a term can be, as far as it is of input: parts of it, and
// compounds that may hold parts. Whatever else it can be follows from what was
// read whole.
type valueSet struct {
	readSets   map[*readSet]struct{}
	composites map[*composite]struct{}
}

// composite is an array or object that a rule composes, by where it is written.
// What it holds under keys that are not written out, and the elements of an
// array, are all under the empty key.
type composite struct {
	fields map[string]*valueSet
	// readWhole: it was read whole, and so is all that is added.
	readWhole bool
}

// ruleFlow is what is known of a rule or function.
type ruleFlow struct {
	arguments []*valueSet
	result    *valueSet
	variables []map[ast.Var]*valueSet
}

// maxPasses bounds the passes; three are usual.
const maxPasses = 64

// traceReads returns what the rules under these refs read of input; false where that
// cannot be told.
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

// traceRule walks a rule with its else branches, once a pass.
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
	place := 0
	for branch := rule; branch != nil; branch = branch.Else {
		s := &scope{dataFlow: f, variables: known.variables[place], bound: make(map[ast.Var]bool)}
		place++
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

// traceHead takes what a rule answers. Where there can be several answers, they are
// compared: one of them is an error, or they are the elements of a set.
func (f *dataFlow) traceHead(s *scope, head *ast.Head, known *ruleFlow, several bool) {
	for _, step := range head.Ref()[1:] {
		f.markWhole(s.readTerm(step))
		several = true
	}
	if head.Key != nil {
		f.markWhole(s.readTerm(head.Key))
	}
	if head.Value != nil {
		given := s.readTerm(head.Value)
		if several || s.repeated {
			f.markWhole(given)
		}
		f.join(known.result, given)
	}
}

// hasSeveralDefinitions tells whether a rule's value is compared with that of another of its
// name.
func (f *dataFlow) hasSeveralDefinitions(rule *ast.Rule) bool {
	count := 0
	for _, other := range rulesAt(f.opa, rule.Ref()) {
		if !other.Default {
			count++
		}
	}
	return count > 1
}

// ruleValues is the value of the rules that a ref of data leads to.
func (f *dataFlow) ruleValues(ref ast.Ref, s *scope) *valueSet {
	rules := rulesAt(f.opa, ref)
	if len(rules) == 0 {
		return f.untraceable()
	}
	found, rest := &valueSet{}, 1
	for _, rule := range rules {
		name := rule.Ref()
		known := f.traceRule(rule)
		if len(rule.Head.Ref()) != 1 || !ref.HasPrefix(name) {
			// It is read as a whole with others, or with part of its name unknown.
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

// join adds what one term can be to what another can be.
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

// markWhole notes that all of a value is read.
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

// markPresence notes that it is read whether a value is there, and what kind it is.
func (f *dataFlow) markPresence(v *valueSet) {
	for p := range v.readSets {
		if !p.presence {
			p.presence = true
			f.changed = true
		}
	}
}
