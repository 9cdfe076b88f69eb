// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
)

// expression is a part of a patch that is written as Rego.
type expression struct {
	rego string
	// changed is the part of an object that it sets, for the cases.
	changed any
}

// patchParts is a patch, split by the effect of its parts. Each is nil if no part has the effect.
type patchParts struct {
	defaults, overrides any
	// condition is a pattern that must pass for the patch to apply.
	condition any
}

// convertMutate adds the defaults and overrides of a mutate rule.
func (r *kyvernoRule) convertMutate(m *regoModule, scope string, mutate map[string]any) {
	for _, kind := range []string{"patchesJson6902", "foreach", "targets", "mutateExistingOnPolicyUpdate"} {
		if mutate[kind] != nil {
			r.refuse("mutate."+kind, "it has no counterpart: policies describe the desired object",
				"write it as defaults, overrides, append or remove in Rego")
		}
	}
	if r.kind == kindJob {
		r.refuse("mutate", "of Jobs, policies change the pods", "match Pod")
	}
	if r.refused {
		return
	}
	patch := object(mutate["patchStrategicMerge"])
	if len(patch) == 0 {
		r.refuse("mutate", "it has no patchStrategicMerge", "remove the rule")
		return
	}
	p := &patchWriter{rule: r, module: m}
	parts := p.split(patch, "", false)
	if r.refused {
		return
	}
	condition := ""
	if parts.condition != nil {
		writer := &patternWriter{rule: r, module: m}
		condition = fmt.Sprintf("%s(input.object) == \"pass\"", writer.element(parts.condition, ""))
	}
	for _, part := range []struct {
		rule  string
		value any
	}{{"defaults", parts.defaults}, {"overrides", parts.overrides}} {
		if part.value == nil {
			continue
		}
		m.rule(part.rule+" := "+regoOf(part.value), scope, condition)
		r.changed = mergeParts(r.changed, changedOf(part.value))
	}
	if parts.defaults == nil && parts.overrides == nil {
		r.refuse("mutate.patchStrategicMerge", "it changes nothing", "remove the rule")
	}
	r.addPatternExample(withoutChanges(parts.condition))
}

// withoutChanges returns a condition as a pattern; an empty one if there is none.
func withoutChanges(condition any) any {
	if condition == nil {
		return map[string]any{}
	}
	return condition
}

// patchWriter splits a patch.
type patchWriter struct {
	rule   *kyvernoRule
	module *regoModule
}

const patchPath = "mutate.patchStrategicMerge"

// split splits a map of a patch. Below +(key) all is a default.
func (p *patchWriter) split(patch map[string]any, path string, byDefault bool) patchParts {
	defaults, overrides, condition := make(map[string]any), make(map[string]any), make(map[string]any)
	for _, key := range keys(patch) {
		anchor, plain := splitAnchor(key)
		below := path + "." + plain
		switch {
		case strings.HasPrefix(plain, "$"):
			p.rule.refuse(patchPath+below, "directives have no counterpart", "write the rule remove in Rego")
			continue
		case anchor == "()" || anchor == "<()":
			condition[anchorKey(anchor, plain)] = patch[key]
			continue
		case anchor != "" && anchor != "+()":
			p.rule.refuse(patchPath+below, "the anchor "+anchor+" has no meaning in a patch", "remove it")
			continue
		}
		parts := p.value(patch[key], plain, below, byDefault || anchor == "+()")
		if parts.defaults != nil {
			defaults[plain] = parts.defaults
		}
		if parts.overrides != nil {
			overrides[plain] = parts.overrides
		}
		if parts.condition != nil {
			condition[plain] = parts.condition
		}
	}
	return patchParts{defaults: notEmpty(defaults), overrides: notEmpty(overrides), condition: notEmpty(condition)}
}

func anchorKey(anchor, plain string) string { return strings.TrimSuffix(anchor, ")") + plain + ")" }

func notEmpty(content map[string]any) any {
	if len(content) == 0 {
		return nil
	}
	return content
}

// value splits the value of a key.
func (p *patchWriter) value(value any, key, path string, byDefault bool) patchParts {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return leaf(value, byDefault)
		}
		return p.split(value, path, byDefault)
	case []any:
		if path == ".spec.containers" || path == ".spec.initContainers" {
			return p.containers(value, key, path, byDefault)
		}
		if hasAnchor(value) {
			p.rule.refuse(patchPath+path, "anchors in this list have no counterpart", "write the rule in Rego")
		}
	case string:
		if strings.Contains(value, "{{") {
			p.rule.refuse(patchPath+path, "variables in patches have no counterpart", "write the rule in Rego")
		}
	case nil:
		if byDefault {
			p.rule.refuse(patchPath+path, "a default cannot remove", "remove the anchor")
		}
	}
	return leaf(value, byDefault)
}

func leaf(value any, byDefault bool) patchParts {
	if byDefault {
		return patchParts{defaults: value}
	}
	if value == nil {
		value = expression{rego: "null"}
	}
	return patchParts{overrides: value}
}

// hasAnchor reports whether a key of a value has an anchor, or a text a variable.
func hasAnchor(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if anchor, _ := splitAnchor(key); anchor != "" || hasAnchor(child) {
				return true
			}
		}
	case []any:
		for _, child := range value {
			if hasAnchor(child) {
				return true
			}
		}
	case string:
		return strings.Contains(value, "{{")
	}
	return false
}

// containers splits the only element of a list of containers: it applies to all containers that meet its conditions.
func (p *patchWriter) containers(elements []any, key, path string, byDefault bool) patchParts {
	if len(elements) != 1 {
		if hasAnchor(elements) {
			p.rule.refuse(patchPath+path, "a list of several containers with anchors has no counterpart", "write one rule for each")
		}
		return leaf(elements, byDefault)
	}
	element := object(elements[0])
	if element["name"] != nil && !hasAnchor(elements) {
		return leaf(elements, byDefault)
	}
	parts := p.split(element, path+"[]", byDefault)
	condition := object(parts.condition)
	if name := text(condition["(name)"]); name == "*" || name == "?*" {
		delete(condition, "(name)")
	} else if len(condition) == 0 {
		p.rule.refuse(patchPath+path, "the containers are not named: add (name): \"*\"", "name them")
		return patchParts{}
	}
	if len(condition) == 0 {
		return patchParts{defaults: forAll(parts.defaults), overrides: forAll(parts.overrides)}
	}
	writer := &patternWriter{rule: p.rule, module: p.module}
	check := writer.element(condition, strings.TrimPrefix(path, ".")+"[]")
	each := func(part any) any {
		if part == nil {
			return nil
		}
		return expression{
			rego: fmt.Sprintf("{c.name: %s | some c in object.get(input.object.spec, %s, []); %s(c) == \"pass\"}", regoOf(part), literal(key),
				check),
			changed: map[string]any{"*": changedOf(part)},
		}
	}
	p.rule.addPatternExample(map[string]any{"spec": map[string]any{key: []any{condition}}})
	return patchParts{defaults: each(parts.defaults), overrides: each(parts.overrides)}
}

// forAll returns a part for all containers.
func forAll(part any) any {
	if part == nil {
		return nil
	}
	return map[string]any{"*": part}
}

// regoOf returns a part of a patch as Rego.
func regoOf(value any) string {
	switch value := value.(type) {
	case expression:
		return value.rego
	case map[string]any:
		parts := make([]string, 0, len(value))
		for _, key := range keys(value) {
			parts = append(parts, literal(key)+": "+regoOf(value[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return literal(value)
}

// changedOf returns the part of an object that a part of a patch sets.
func changedOf(value any) any {
	switch value := value.(type) {
	case expression:
		return value.changed
	case map[string]any:
		changed := make(map[string]any, len(value))
		for key, child := range value {
			changed[key] = changedOf(child)
		}
		return changed
	}
	return value
}

// mergeParts returns an object with the keys of both.
func mergeParts(a, b any) any {
	left, ok := a.(map[string]any)
	right, okRight := b.(map[string]any)
	if !ok || !okRight {
		return b
	}
	merged := make(map[string]any, len(left)+len(right))
	for key, value := range left {
		merged[key] = value
	}
	for key, value := range right {
		merged[key] = mergeParts(merged[key], value)
	}
	return merged
}
