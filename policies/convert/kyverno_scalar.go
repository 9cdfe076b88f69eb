// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	inRange    = regexp.MustCompile(`^([-+]?\d+(?:\.\d+)?[A-Za-z]*)-([-+]?\d+(?:\.\d+)?[A-Za-z]*)$`)
	notInRange = regexp.MustCompile(`^([-+]?\d+(?:\.\d+)?[A-Za-z]*)!-([-+]?\d+(?:\.\d+)?[A-Za-z]*)$`)
)

// stringAlternatives returns the conditions of a pattern such as ">=1Gi & <4Gi | 0": alternatives, each with conditions that
// must all hold for value.
func stringAlternatives(m *regoModule, pattern string) [][]string {
	alternatives := [][]string{}
	for alternative := range strings.SplitSeq(pattern, "|") {
		// A part such as 1!-5 has two alternatives itself.
		combined := [][]string{nil}
		for part := range strings.SplitSeq(strings.TrimSpace(alternative), "&") {
			var next [][]string
			for _, conditions := range combined {
				for _, more := range partAlternatives(m, strings.TrimSpace(part)) {
					next = append(next, append(conditions[:len(conditions):len(conditions)], more...))
				}
			}
			combined = next
			if len(combined) > 64 {
				return [][]string{{"false"}}
			}
		}
		alternatives = append(alternatives, combined...)
	}
	return alternatives
}

// partAlternatives returns the conditions of one part: an operator with a value, or a range.
func partAlternatives(m *regoModule, part string) [][]string {
	if match := notInRange.FindStringSubmatch(part); match != nil {
		return append(comparison(m, "<", match[1]), comparison(m, ">", match[2])...)
	}
	if match := inRange.FindStringSubmatch(part); match != nil {
		low, high := comparison(m, ">=", match[1]), comparison(m, "<=", match[2])
		return [][]string{append(low[0], high[0]...)}
	}
	if len(part) > 1 {
		for _, operator := range []string{">=", "<=", ">", "<", "!"} {
			if value, ok := strings.CutPrefix(part, operator); ok {
				return comparison(m, operator, strings.TrimSpace(value))
			}
		}
	}
	return comparison(m, "", part)
}

// comparison returns the alternatives of an operator. As in Kyverno, a value that is a duration or a quantity is compared as
// such, an absent quantity counts as 0, and text has wildcards.
func comparison(m *regoModule, operator, value string) [][]string {
	var alternatives [][]string
	compare := func(function, number string) {
		equal := map[string]string{"": "==", "!": "!="}
		if sign, ok := equal[operator]; ok {
			alternatives = append(alternatives, []string{fmt.Sprintf("%s(value) %s %s", m.use(function), sign, number)})
		} else {
			alternatives = append(alternatives, []string{fmt.Sprintf("%s(value) %s %s", m.use(function), operator, number)})
		}
	}
	if duration, err := time.ParseDuration(value); err == nil && value != "0" {
		compare("seconds", strconv.FormatInt(duration.Nanoseconds(), 10))
	}
	if quantity, err := resource.ParseQuantity(value); err == nil {
		compare("amount", quantity.AsDec().String())
	}
	switch operator {
	case "":
		alternatives = append(alternatives, []string{matchText(m.use("text_of")+"(value)", value)})
	case "!":
		alternatives = append(alternatives, []string{"given := " + m.use("text_of") + "(value)", "not " + matchText("given", value)})
	}
	if len(alternatives) == 0 {
		return [][]string{{"false"}} // > and < do not apply to text
	}
	return alternatives
}

// matchText returns the condition that an expression of text matches a pattern with the wildcards * and ?.
func matchText(expression, pattern string) string {
	stars, marks := strings.Count(pattern, "*"), strings.Count(pattern, "?")
	switch {
	case stars == 0 && marks == 0:
		return expression + " == " + literal(pattern)
	case pattern == "?*":
		return expression + ` != ""`
	case pattern == "*":
		return "is_string(" + expression + ")"
	case stars == 1 && marks == 0 && strings.HasSuffix(pattern, "*"):
		return fmt.Sprintf("startswith(%s, %s)", expression, literal(strings.TrimSuffix(pattern, "*")))
	case stars == 1 && marks == 0 && strings.HasPrefix(pattern, "*"):
		return fmt.Sprintf("endswith(%s, %s)", expression, literal(strings.TrimPrefix(pattern, "*")))
	}
	return fmt.Sprintf("regex.match(%s, %s)", literal(wildcardsRegex([]string{pattern})), expression)
}

// examplePatternPod returns a pod that has the values of a pattern, as far as they are plain.
func examplePatternPod(pattern any) (example, bool) {
	pod := carefulPod()
	content, ok := instantiate(pattern, pod).(map[string]any)
	if !ok {
		return example{}, false
	}
	content["apiVersion"], content["kind"] = "v1", "Pod"
	return example{"with the values of the pattern", content}, true
}

// instantiate returns a value with what a pattern demands.
func instantiate(pattern, value any) any {
	switch pattern := pattern.(type) {
	case map[string]any:
		copied := make(map[string]any)
		for key, child := range object(value) {
			copied[key] = child
		}
		for _, key := range keys(pattern) {
			anchor, plain := splitAnchor(key)
			switch _, has := copied[plain]; {
			case anchor == "X()":
				delete(copied, plain)
			case (anchor == "=()" || anchor == "<()") && !has:
			default:
				copied[plain] = instantiate(pattern[key], copied[plain])
			}
		}
		return copied
	case []any:
		elements := list(value)
		if len(elements) == 0 {
			elements = []any{nil}
		}
		copied := make([]any, len(elements))
		for i, element := range elements {
			copied[i] = element
			if len(pattern) > 0 {
				copied[i] = instantiate(pattern[0], element)
			}
		}
		return copied
	case string:
		return instantiateText(pattern, value)
	case nil:
		return value
	}
	return pattern
}

// instantiateText returns a text that matches the first alternative of a pattern.
func instantiateText(pattern string, value any) any {
	first, _, _ := strings.Cut(pattern, "|")
	first, _, _ = strings.Cut(first, "&")
	first = strings.TrimSpace(first)
	if match := inRange.FindStringSubmatch(first); match != nil {
		return match[1]
	}
	for _, operator := range []string{">=", "<="} {
		if rest, ok := strings.CutPrefix(first, operator); ok {
			return strings.TrimSpace(rest)
		}
	}
	switch given, _ := value.(string); {
	case strings.HasPrefix(first, "!") || strings.HasPrefix(first, ">") || strings.HasPrefix(first, "<"):
		return value
	case (first == "?*" || first == "*") && given != "":
		return value
	}
	return strings.NewReplacer("*", "example", "?", "e").Replace(strings.ReplaceAll(first, "?*", "example"))
}
