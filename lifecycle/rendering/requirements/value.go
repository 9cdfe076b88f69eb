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

// maxYAMLBytes is how long a text may be that is read as YAML, in bytes; the API server
// takes objects of 1.5 MiB.
const maxYAMLBytes = 2 << 20

// Find walks a document along a path: through objects by key and through lists by
// index, and where the path leads on below a text, through what that says as YAML.
// What is null is not there. The document is of encoding/json's types, and the
// value of those or of YAML's. An error says which text is no YAML.
func Find(document any, path []string) (value any, found bool, err error) {
	value = document
	for i, step := range path {
		if text, ok := value.(string); ok {
			if value, err = parseYAML(text); err != nil {
				return nil, false, fmt.Errorf("%s is no YAML: %w", formatPath(path[:i]), err)
			}
		}
		if value, found = childValue(value, step); !found {
			return nil, false, nil
		}
	}
	return value, value != nil, nil
}

// parseYAML is what a text says as YAML 1.1, which is what Kubernetes' own programs
// read. Its aliases stay shared: a short text cannot become a large value.
func parseYAML(text string) (any, error) {
	if len(text) > maxYAMLBytes {
		return nil, fmt.Errorf("it has %d bytes; %d are read", len(text), maxYAMLBytes)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	return value, nil
}

// childValue is one step into a value.
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
		// Atoi takes signs and leading zeros too.
		if index, err := strconv.Atoi(step); err == nil && strconv.Itoa(index) == step && index >= 0 && index < len(value) {
			return value[index], true
		}
	}
	return nil, false
}

// keyString is a key of YAML as it is in JSON; false for what has no place there.
func keyString(key any) (string, bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(key), true
	}
	return "", false
}

// matchesValue compares what stands somewhere with what a policy wants there. Numbers are
// equal by value, however they are written: 1 is 1.0. Of a list, what is wanted must
// be among the rest, in any order: people add to lists.
func matchesValue(want, got any) bool {
	switch want := want.(type) {
	case nil:
		return got == nil
	case bool:
		is, ok := got.(bool)
		return ok && is == want
	case string:
		is, ok := got.(string)
		return ok && is == want
	case []any:
		list, ok := got.([]any)
		return ok && !slices.ContainsFunc(want, func(wanted any) bool {
			return !slices.ContainsFunc(list, func(is any) bool { return matchesValue(wanted, is) })
		})
	case map[string]any:
		return matchesObject(want, got)
	}
	a, b := rational(want), rational(got)
	return a != nil && b != nil && a.Cmp(b) == 0
}

// matchesObject compares an object with one of JSON or of YAML.
func matchesObject(want map[string]any, got any) bool {
	switch is := got.(type) {
	case map[string]any:
		if len(is) != len(want) {
			return false
		}
	case map[any]any:
		if len(is) != len(want) {
			return false
		}
	default:
		return false
	}
	for name, value := range want {
		if is, there := childValue(got, name); !there || !matchesValue(value, is) {
			return false
		}
	}
	return true
}

// rational is a number's value; nil for what is no finite number.
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

// formatPath is a path as people write it: data[config.yaml].fairSharing.
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

// formatValue is a value, as far as it fits in a message.
func formatValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "not there"
	case string:
		return strconv.Quote(truncate(value))
	case []any:
		return formatList(value)
	case map[string]any, map[any]any:
		return "an object"
	}
	return truncate(fmt.Sprint(value))
}

// formatList is a list in full where it is a short one of simple values.
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

// truncate is a text of at most a line or two.
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
