// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"strings"
)

// patternWriter writes a pattern of Kyverno as functions, one for each of its elements. A function returns pass, fail or skip.
type patternWriter struct {
	rule   *kyvernoRule
	module *regoModule
}

// anchored is a key of a pattern with an anchor, such as =(key).
var anchored = regexp.MustCompile(`^([=^X<+]?)\((.+)\)$`)

// splitAnchor returns the anchor of a key, such as "=()", and the key without it.
func splitAnchor(key string) (anchor, plain string) {
	if match := anchored.FindStringSubmatch(key); match != nil {
		return match[1] + "()", match[2]
	}
	return "", key
}

// element writes an element of a pattern, and returns the name of its function.
func (p *patternWriter) element(pattern any, path string) string {
	name := p.module.newName("check")
	switch pattern := pattern.(type) {
	case map[string]any:
		p.mapElement(name, pattern, path)
	case []any:
		p.listElement(name, pattern, path)
	default:
		p.scalarElement(name, pattern, path)
	}
	return name
}

// mapElement writes a map: each key is a result, and conditions come first.
func (p *patternWriter) mapElement(name string, pattern map[string]any, path string) {
	var results []string
	for _, key := range keys(pattern) {
		anchor, plain := splitAnchor(key)
		below := strings.TrimPrefix(path+"."+plain, ".")
		value := fmt.Sprintf("object.get(value, %s, null)", literal(plain))
		if strings.ContainsAny(plain, "*?") {
			p.rule.refuse("validate.pattern "+below, "wildcards in keys have no counterpart", "write the rule in Rego")
			return
		}
		switch anchor {
		case "":
			if pattern[key] == "*" {
				results = append(results, fmt.Sprintf("%s(value, %s)", p.module.use("present"), literal(plain)))
				continue
			}
			results = append(results, fmt.Sprintf("%s(%s)", p.element(pattern[key], below), value))
		case "()", "<()", "=()":
			function := map[string]string{"()": "only_if", "<()": "only_if_present", "=()": "unless_absent"}[anchor]
			results = append(results, fmt.Sprintf("%s(value, %s, %s(%s))", p.module.use(function), literal(plain), p.element(pattern[key],
				below), value))
		case "X()":
			results = append(results, fmt.Sprintf("%s(value, %s)", p.module.use("forbidden"), literal(plain)))
		case "^()":
			results = append(results, p.existence(plain, pattern[key], below)...)
		default:
			p.rule.refuse("validate.pattern "+below, "the anchor "+anchor+" has no meaning in a validation", "remove it")
			return
		}
	}
	p.pathComment(path)
	if len(results) == 0 {
		fmt.Fprintf(p.module.body, "%s(value) := \"pass\" if {\n\tis_object(value)\n} else := \"fail\"\n\n", name)
		return
	}
	fmt.Fprintf(p.module.body, "%s(value) := %s([\n\t%s,\n]) if {\n\tis_object(value)\n} else := \"fail\"\n\n",
		name, p.module.use("all_of"), strings.Join(results, ",\n\t"))
}

// existence returns the results of an existence anchor: one for each element of its list.
func (p *patternWriter) existence(key string, pattern any, path string) []string {
	var results []string
	for _, element := range list(pattern) {
		if _, ok := element.(map[string]any); !ok {
			p.rule.refuse("validate.pattern "+path, "the list of an existence anchor must have objects", "correct the pattern")
			return nil
		}
		check := p.element(element, path+"[]")
		results = append(results, fmt.Sprintf("%s(value, %s, [%s(element) | some element in object.get(value, %s, null)])",
			p.module.use("existing"), literal(key), check, literal(key)))
	}
	if len(results) == 0 {
		p.rule.refuse("validate.pattern "+path, "an existence anchor needs a list", "correct the pattern")
	}
	return results
}

// listElement writes a list: all elements have the values of the first element of the pattern.
func (p *patternWriter) listElement(name string, pattern []any, path string) {
	if len(pattern) == 0 {
		p.rule.refuse("validate.pattern "+path, "the list of a pattern is empty", "correct the pattern")
		return
	}
	if len(pattern) > 1 {
		p.rule.entry.note("%s: of the list at %s only the first element counts, as in Kyverno", p.rule.part, path)
	}
	switch first := pattern[0].(type) {
	case map[string]any:
		check := p.element(first, path+"[]")
		p.pathComment(path)
		fmt.Fprintf(p.module.body, "%s(value) := %s([%s(element) | some element in value]) if {\n\tis_array(value)\n} else := \"fail\"\n\n",
			name, p.module.use("each_of"), check)
	case []any:
		p.rule.refuse("validate.pattern "+path, "lists of lists have no counterpart", "write the rule in Rego")
	default:
		check := p.element(first, path+"[]")
		p.pathComment(path)
		fmt.Fprintf(p.module.body, "%s(value) := %s(value) if {\n\tis_array(value)\n} else := \"fail\"\n\n", name, check)
	}
}

func (p *patternWriter) pathComment(path string) {
	if path != "" {
		p.module.comment(path)
	}
}

// scalarElement writes a scalar: the value, or each element of a list, has one of the alternatives.
func (p *patternWriter) scalarElement(name string, pattern any, path string) {
	matches := p.module.newName("matches")
	p.module.comment(fmt.Sprintf("%s: %s", strings.TrimPrefix(path, "."), literal(pattern)))
	fmt.Fprintf(p.module.body, "%s(value) := %s([element | some element in %s(value); not %s(element)])\n\n",
		name, p.module.use("scalar"), p.module.use("elements"), matches)
	for _, alternative := range p.scalar(pattern, path) {
		fmt.Fprintf(p.module.body, "%s(value) if {\n\t%s\n}\n\n", matches, strings.Join(alternative, "\n\t"))
	}
}

// scalar returns the alternatives of a scalar pattern; all conditions of one of them must hold for value.
func (p *patternWriter) scalar(pattern any, path string) [][]string {
	switch pattern := pattern.(type) {
	case nil:
		return [][]string{{`value in [null, 0, "", false]`}}
	case bool:
		return [][]string{{"value == " + literal(pattern)}}
	case string:
		if strings.Contains(pattern, "{{") || strings.Contains(pattern, "$(") {
			p.rule.refuse("validate.pattern "+path, "variables in patterns have no counterpart", "write the rule in Rego")
			return [][]string{{"false"}}
		}
		return stringAlternatives(p.module, pattern)
	}
	// A number equals the same number as text.
	number := literal(pattern)
	return [][]string{{"value == " + number}, {"is_string(value)", fmt.Sprintf("%s(value) == %s", p.module.use("amount"), number)}}
}
