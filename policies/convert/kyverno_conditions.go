// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// conditions adds the rule that conditions hold, and returns its name.
func (r *kyvernoRule) conditions(m *regoModule, path string, conditions any) string {
	var blocks []any
	switch conditions := conditions.(type) {
	case map[string]any:
		blocks = []any{conditions}
	case []any:
		blocks = conditions
	}
	var all []string
	for i, block := range blocks {
		where := fmt.Sprintf("%s[%d]", path, i)
		content := object(block)
		if content["key"] != nil {
			// The old form: a list of conditions, of which all must hold.
			all = append(all, r.condition(m, where, content))
			continue
		}
		if unknown := unknownKeys(content, "any", "all"); len(unknown) > 0 {
			r.refuse(where, "the field "+unknown[0]+" is unknown", "use any and all")
		}
		for k, one := range list(content["all"]) {
			all = append(all, r.condition(m, fmt.Sprintf("%s.all[%d]", where, k), object(one)))
		}
		if alternatives := list(content["any"]); len(alternatives) > 0 {
			name := m.newName("any")
			var bodies []string
			for k, one := range alternatives {
				bodies = append(bodies, r.condition(m, fmt.Sprintf("%s.any[%d]", where, k), object(one)))
			}
			for _, body := range bodies {
				m.rule(name, body)
			}
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		all = []string{"true"}
	}
	name := m.newName("conditions")
	m.rule(name, all...)
	return name
}

// orderings are the operators that compare numbers, quantities and durations.
var orderings = map[string]string{
	"GreaterThan": ">", "GreaterThanOrEquals": ">=", "LessThan": "<", "LessThanOrEquals": "<=",
	"DurationGreaterThan": ">", "DurationGreaterThanOrEquals": ">=", "DurationLessThan": "<", "DurationLessThanOrEquals": "<=",
}

// condition adds one condition, and returns the expression that it holds.
func (r *kyvernoRule) condition(m *regoModule, path string, condition map[string]any) string {
	key, ok := r.operand(m, condition["key"])
	if !ok {
		r.refuse(path+".key", fmt.Sprintf("the expression %v has no counterpart; fields of request.object have one", condition["key"]),
			"write the rule in Rego")
		return "false"
	}
	value := condition["value"]
	for _, one := range append(list(value), value) {
		if strings.Contains(text(one), "{{") {
			r.refuse(path+".value", "a variable as the value has no counterpart", "write the rule in Rego")
			return "false"
		}
		if _, isMap := one.(map[string]any); isMap {
			r.refuse(path+".value", "an object as the value has no counterpart", "write the rule in Rego")
			return "false"
		}
	}
	operator := text(condition["operator"])
	switch {
	case operator == "Equals" || operator == "Equal":
		return r.equal(m, key, value)
	case operator == "NotEquals" || operator == "NotEqual":
		return "not " + r.equal(m, key, value)
	case orderings[operator] != "":
		matches := m.newName("compared")
		for _, alternative := range comparison(m, orderings[operator], scalarText(value)) {
			m.rule(matches+"(value)", append([]string{"value != null"}, alternative...)...)
		}
		return fmt.Sprintf("%s(%s)", matches, key)
	}
	listed := r.listed(m, value)
	elements := m.use("elements")
	switch operator {
	case "AnyIn":
		return fmt.Sprintf("count([element | some element in %s(%s); %s(element)]) > 0", elements, key, listed)
	case "AnyNotIn":
		return fmt.Sprintf("count([element | some element in %s(%s); element != null; not %s(element)]) > 0", elements, key, listed)
	case "AllIn":
		return fmt.Sprintf("count([element | some element in %s(%s); not %s(element)]) == 0", elements, key, listed)
	case "AllNotIn":
		return fmt.Sprintf("count([element | some element in %s(%s); %s(element)]) == 0", elements, key, listed)
	case "In", "NotIn":
		if strings.HasPrefix(key, "[") {
			r.refuse(path+".operator", operator+" of a list has no counterpart", "use AnyIn, AllIn, AnyNotIn or AllNotIn")
			return "false"
		}
		if operator == "In" {
			return fmt.Sprintf("%s(%s)", listed, key)
		}
		return fmt.Sprintf("not %s(%s)", listed, key)
	}
	r.refuse(path+".operator", fmt.Sprintf("the operator %q is unknown", operator), "write the rule in Rego")
	return "false"
}

// equal adds the function that a value equals a constant, which may have wildcards, and returns its call.
func (r *kyvernoRule) equal(m *regoModule, key string, constant any) string {
	if elements := list(constant); elements != nil {
		return fmt.Sprintf("(%s == %s)", key, literal(elements))
	}
	matches := m.newName("equals")
	for _, alternative := range constantAlternatives(m, constant) {
		m.rule(matches+"(value)", alternative...)
	}
	return fmt.Sprintf("%s(%s)", matches, key)
}

// listed adds the function that a value is one of constants, and returns its name.
func (r *kyvernoRule) listed(m *regoModule, constants any) string {
	matches := m.newName("listed")
	elements := list(constants)
	if elements == nil {
		elements = []any{constants}
	}
	if len(elements) == 0 {
		m.rule(matches+"(_)", "false")
	}
	for _, element := range elements {
		for _, alternative := range constantAlternatives(m, element) {
			m.rule(matches+"(value)", alternative...)
		}
	}
	return matches
}

// constantAlternatives returns the alternatives of a value that equals a constant.
func constantAlternatives(m *regoModule, constant any) [][]string {
	switch constant := constant.(type) {
	case string:
		if constant == "" {
			return [][]string{{`value == ""`}}
		}
		alternatives := comparison(m, "", constant)
		for i := range alternatives {
			alternatives[i] = append([]string{"value != null"}, alternatives[i]...)
		}
		return alternatives
	case int64, float64:
		return [][]string{{"value == " + literal(constant)}, {"is_string(value)", fmt.Sprintf("%s(value) == %s", m.use("amount"),
			literal(constant))}}
	}
	return [][]string{{"value == " + literal(constant)}}
}

// scalarText returns a constant as text.
func scalarText(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return literal(value)
}

var wholeVariable = regexp.MustCompile(`^\{\{([^{}]*)\}\}$`)

// operand returns the expression of a condition's key.
func (r *kyvernoRule) operand(m *regoModule, key any) (string, bool) {
	s, ok := key.(string)
	if !ok || !strings.Contains(s, "{{") {
		return literal(key), key != nil
	}
	match := wholeVariable.FindStringSubmatch(strings.TrimSpace(s))
	if match == nil {
		return "", false
	}
	return r.variable(m, strings.TrimSpace(match[1]))
}

var (
	lengthCall    = regexp.MustCompile(`^length\(\s*([^()]+?)\s*\)$`)
	withDefault   = regexp.MustCompile("^(.+?)\\s*\\|\\|\\s*('[^']*'|`[^`]*`|\"[^\"]*\")$")
	requestFields = map[string]string{
		"request.operation": "input.review.operation", "request.namespace": "input.review.namespace",
		"request.userInfo.username": "input.review.userInfo.username", "request.userInfo.groups": "input.review.userInfo.groups",
	}
	pathStep = regexp.MustCompile(`^\.?(?:"([^"\\]+)"|([A-Za-z_][A-Za-z0-9_-]*))|^(\[\]|\[\*\])|^\[([0-9]+)\]`)
)

// variable returns the expression of a variable: a field of the request, or of request.object, with a default or its length. A
// missing field is null.
func (r *kyvernoRule) variable(m *regoModule, expression string) (string, bool) {
	if match := lengthCall.FindStringSubmatch(expression); match != nil {
		inner, ok := r.variable(m, match[1])
		if !ok {
			return "", false
		}
		name := m.newName("length")
		fmt.Fprintf(m.body, "%s := count(value) if {\n\tvalue := %s\n\tvalue != null\n} else := 0\n\n", name, inner)
		return name, true
	}
	byDefault := "null"
	if match := withDefault.FindStringSubmatch(expression); match != nil {
		expression = match[1]
		quoted := match[2][1 : len(match[2])-1]
		switch {
		case match[2][0] != '`':
			byDefault = literal(quoted)
		case regexp.MustCompile(`^(-?[0-9]+|true|false|null|\[\]|\{\})$`).MatchString(quoted):
			byDefault = quoted
		default:
			return "", false
		}
	}
	if field, ok := requestFields[expression]; ok {
		return field, true
	}
	path, ok := strings.CutPrefix(expression, "request.object")
	if !ok || path != "" && path[0] != '.' {
		return "", false
	}
	return pathExpression(path, byDefault)
}

// pathExpression returns the expression of a path below input.object, such as .spec.containers[].image.
func pathExpression(path, byDefault string) (string, bool) {
	var clauses []string
	current, steps, projections := "input.object", []string{}, 0
	for path != "" {
		match := pathStep.FindStringSubmatch(path)
		if match == nil {
			return "", false
		}
		switch {
		case match[3] != "":
			if projections++; projections > 1 && match[3] == "[*]" {
				return "", false // a list of lists
			}
			element := fmt.Sprintf("element_%d", projections)
			clauses = append(clauses, fmt.Sprintf("some %s in %s", element, getAt(current, steps, "[]")))
			current, steps = element, nil
		case match[4] != "":
			index, err := strconv.Atoi(match[4])
			if err != nil {
				return "", false
			}
			steps = append(steps, strconv.Itoa(index))
		default:
			steps = append(steps, literal(match[1]+match[2]))
		}
		path = path[len(match[0]):]
	}
	if projections == 0 {
		return getAt(current, steps, byDefault), true
	}
	if len(steps) > 0 {
		clauses = append(clauses, "is_object("+current+")")
	}
	return fmt.Sprintf("[found | %s; found := %s; found != null]", strings.Join(clauses, "; "), getAt(current, steps, "null")), true
}

// getAt returns the expression of the value at a path.
func getAt(of string, steps []string, byDefault string) string {
	if len(steps) == 0 {
		return of
	}
	return fmt.Sprintf("object.get(%s, [%s], %s)", of, strings.Join(steps, ", "), byDefault)
}
