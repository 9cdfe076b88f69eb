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

// Check returns what an Update would report for one source beside others: the libraries, and, for a library, the policies
// that may import it. They can have an earlier version of the source. It changes nothing. builtIn are the names of the
// built-in policies.
func (e *Engine) Check(source Source, builtIn []string, others ...Source) Report {
	temporary := &Engine{options: e.options, compiler: e.compiler}
	if source.IsLibrary() {
		related := slices.DeleteFunc(slices.Clone(others), func(other Source) bool { return other.BuiltIn || !MayImport(other) })
		temporary.Update(related)
		related = slices.DeleteFunc(related, func(other Source) bool { return other.Name == source.Name })
		reports := temporary.Update(append(related, source))
		return reports[slices.IndexFunc(reports, func(r Report) bool { return r.Name == source.Name })]
	}
	u := newUpdater(temporary)
	for _, name := range builtIn {
		u.builtIn[name] = true
	}
	u.chooseLibraries(librariesOf(source, others), nil)
	return u.updatePolicy(source.Name, []Source{source})
}

// MayImport reports whether a source is a library, or may refer to one.
func MayImport(source Source) bool { return source.IsLibrary() || strings.Contains(source.Rego, "lib") }

// librariesOf returns the libraries beside which a source is compiled; none if it refers to none.
func librariesOf(source Source, others []Source) []Source {
	if !MayImport(source) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(others), func(other Source) bool { return !other.IsLibrary() || other.Name == source.Name })
}

// CheckTypes compiles a source that has no problems again, for an input of these types. It
// returns the references to fields that do not exist, and other errors of OPA's type
// checker. The type checker sees references with constant keys, also through variables. It
// does not see keys that are variables, object.get, and arguments of functions.
//
// others are as for [Engine.Check].
func (e *Engine) CheckTypes(source Source, types InputTypes, others ...Source) []Problem {
	u := newUpdater(e)
	u.chooseLibraries(librariesOf(source, others), nil)
	if source.IsLibrary() {
		return e.checkLibraryTypes(u, source, types)
	}
	p, problems := parseModule(source.Rego)
	schema, err := parseParametersSchema(source.ParametersSchema)
	if p.module == nil || err != nil {
		return withPolicyName(source.Name, problems)
	}
	imported, _ := u.importsOf(source.Rego, u.world)
	schemas := inputSchemas(types, schema.inputType())
	_, problems = e.compiler.compileModules(e.compiler.withLibraries(policyFile, p.module, imported), !p.gatekeeper, schemas)
	return withPolicyName(source.Name, sortProblems(problems))
}

// checkLibraryTypes is CheckTypes for a library, whose importers can have any parameters.
func (e *Engine) checkLibraryTypes(u *updater, source Source, types InputTypes) []Problem {
	library := newTeamLibrary(source)
	if library.module == nil {
		return nil
	}
	direct, _ := u.world.resolve(library.reads)
	modules := e.compiler.withLibraries(library.file(), library.module, u.world.closure(direct))
	_, problems := e.compiler.compileModules(modules, true, inputSchemas(types, map[string]any{}))
	return withPolicyName(source.Name, ownProblems(source.Name, sortProblems(problems)))
}

// inputSchemas returns the schema of input.
func inputSchemas(types InputTypes, parameters any) *ast.SchemaSet {
	fields := make(map[string]any, len(dependency.InputFields))
	for _, name := range dependency.InputFields {
		if fields[name] = types[name]; fields[name] == nil {
			fields[name] = map[string]any{}
		}
	}
	fields[dependency.ParametersField] = parameters
	schemas := ast.NewSchemaSet()
	schemas.Put(ast.SchemaRootRef, map[string]any{"type": "object", "properties": fields})
	return schemas
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
		allowed := max(1, len(name)/4)
		if EditDistance(strings.ToLower(string(field)), strings.ToLower(name), allowed) <= allowed {
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
