// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// maxYAMLBytes is the length of a text that is parsed as YAML, in bytes; the API server
// accepts objects of 1.5 MiB.
const maxYAMLBytes = 2 << 20

// Find follows a path into a document: through maps by key, through lists by index, and
// through texts, which it parses as YAML. Null does not count as found. The document
// has the types of encoding/json, the value these or those of YAML. An error names a
// text that is not YAML.
func Find(document any, path []string) (value any, found bool, err error) {
	value = document
	for i, step := range path {
		if text, ok := value.(string); ok {
			if value, err = parseYAML(text); err != nil {
				return nil, false, fmt.Errorf("%s is not YAML: %w", formatPath(path[:i]), err)
			}
		}
		if value, found = childValue(value, step); !found {
			return nil, false, nil
		}
	}
	return value, value != nil, nil
}

// parseYAML parses a text as YAML 1.1, as Kubernetes does. Aliases stay shared, so that a
// short text cannot become a large value.
func parseYAML(text string) (any, error) {
	if len(text) > maxYAMLBytes {
		return nil, fmt.Errorf("it has %d bytes; the most are %d", len(text), maxYAMLBytes)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	return value, nil
}

// childValue returns the value one step into another.
func childValue(value any, step string) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		next, ok := value[step]
		return next, ok
	case map[any]any:
		if next, ok := value[step]; ok {
			return next, true
		}
		for key, next := range value {
			if name, ok := keyString(key); ok && name == step {
				return next, true
			}
		}
	case []any:
		// Atoi accepts signs and leading zeros, too.
		if index, err := strconv.Atoi(step); err == nil && strconv.Itoa(index) == step && index >= 0 && index < len(value) {
			return value[index], true
		}
	}
	return nil, false
}

// keyString returns a YAML key as JSON writes it; false for one that JSON cannot have.
func keyString(key any) (string, bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(key), true
	}
	return "", false
}

// matchesValue reports whether a value is as a policy requires. Numbers are compared by
// value: 1 is 1.0. A list must contain the required elements, in any order: users add
// elements.
func matchesValue(want, got any) bool {
	switch want := want.(type) {
	case nil:
		return got == nil
	case bool:
		value, ok := got.(bool)
		return ok && value == want
	case string:
		value, ok := got.(string)
		return ok && value == want
	case []any:
		list, ok := got.([]any)
		return ok && !slices.ContainsFunc(want, func(required any) bool {
			return !slices.ContainsFunc(list, func(element any) bool { return matchesValue(required, element) })
		})
	case map[string]any:
		return matchesObject(want, got)
	}
	a, b := rational(want), rational(got)
	return a != nil && b != nil && a.Cmp(b) == 0
}

// matchesObject reports whether a map of JSON or YAML equals the required one.
func matchesObject(want map[string]any, got any) bool {
	switch object := got.(type) {
	case map[string]any:
		if len(object) != len(want) {
			return false
		}
	case map[any]any:
		if len(object) != len(want) {
			return false
		}
	default:
		return false
	}
	for name, value := range want {
		if child, found := childValue(got, name); !found || !matchesValue(value, child) {
			return false
		}
	}
	return true
}

// rational returns the value of a finite number, else nil.
func rational(value any) *big.Rat {
	switch number := value.(type) {
	case int:
		return new(big.Rat).SetInt64(int64(number))
	case int64:
		return new(big.Rat).SetInt64(number)
	case uint64:
		return new(big.Rat).SetUint64(number)
	case float64:
		return new(big.Rat).SetFloat64(number)
	}
	return nil
}

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// formatPath returns a path in the form data[config.yaml].fairSharing.
func formatPath(path []string) string {
	var b strings.Builder
	for _, step := range path {
		switch {
		case !simpleKey.MatchString(step):
			b.WriteString("[" + step + "]")
		case b.Len() > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}

// formatValue returns a value, shortened for a message.
func formatValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "not set"
	case string:
		return strconv.Quote(truncate(value))
	case []any:
		return formatList(value)
	case map[string]any, map[any]any:
		return "an object"
	}
	return truncate(fmt.Sprint(value))
}

// formatList returns a short list of simple values in full, else its length.
func formatList(list []any) string {
	const most = 10
	texts := make([]string, 0, most)
	for _, element := range list {
		switch element.(type) {
		case []any, map[string]any, map[any]any:
			return fmt.Sprintf("a list of %d", len(list))
		}
		if len(texts) == most {
			return fmt.Sprintf("a list of %d", len(list))
		}
		texts = append(texts, formatValue(element))
	}
	return truncate("[" + strings.Join(texts, ", ") + "]")
}

// truncate shortens a text to at most a line or two.
func truncate(text string) string {
	const most = 200
	runes := 0
	for at := range text {
		if runes++; runes > most {
			return text[:at] + "…"
		}
	}
	return text
}
