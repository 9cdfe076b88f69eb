// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// addMutator adds the draft of a mutator that sets a fixed value.
func (g *gatekeeper) addMutator(d *sourceObject) {
	e := g.entry(d.file, d.label())
	const rewrite = "write a policy of Sluice with the rules defaults, overrides or append"
	spec := object(d.content["spec"])
	scope := gatekeeperMatch(e, object(spec["match"]))
	if !mutatesPods(d.kind(), spec, scope) {
		e.refuse("spec.applyTo", "only pods are changed at admission", "apply it to pods")
	}
	scope.kinds = []string{"Pod"}
	var rule mutationRule
	var why string
	switch d.kind() {
	case "Assign":
		rule, why = assignRule(spec)
	case "AssignMetadata":
		rule, why = assignMetadataRule(spec)
	case "ModifySet":
		rule, why = modifySetRule(spec)
	default:
		why = "the kind " + d.kind() + " has no counterpart"
	}
	if why != "" {
		e.refuse("", why, rewrite)
	}
	if len(e.Gaps) > 0 {
		return
	}
	policy := v1alpha1.Policy{}
	policy.Name = d.name()
	policy.Spec.Match.Kinds = scope.kinds
	policy.Spec.Rego = rule.module(identifier(policyName(d.name())), &scope)
	g.add(&draft{policy: policy, entry: e, changed: rule.changed})
}

func mutatesPods(kind string, spec map[string]any, s scope) bool {
	if kind == "AssignMetadata" {
		return len(s.kinds) == 0 || s.kinds[0] == "Pod"
	}
	for _, entry := range list(spec["applyTo"]) {
		for _, named := range texts(at(entry, "kinds")) {
			if named == "Pod" {
				return true
			}
		}
	}
	return false
}

// mutationRule is a rule that sets fixed values.
type mutationRule struct {
	// rules are the rules without their condition: overrides := {…}.
	heads []string
	// condition is an expression that must hold beside the scope; may be empty.
	condition string
	// changed is the part that the rule sets.
	changed any
}

// module returns the module with the rules, which hold in the scope.
func (r *mutationRule) module(name string, s *scope) string {
	conditions := *s
	if r.condition != "" {
		conditions.require("%s", r.condition)
	}
	var b strings.Builder
	b.WriteString("package " + name + "\n\n")
	for _, head := range r.heads {
		if len(conditions.conditions) > 0 {
			head += " if in_scope"
		}
		b.WriteString(head + "\n\n")
	}
	if len(conditions.conditions) > 0 {
		b.WriteString(conditions.rules("in_scope", ast.RegoV1))
	}
	if formatted, err := formatRego(b.String(), ast.RegoV1, ast.RegoV1); err == nil {
		return formatted
	}
	return b.String()
}

// assignRule converts an Assign with a fixed value.
func assignRule(spec map[string]any) (mutationRule, string) {
	assign := object(at(spec, "parameters", "assign"))
	value, ok := assign["value"]
	if !ok || len(assign) != 1 {
		return mutationRule{}, "only an assigned value has a counterpart, not a value from the object or from outside"
	}
	location := text(spec["location"])
	segments, why := parseLocation(location)
	if why != "" {
		return mutationRule{}, why
	}
	part, condition, why := nest(segments, value)
	if why != "" {
		return mutationRule{}, why
	}
	rule := "overrides"
	for _, test := range list(at(spec, "parameters", "pathTests")) {
		path, kind := text(at(test, "subPath")), text(at(test, "condition"))
		if kind != "MustNotExist" || path != location {
			return mutationRule{}, fmt.Sprintf("the path test %s of %s has no counterpart; only MustNotExist of the location itself has one",
				kind, path)
		}
		rule = "defaults"
	}
	if in := at(spec, "parameters", "assignIf"); in != nil {
		return mutationRule{}, "assignIf has no counterpart"
	}
	return mutationRule{heads: []string{rule + " := " + literal(part)}, condition: condition, changed: part}, ""
}

// assignMetadataRule converts an AssignMetadata, which never replaces a value.
func assignMetadataRule(spec map[string]any) (mutationRule, string) {
	assign := object(at(spec, "parameters", "assign"))
	value, ok := assign["value"].(string)
	if !ok || len(assign) != 1 {
		return mutationRule{}, "only an assigned value has a counterpart, not a value from the object or from outside"
	}
	segments, why := parseLocation(text(spec["location"]))
	if why != "" {
		return mutationRule{}, why
	}
	if len(segments) != 3 || segments[0].key != "metadata" || segments[1].key != "labels" && segments[1].key != "annotations" {
		return mutationRule{}, "the location must be a label or an annotation"
	}
	part, _, why := nest(segments, value)
	return mutationRule{heads: []string{"defaults := " + literal(part)}, changed: part}, why
}

// setLists are the lists to which append adds elements.
var setLists = map[string]bool{"spec.tolerations": true, "spec.imagePullSecrets": true}

// modifySetRule converts a ModifySet that adds fixed values.
func modifySetRule(spec map[string]any) (mutationRule, string) {
	location := text(spec["location"])
	values := list(at(spec, "parameters", "values", "fromList"))
	if operation := text(at(spec, "parameters", "operation")); operation != "" && operation != "merge" || len(values) == 0 {
		return mutationRule{}, "only the operation merge with a list of values has a counterpart"
	}
	if len(list(at(spec, "parameters", "pathTests"))) > 0 {
		return mutationRule{}, "path tests of a ModifySet have no counterpart"
	}
	if !setLists[location] {
		return mutationRule{}, "only spec.tolerations and spec.imagePullSecrets are sets here; the location is " + location
	}
	path := strings.Split(location, ".")
	var rule mutationRule
	for _, value := range values {
		rule.heads = append(rule.heads, "append contains "+literal(map[string]any{"path": path, "value": value}))
	}
	if location == "spec.imagePullSecrets" {
		// Its elements are merged by name.
		rule.heads = []string{"defaults := " + literal(map[string]any{"spec": map[string]any{"imagePullSecrets": values}})}
	}
	rule.changed = map[string]any{"spec": map[string]any{path[1]: values}}
	return rule, ""
}

// segment is a step of a location: a key, with the name of an element if its value is a list.
type segment struct {
	key, element string // element is * for all
}

var (
	locationStep  = regexp.MustCompile(`^(?:"([^"]+)"|([A-Za-z0-9_/-]+))(?:\[name:\s*(?:"([^"]+)"|([A-Za-z0-9_.*-]+))\])?(?:\.|$)`)
	namedElements = map[string]bool{"containers": true, "initContainers": true, "volumes": true, "env": true}
)

// parseLocation parses a location such as spec.containers[name: *].image. It returns why it has no counterpart.
func parseLocation(location string) ([]segment, string) {
	var segments []segment
	for rest := location; rest != ""; {
		match := locationStep.FindStringSubmatch(rest)
		if match == nil {
			return nil, fmt.Sprintf("the location %q is not supported; lists are addressed by name", location)
		}
		segments = append(segments, segment{key: match[1] + match[2], element: match[3] + match[4]})
		rest = rest[len(match[0]):]
	}
	if len(segments) == 0 {
		return nil, "the location is required"
	}
	return segments, ""
}

// nest returns the object that has a value at a location, and the condition under which it exists.
func nest(segments []segment, value any) (part any, condition, why string) {
	part = value
	for i := len(segments) - 1; i >= 0; i-- {
		s := segments[i]
		if s.element == "" {
			part = map[string]any{s.key: part}
			continue
		}
		containers := i == 1 && (s.key == "containers" || s.key == "initContainers")
		switch {
		case !namedElements[s.key]:
			return nil, "", fmt.Sprintf("elements of %s have no names here", s.key)
		case containers:
			part = map[string]any{s.key: map[string]any{s.element: part}}
			if s.element != "*" {
				condition = fmt.Sprintf("%s in {c.name | some c in input.object.spec.%s}", literal(s.element), s.key)
			}
		case s.element == "*":
			return nil, "", fmt.Sprintf("all elements of %s cannot be addressed", s.key)
		default:
			element, ok := part.(map[string]any)
			if !ok {
				return nil, "", fmt.Sprintf("the element of %s must be an object", s.key)
			}
			copied := map[string]any{"name": s.element}
			for key, v := range element {
				copied[key] = v
			}
			part = map[string]any{s.key: []any{copied}}
		}
	}
	return part, condition, ""
}
