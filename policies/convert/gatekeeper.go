// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sluice.dev/api/v1alpha1"
)

// The groups of Gatekeeper.
const (
	templatesGroup   = "templates.gatekeeper.sh"
	constraintsGroup = "constraints.gatekeeper.sh"
	mutationsGroup   = "mutations.gatekeeper.sh"
	gatekeeperTarget = "admission.k8s.gatekeeper.sh"
)

// Gatekeeper converts constraints with their templates, mutators, and the cases of gator's suites. Each constraint becomes a
// policy. A template without a constraint has no effect, in Gatekeeper and here.
func Gatekeeper(ctx context.Context, files []File, checker Checker) (*Result, error) {
	g := &gatekeeper{conversion: newConversion(), templates: make(map[string]*constraintTemplate)}
	documents := g.readDocuments(files)
	for i := range documents {
		if d := &documents[i]; d.group() == templatesGroup && d.kind() == "ConstraintTemplate" {
			g.addTemplate(d)
		}
	}
	for i := range documents {
		d := &documents[i]
		switch {
		case d.group() == constraintsGroup:
			g.addConstraint(d)
		case d.group() == mutationsGroup:
			g.addMutator(d)
		case d.group() == "config.gatekeeper.sh" || d.group() == "syncset.gatekeeper.sh":
			g.entry(d.file, d.label()).refuse("", "Gatekeeper's own configuration is no policy",
				"Sluice governs the namespaces of projects only, so exempt namespaces need no entry; policies read the kinds that policyData of AdmissionParameters lists, as data.objects")
		case strings.HasSuffix(d.group(), "gatekeeper.sh") && d.group() != templatesGroup && d.group() != "test.gatekeeper.sh":
			g.entry(d.file, d.label()).refuse("", "this kind has no counterpart", "remove it, or write a policy of Sluice")
		}
	}
	g.addSuites(documents)
	for _, t := range g.templates {
		if !t.used && len(t.entry.Gaps) == 0 {
			t.entry.Status = StatusIgnored
			t.entry.note("no constraint uses it, so it has no effect")
		}
	}
	return g.finish(ctx, checker)
}

// gatekeeper is the conversion of one directory.
type gatekeeper struct {
	*conversion
	templates map[string]*constraintTemplate // by the kind of their constraints
	shelf     libraryShelf
	byObject  []constraintDraft
}

// constraintDraft is a draft with the constraint that it was.
type constraintDraft struct {
	draft      *draft
	constraint *sourceObject
}

// constraintTemplate is a template, as far as it can be converted.
type constraintTemplate struct {
	entry     *Entry
	kind      string
	rego      string
	libraries []string
	version   ast.RegoVersion
	schema    map[string]any
	used      bool
	count     int // of constraints that became drafts
}

// addTemplate reads a template. One that cannot be converted has gaps.
func (g *gatekeeper) addTemplate(d *sourceObject) {
	e := g.entry(d.file, d.label())
	t := &constraintTemplate{entry: e, kind: text(at(d.content, "spec", "crd", "spec", "names", "kind"))}
	switch {
	case t.kind == "":
		e.refuse("spec.crd.spec.names.kind", "it is required", "name the kind of the constraints")
		return
	case g.templates[t.kind] != nil:
		e.refuse("", fmt.Sprintf("%s has the same kind %s", g.templates[t.kind].entry.Object, t.kind), "remove one of them")
		return
	}
	g.templates[t.kind] = t
	t.schema = object(at(d.content, "spec", "crd", "spec", "validation", "openAPIV3Schema"))
	targets := list(at(d.content, "spec", "targets"))
	if len(targets) != 1 || text(at(targets[0], "target")) != gatekeeperTarget {
		e.refuse("spec.targets", "only the one target "+gatekeeperTarget+" has a counterpart", "write a policy of Sluice")
		return
	}
	t.readSource(object(targets[0]))
	if len(e.Gaps) > 0 {
		return
	}
	for _, module := range append([]string{t.rego}, t.libraries...) {
		if name := forbiddenData(module); name != "" {
			e.refuse("spec.targets[0].rego", name+" has no counterpart: policies read the kinds that policyData of AdmissionParameters lists, as data.objects",
				"write the rule with data.objects, input.project, input.nodePools or input.use, or keep the template in Gatekeeper")
			return
		}
	}
}

// readSource reads the Rego of a target, in either of its forms.
func (t *constraintTemplate) readSource(target map[string]any) {
	t.rego, t.version = text(target["rego"]), ast.RegoV0
	t.libraries = texts(target["libs"])
	var engines []string
	for _, code := range list(target["code"]) {
		engine := text(at(code, "engine"))
		engines = append(engines, engine)
		if engine != "Rego" {
			continue
		}
		source := object(at(code, "source"))
		t.rego, t.libraries = text(source["rego"]), texts(source["libs"])
		if text(source["version"]) == "v1" {
			t.version = ast.RegoV1
		}
	}
	switch {
	case t.rego == "" && len(engines) > 0:
		t.entry.refuse("spec.targets[0].code", fmt.Sprintf("the engine %s is CEL, which policies do not have", strings.Join(engines, ", ")),
			"write it in Rego, or as a ValidatingAdmissionPolicy of Kubernetes")
	case t.rego == "":
		t.entry.refuse("spec.targets[0].rego", "it is required", "add the Rego")
	case len(engines) > 1:
		t.entry.note("the Rego of the template is converted, not its code for %s", strings.Join(slices.DeleteFunc(engines,
			func(e string) bool { return e == "Rego" }), ", "))
	}
}

// forbiddenData returns the part of data that a module reads and policies do not have; empty if there is none.
func forbiddenData(rego string) string {
	tokens := tokenize(rego)
	for i, t := range tokens {
		if !t.identifier || t.text != "data" || afterDot(tokens, i) || i+1 >= len(tokens) {
			continue
		}
		if rest := tokens[i+1].text; strings.HasPrefix(rest, `["inventory"]`) ||
			rest == "." && i+2 < len(tokens) && (tokens[i+2].text == "inventory" || tokens[i+2].text == "external_data") {
			return "data.inventory"
		}
	}
	if identifiers(rego)["external_data"] {
		return "external_data"
	}
	return ""
}

// addConstraint adds the draft of a constraint.
func (g *gatekeeper) addConstraint(d *sourceObject) {
	e := g.entry(d.file, d.label())
	t := g.templates[d.kind()]
	if t == nil {
		e.refuse("", "the directory has no ConstraintTemplate of its kind", "import both together")
		return
	}
	t.used = true
	if len(t.entry.Gaps) > 0 {
		e.refuse("", "its template cannot be converted: "+t.entry.Gaps[0].Reason, t.entry.Gaps[0].Fix)
		return
	}
	spec := object(d.content["spec"])
	scope := gatekeeperMatch(e, object(spec["match"]))
	enforcement := gatekeeperEnforcement(e, spec)
	if len(e.Gaps) > 0 {
		return
	}
	policy := v1alpha1.Policy{}
	policy.Name = d.name()
	policy.Spec.Enforcement = enforcement
	policy.Spec.Match.Kinds = scope.kinds
	if err := t.setParameters(&policy, e, spec["parameters"]); err != nil {
		e.refuse("spec.parameters", err.Error(), "correct the parameters or the template's schema")
		return
	}
	forms, err := t.modules(&g.shelf)
	if err != nil {
		e.refuse("", err.Error(), "correct the template, or rewrite it as a policy of Sluice")
		return
	}
	t.count++
	original := slices.Clone(append([]string{t.rego}, t.libraries...))
	next := &draft{policy: policy, entry: e, template: t.entry, examples: parameterExamples(at(spec, "parameters"), scope.kinds)}
	for _, form := range forms {
		next.forms = append(next.forms, regoForm{scope.guard(form.rego, form.version), form.libraries})
	}
	next.compare = func(ctx context.Context, objects []map[string]any) (string, error) {
		unguarded := next.policy
		unguarded.Spec.Rego = forms[next.form].rego
		return compareWithTemplate(ctx, original, t.version, &unguarded, sourcesOf(next.libraries()), objects)
	}
	g.add(next)
	g.byObject = append(g.byObject, constraintDraft{next, d})
	t.entry.Policies = append(t.entry.Policies, next.policy.Name)
}

// setParameters sets the parameters of a constraint with the defaults of its template's schema, and the schema.
func (t *constraintTemplate) setParameters(policy *v1alpha1.Policy, e *Entry, parameters any) error {
	schema, _ := withoutDefaults(t.schema).(map[string]any)
	if parameters == nil {
		parameters = map[string]any{}
	}
	parameters = applyDefaults(t.schema, parameters)
	if _, ok := parameters.(map[string]any); !ok {
		return fmt.Errorf("they must be an object")
	}
	raw, err := json.Marshal(parameters)
	if err != nil {
		return err
	}
	if len(object(parameters)) > 0 {
		policy.Spec.Parameters = &apiextensionsv1.JSON{Raw: raw}
	}
	if len(schema) == 0 {
		return nil
	}
	if schema["type"] == nil {
		schema["type"] = "object"
	}
	if raw, err = json.Marshal(schema); err != nil {
		return err
	}
	policy.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: raw}
	if problem := schemaProblem(policy); problem != "" {
		policy.Spec.ParametersSchema = nil
		e.note("the schema of the parameters is left out: %s", problem)
	}
	return nil
}

// withoutDefaults returns a schema without its defaults, which policies do not have.
func withoutDefaults(schema any) any {
	switch schema := schema.(type) {
	case map[string]any:
		copied := make(map[string]any, len(schema))
		for key, value := range schema {
			// A property may have the name default; its value is then a schema.
			if _, isSchema := value.(map[string]any); key == "default" && (!isSchema || schema["type"] != nil) {
				continue
			}
			copied[key] = withoutDefaults(value)
		}
		return copied
	case []any:
		copied := make([]any, len(schema))
		for i, value := range schema {
			copied[i] = withoutDefaults(value)
		}
		return copied
	}
	return schema
}

// applyDefaults returns a value with the defaults of its schema, as the API server sets them.
func applyDefaults(schema map[string]any, value any) any {
	switch typed := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(typed))
		additional := object(schema["additionalProperties"])
		for key, child := range typed {
			copied[key] = applyDefaults(additional, child)
		}
		for key, child := range object(schema["properties"]) {
			property := object(child)
			if set, ok := typed[key]; ok {
				copied[key] = applyDefaults(property, set)
			} else if byDefault, ok := property["default"]; ok {
				copied[key] = applyDefaults(property, byDefault)
			}
		}
		return copied
	case []any:
		copied := make([]any, len(typed))
		for i, child := range typed {
			copied[i] = applyDefaults(object(schema["items"]), child)
		}
		return copied
	}
	return value
}
