// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/check"
)

// typeOrder are the JSON types in the order in which Rego compares values of different types.
var typeOrder = []string{"null", "boolean", "number", "string", "array", "object", "set"}

// schemaOf returns the schema of a term; nil if it is unknown.
func (p *policyLinter) schemaOf(terms bodyTerms, term *ast.Term, depth int) check.Schema {
	if depth == 0 {
		return nil
	}
	switch value := term.Value.(type) {
	case ast.Boolean:
		return check.Schema{"type": "boolean"}
	case ast.Number:
		return check.Schema{"type": "number"}
	case ast.String:
		return check.Schema{"type": "string"}
	case ast.Null:
		return check.Schema{"type": "null"}
	case ast.Var:
		if assigned := terms.assigned[value]; assigned != nil {
			return p.schemaOf(terms, assigned, depth-1)
		}
		if collection := terms.elements[value]; collection != nil {
			return elementSchema(p.schemaOf(terms, collection, depth-1))
		}
	case ast.Ref:
		schema := p.input
		if !value.HasPrefix(ast.InputRootRef) {
			if schema = p.schemaOf(terms, value[0], depth-1); schema == nil {
				return nil
			}
		}
		for _, step := range value[1:] {
			name, ok := step.Value.(ast.String)
			if properties, _ := schema["properties"].(check.Schema); ok && properties != nil {
				schema, _ = properties[string(name)].(check.Schema)
				continue
			}
			schema = elementSchema(schema)
		}
		return schema
	}
	return nil
}

// elementSchema returns the schema of the elements of a list, or of the values of a map; nil if it is unknown.
func elementSchema(schema check.Schema) check.Schema {
	for _, key := range []string{"items", "additionalProperties"} {
		if element, ok := schema[key].(check.Schema); ok {
			return element
		}
	}
	return nil
}

func (p *policyLinter) typeOf(terms bodyTerms, term *ast.Term) string {
	name, _ := p.schemaOf(terms, term, maxAssignments)["type"].(string)
	if name == "integer" {
		return "number"
	}
	return name
}

// lintTypes finds comparisons of different types. OPA's type checker finds only those of the operators == and =.
func (p *policyLinter) lintTypes(terms bodyTerms, expr *ast.Expr) {
	operator, left, right, ok := terms.comparison(expr)
	if !ok || operator == equal || operator == member {
		return
	}
	leftType, rightType := p.typeOf(terms, left), p.typeOf(terms, right)
	for _, side := range []struct {
		term  *ast.Term
		other string
	}{{left, rightType}, {right, leftType}} {
		if side.other == "number" && isQuantity(side.term) {
			p.at(comparedQuantity, expr.Location, "%s is a quantity, a string such as \"1\" or \"500m\", and a string is greater "+
				"than every number: compare units.parse(%s)", side.term, side.term)
			return
		}
	}
	if leftType == "" || rightType == "" || leftType == rightType {
		return
	}
	order := slices.Index(typeOrder, leftType) - slices.Index(typeOrder, rightType)
	result := "false: the rule never fires"
	if operator == notEqual || (operator == greater || operator == greaterOrEqual) == (order > 0) {
		result = "true: the condition has no effect"
	}
	p.at(otherType, expr.Location, "%s compares a %s (%s) with a %s (%s), which is always %s",
		sourceText(expr), leftType, left, rightType, right, result)
}

// isQuantity reports whether a term is a value of resources.limits or resources.requests.
func isQuantity(term *ast.Term) bool {
	ref, ok := term.Value.(ast.Ref)
	if !ok {
		return false
	}
	for i := 1; i+2 < len(ref); i++ {
		inner, _ := ref[i+1].Value.(ast.String)
		if ref[i].Equal(ast.StringTerm("resources")) && (inner == "limits" || inner == "requests") {
			return true
		}
	}
	return false
}
