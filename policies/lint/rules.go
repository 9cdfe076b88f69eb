// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// lintRules finds what is wrong with single rules and calls.
func (p *policyLinter) lintRules() {
	expected := strings.NewReplacer("-", "_", ".", "_").Replace(p.policy.Name)
	// The package of a library is what its importers name.
	if name := strings.TrimPrefix(p.module.Package.Path.String(), "data."); name != expected && !p.source.IsLibrary() {
		p.at(packageName, p.module.Package.Location, "the package is %s: name it %s, after the policy, so that unit tests show which it is",
			name, expected)
	}
	own := make(map[ast.Var]bool)
	for _, rule := range p.module.Rules {
		own[ast.Var(ruleName(rule))] = true
	}
	for _, rule := range p.module.Rules {
		name := ruleName(rule)
		if (name == "deny" || name == "violation") && !p.source.IsLibrary() {
			p.lintDenial(rule, name, own)
		}
	}
	ast.WalkBodies(p.module, func(body ast.Body) bool {
		terms := termsOf(body)
		for _, expr := range body {
			p.lintCalls(terms, expr)
		}
		return false
	})
	for _, rule := range p.module.Rules {
		p.lintCalls(termsOf(rule.Body), rule.Head)
	}
}

func ruleName(rule *ast.Rule) string {
	name, _ := rule.Head.Ref()[0].Value.(ast.Var)
	return string(name)
}

// lintDenial finds a denial without a fix, and a rule that denies everything.
func (p *policyLinter) lintDenial(rule *ast.Rule, name string, own map[ast.Var]bool) {
	if dependsOnNothing(rule, own) {
		p.at(deniesAll, rule.Location, "the rule has no condition on input, and refuses every object that the policy matches: add a condition")
	}
	if name != "deny" || rule.Head.Key == nil {
		return
	}
	message := termsOf(rule.Body).resolve(rule.Head.Key)
	switch value := message.Value.(type) {
	case ast.Object:
		if value.Get(ast.StringTerm("fix")) == nil {
			p.at(denyWithoutFix, rule.Location, `the denial has no "fix": say what the author of the object can do`)
		}
	case ast.String, ast.Call, *ast.TemplateString:
		p.at(denyWithoutFix, rule.Location, `the denial is only a message: write {"msg": …, "fix": …}, so that its author knows what to do`)
	}
}

// dependsOnNothing reports whether a rule reads neither input nor another rule.
func dependsOnNothing(rule *ast.Rule, own map[ast.Var]bool) bool {
	if rule.Else != nil {
		return false
	}
	terms, reads := termsOf(rule.Body), false
	visitVariable := func(v ast.Var) bool {
		reads = reads || own[v]
		return reads
	}
	// References lead to input, to an imported library, or to a variable of the body.
	visitRef := func(ref ast.Ref) bool {
		name, _ := ref[0].Value.(ast.Var)
		builtIn := ast.BuiltinMap[ref.String()]
		reads = reads || builtIn != nil && builtIn.Nondeterministic ||
			builtIn == nil && terms.assigned[name] == nil && terms.elements[name] == nil
		return reads
	}
	ast.WalkVars(rule.Body, visitVariable)
	ast.WalkRefs(rule.Body, visitRef)
	if rule.Head.Key != nil {
		ast.WalkVars(rule.Head.Key, visitVariable)
		ast.WalkRefs(rule.Head.Key, visitRef)
	}
	return !reads
}

// utcFunctions read a time in UTC, unless they get a zone.
var utcFunctions = map[string]bool{ast.Clock.Name: true, ast.Weekday.Name: true, ast.Date.Name: true}

// lintCalls finds calls with wrong arguments in an expression or a head.
func (p *policyLinter) lintCalls(terms bodyTerms, node any) {
	ast.WalkTerms(node, func(term *ast.Term) bool {
		call, ok := term.Value.(ast.Call)
		if !ok || len(call) < 2 {
			return false
		}
		function := call[0].String()
		switch {
		case function == ast.Sprintf.Name && len(call) >= 3:
			p.lintSprintf(term, terms.resolve(call[1]), terms.resolve(call[2]))
		case utcFunctions[function]:
			if _, isCall := terms.resolve(call[1]).Value.(ast.Call); isCall {
				p.at(timeInUTC, term.Location, "%s(%s) is in UTC: write %s([%s, input.department.timeZone])", function, call[1], function, call[1])
			}
		}
		return false
	})
}

func (p *policyLinter) lintSprintf(call, format, arguments *ast.Term) {
	text, ok := format.Value.(ast.String)
	list, isList := arguments.Value.(*ast.Array)
	if !ok || !isList {
		return
	}
	if verbs, ok := countVerbs(string(text)); ok && verbs != list.Len() {
		p.at(wrongFormat, call.Location, "sprintf has %d verbs and %d arguments: the message would contain %s",
			verbs, list.Len(), formatFault(verbs, list.Len()))
	}
}

// formatFault returns what sprintf writes for missing or extra arguments.
func formatFault(verbs, arguments int) string {
	if verbs > arguments {
		return "%!(MISSING)"
	}
	return "%!(EXTRA …)"
}

// countVerbs counts the verbs of a format. It returns false for formats that name arguments by index or take a width from them.
func countVerbs(format string) (count int, ok bool) {
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			return count, true
		}
		format = strings.TrimLeft(format[at+1:], "+-# 0123456789.")
		switch {
		case format == "":
			return count, true
		case format[0] == '[' || format[0] == '*':
			return 0, false
		case format[0] != '%':
			count++
		}
		format = format[1:]
	}
}
