// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
)

// flow finds what rules read of input, by following the values of input through
// them: through variables, through what is iterated over, through arrays and
// objects that are composed, and into and out of functions.
//
// It never says too little. A value that is compared, handed to a built-in
// function or answered is read whole; one of which only a field is taken is not.
// All that it is told about what a variable can be is kept from one pass over the
// rules to the next, and passes are made until nothing new is learned, so neither
// the order of expressions nor that of rules matters. Wherever it meets what it
// does not know, it gives up, and the rules are taken to read all that they name.
type flow struct {
	opa *ast.Compiler
	// root is all of input.
	root  *part
	parts int

	rules     map[*ast.Rule]*ruleFlow
	compounds map[any]*compound
	// walked are the rules of this pass, and changed tells that it learned something.
	walked  map[*ast.Rule]bool
	changed bool
	err     error
}

// errUnknown: there is something that flow does not follow.
var errUnknown = errors.New("not followed")

// values are what a term can be, as far as it is of input: parts of it, and
// compounds that may hold parts. Whatever else it can be follows from what was
// read whole.
type values struct {
	parts     map[*part]struct{}
	compounds map[*compound]struct{}
}

// compound is an array or object that a rule composes, by where it is written.
// What it holds under keys that are not written out, and the elements of an
// array, are all under the empty key.
type compound struct {
	fields map[string]*values
	// read: it was read whole, and so is all that is added.
	read bool
}

// ruleFlow is what is known of a rule or function.
type ruleFlow struct {
	arguments []*values
	result    *values
	variables []map[ast.Var]*values
}

// maxPasses bounds the passes; three are usual.
const maxPasses = 64

// readBy returns what the rules under these refs read of input; false where that
// cannot be told.
func readBy(opa *ast.Compiler, refs []ast.Ref) (*part, bool) {
	f := &flow{
		opa: opa, root: &part{}, parts: 1,
		rules: make(map[*ast.Rule]*ruleFlow), compounds: make(map[any]*compound),
	}
	for range maxPasses {
		f.changed, f.walked = false, make(map[*ast.Rule]bool)
		for _, ref := range refs {
			f.whole(f.named(ref, nil))
		}
		if f.err != nil {
			return nil, false
		}
		if !f.changed {
			return f.root.settle(), true
		}
	}
	return nil, false
}

func (f *flow) unknown() *values {
	f.err = errUnknown
	return &values{}
}

// rule walks a rule with its else branches, once a pass.
func (f *flow) rule(rule *ast.Rule) *ruleFlow {
	known := f.rules[rule]
	if known == nil {
		known = &ruleFlow{result: &values{}}
		for range rule.Head.Args {
			known.arguments = append(known.arguments, &values{})
		}
		for branch := rule; branch != nil; branch = branch.Else {
			known.variables = append(known.variables, make(map[ast.Var]*values))
		}
		f.rules[rule] = known
	}
	if f.walked[rule] {
		return known
	}
	f.walked[rule] = true
	several := f.several(rule)
	place := 0
	for branch := rule; branch != nil; branch = branch.Else {
		s := &scope{flow: f, variables: known.variables[place], bound: make(map[ast.Var]bool)}
		place++
		for i, argument := range branch.Head.Args {
			if i < len(known.arguments) {
				s.bind(argument, known.arguments[i])
			}
		}
		s.body(branch.Body)
		f.head(s, branch.Head, known, several)
	}
	return known
}

// head takes what a rule answers. Where there can be several answers, they are
// compared: one of them is an error, or they are the elements of a set.
func (f *flow) head(s *scope, head *ast.Head, known *ruleFlow, several bool) {
	for _, step := range head.Ref()[1:] {
		f.whole(s.value(step))
		several = true
	}
	if head.Key != nil {
		f.whole(s.value(head.Key))
	}
	if head.Value != nil {
		given := s.value(head.Value)
		if several || s.repeated {
			f.whole(given)
		}
		f.join(known.result, given)
	}
}

// several tells whether a rule's value is compared with that of another of its
// name.
func (f *flow) several(rule *ast.Rule) bool {
	count := 0
	for _, other := range rulesOf(f.opa, rule.Ref()) {
		if !other.Default {
			count++
		}
	}
	return count > 1
}

// named is the value of the rules that a ref of data leads to.
func (f *flow) named(ref ast.Ref, s *scope) *values {
	rules := rulesOf(f.opa, ref)
	if len(rules) == 0 {
		return f.unknown()
	}
	found, rest := &values{}, 1
	for _, rule := range rules {
		name := rule.Ref()
		known := f.rule(rule)
		if len(rule.Head.Ref()) != 1 || !ref.HasPrefix(name) {
			// It is read as a whole with others, or with part of its name unknown.
			for _, other := range rules {
				f.whole(f.rule(other).result)
			}
			found, rest = &values{}, 1
			break
		}
		if len(rule.Head.Args) > 0 {
			return f.unknown()
		}
		merge(found, known.result)
		rest = len(name)
	}
	if s == nil {
		return found
	}
	return s.steps(found, ref[rest:])
}

// join adds what one term can be to what another can be.
func (f *flow) join(to, from *values) {
	for p := range from.parts {
		if _, known := to.parts[p]; !known {
			if to.parts == nil {
				to.parts = make(map[*part]struct{})
			}
			to.parts[p] = struct{}{}
			f.changed = true
		}
	}
	for c := range from.compounds {
		if _, known := to.compounds[c]; !known {
			if to.compounds == nil {
				to.compounds = make(map[*compound]struct{})
			}
			to.compounds[c] = struct{}{}
			f.changed = true
		}
	}
}

// whole notes that all of a value is read.
func (f *flow) whole(v *values) {
	for p := range v.parts {
		if !p.whole {
			p.whole = true
			f.changed = true
		}
	}
	for c := range v.compounds {
		if c.read {
			continue
		}
		c.read = true
		f.changed = true
		for _, field := range c.fields {
			f.whole(field)
		}
	}
}

// seen notes that it is read whether a value is there, and what kind it is.
func (f *flow) seen(v *values) {
	for p := range v.parts {
		if !p.seen {
			p.seen = true
			f.changed = true
		}
	}
}
