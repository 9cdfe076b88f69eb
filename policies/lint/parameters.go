// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// parameterRead is how a policy reads a parameter first.
type parameterRead struct {
	location *ast.Location
	// optional: every read has a default, or is under not.
	optional bool
}

// parameterReads returns the parameters that a module reads by name. all reports that it also reads them in another way.
func parameterReads(module *ast.Module) (reads map[string]parameterRead, all bool) {
	reads = make(map[string]parameterRead)
	optional := make(map[*ast.Term]bool) // the first terms of references that may be undefined
	root := ast.MustParseRef("input.parameters")
	read := func(name string, location *ast.Location, isOptional bool) {
		known, exists := reads[name]
		if !exists || known.optional && !isOptional {
			reads[name] = parameterRead{location, isOptional}
		}
	}
	ast.WalkTerms(module, func(term *ast.Term) bool {
		call, ok := term.Value.(ast.Call)
		if !ok || call[0].String() != ast.ObjectGet.Name || len(call) < 4 {
			return false
		}
		ref, ok := call[1].Value.(ast.Ref)
		if !ok || !ref.Equal(root) {
			return false
		}
		key := call[2].Value
		if path, ok := key.(*ast.Array); ok && path.Len() > 0 {
			key = path.Elem(0).Value
		}
		if name, ok := key.(ast.String); ok {
			read(string(name), term.Location, true)
			optional[ref[0]] = true
		}
		return false
	})
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if expr.IsNegated() {
			ast.WalkRefs(expr, func(ref ast.Ref) bool {
				optional[ref[0]] = true
				return false
			})
		}
		return false
	})
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if !ref.HasPrefix(root) {
			all = all || ref.Equal(ast.InputRootRef)
			return false
		}
		if len(ref) == 2 {
			all = all || !optional[ref[0]]
			return false
		}
		if name, ok := ref[2].Value.(ast.String); ok {
			read(string(name), ref[0].Location, optional[ref[0]])
		} else {
			all = true
		}
		return false
	})
	return reads, all
}

// parametersSchema is the part of a policy's schema that lint reads.
type parametersSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// lintParameters finds parameters that no rule reads, and reads of parameters that may be missing.
func (p *policyLinter) lintParameters() {
	reads, all := parameterReads(p.module)
	var schema parametersSchema
	hasSchema := len(p.source.ParametersSchema) > 0 && json.Unmarshal(p.source.ParametersSchema, &schema) == nil
	var set map[string]json.RawMessage
	if len(p.source.Parameters) > 0 && json.Unmarshal(p.source.Parameters, &set) != nil {
		return // the check reports it
	}
	for _, name := range slices.Sorted(maps.Keys(reads)) {
		read := reads[name]
		_, isSet := set[name]
		_, isAllowed := schema.Properties[name]
		if read.optional || isSet || slices.Contains(schema.Required, name) || hasSchema && !isAllowed {
			continue // the check reports one that the schema does not have
		}
		p.at(missingParameter, read.location, "input.parameters.%s is not in spec.parameters: without it the rule never fires; set it, "+
			"read it with object.get(input.parameters, %q, …), or list it under required in spec.parametersSchema", name, name)
	}
	if len(reads) > 0 && !hasSchema {
		p.add(noSchema, p.policy.Name, p.fieldPlace("spec", "parameters"),
			"spec.parametersSchema is missing: with it, the webhook refuses parameters that are misspelled or of another type")
	}
	if all || importsTeamLibrary(p.module) {
		return // a library may read any parameter of its importer
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if _, isRead := reads[name]; !isRead {
			p.add(unusedParameter, p.policy.Name, p.fieldPlace("spec", "parametersSchema", "properties", name),
				"no rule reads input.parameters.%s: remove it from the schema, or read it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, isRead := reads[name]; !isRead && !hasSchema {
			p.add(unusedParameter, p.policy.Name, p.fieldPlace("spec", "parameters", name),
				"no rule reads input.parameters.%s: remove it, or read it", name)
		}
	}
}

// importsTeamLibrary reports whether a module imports a library of a team.
func importsTeamLibrary(module *ast.Module) bool {
	root := ast.MustParseRef("data.lib")
	return slices.ContainsFunc(module.Imports, func(i *ast.Import) bool {
		path, ok := i.Path.Value.(ast.Ref)
		return ok && path.HasPrefix(root)
	})
}

// isTenantParameter reports whether a parameter has the name of a project or department, or a list of them.
func isTenantParameter(name string) bool {
	return slices.Contains([]string{"project", "projects", "department", "departments"}, strings.ToLower(name))
}
