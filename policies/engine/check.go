// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

// InputTypes are JSON schemas of the fields of input. A field without a schema can have any
// type. input.parameters has the type of the policy's own schema.
type InputTypes map[string]any

// Check returns what an Update would report for one source, with all other sources removed.
// It changes nothing. builtIn are the names of the built-in policies.
func (e *Engine) Check(source Source, builtIn []string) Report {
	u := &updater{
		engine:  &Engine{options: e.options, compiler: e.compiler},
		builtIn: make(map[string]bool, len(builtIn)),
		modules: make(map[digest]*compilation),
		active:  make(map[string]*policy),
	}
	for _, name := range builtIn {
		u.builtIn[name] = true
	}
	return u.updatePolicy(source.Name, []Source{source})
}

// CheckTypes compiles a source that has no problems again, for an input of these types. It
// returns the references to fields that do not exist, and other errors of OPA's type
// checker. The type checker sees references with constant keys, also through variables. It
// does not see keys that are variables, object.get, and arguments of functions.
func (e *Engine) CheckTypes(source Source, types InputTypes) []Problem {
	p, problems := parseModule(source.Rego)
	schema, err := parseParametersSchema(source.ParametersSchema)
	if p.module == nil || err != nil {
		return withPolicyName(source.Name, problems)
	}
	fields := make(map[string]any, len(dependency.InputFields))
	for _, name := range dependency.InputFields {
		if fields[name] = types[name]; fields[name] == nil {
			fields[name] = map[string]any{}
		}
	}
	fields[dependency.ParametersField] = schema.inputType()
	schemas := ast.NewSchemaSet()
	schemas.Put(ast.SchemaRootRef, map[string]any{"type": "object", "properties": fields})
	_, problems = e.compiler.compileModules(e.compiler.withLibraries(p.module), !p.gatekeeper, schemas)
	return withPolicyName(source.Name, sortProblems(problems))
}

// Renders reports whether a source that compiles has rules that are evaluated for projects,
// departments and node pools. Their input.object is one of these.
func Renders(source Source) bool {
	p, _ := parseModule(source.Rego)
	return p.rules.ofKind(renderRequest) != 0
}

// maxListedFields limits the names in a message. A pod has about forty fields.
const maxListedFields = 24

// undefinedFieldMessage describes a reference to a field that its schema does not have;
// empty for other errors.
func undefinedFieldMessage(err *ast.Error) string {
	detail, ok := err.Details.(*ast.RefErrInvalidDetail)
	if !ok || detail.Have != nil || len(detail.OneOf) == 0 || detail.Pos >= len(detail.Ref) {
		return ""
	}
	field, ok := detail.Ref[detail.Pos].Value.(ast.String)
	if !ok {
		return ""
	}
	var known []string
	for _, value := range detail.OneOf {
		if name, ok := value.(ast.String); ok {
			known = append(known, string(name))
		}
	}
	slices.Sort(known)
	parent := detail.Ref[:detail.Pos].String()
	list := strings.Join(known[:min(len(known), maxListedFields)], ", ")
	if more := len(known) - maxListedFields; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	meant := ""
	for _, name := range known {
		if editDistance(strings.ToLower(string(field)), strings.ToLower(name)) <= max(1, len(name)/4) {
			meant = fmt.Sprintf("did you mean %s? ", name)
			break
		}
	}
	return fmt.Sprintf("%s.%s does not exist; %s%s has %s", parent, string(field), meant, parent, list)
}

// ChangesObjects reports whether a source has rules that change objects, or that determine the
// type of a workload.
func ChangesObjects(source Source) bool {
	return source.rules()&(mutatingRules|1<<ruleType) != 0
}
