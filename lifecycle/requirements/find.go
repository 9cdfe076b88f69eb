// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v2"
)

// maxYAML is how long a text may be that is read as YAML, in bytes; the API server
// takes objects of 1.5 MiB.
const maxYAML = 2 << 20

// Find walks a document along a path: through objects by key and through lists by
// index, and where the path leads on below a text, through what that says as YAML.
// What is null is not there. The document is of encoding/json's types, and the
// value of those or of YAML's. An error says which text is no YAML.
func Find(document any, path []string) (value any, found bool, err error) {
	value = document
	for i, step := range path {
		if text, ok := value.(string); ok {
			if value, err = read(text); err != nil {
				return nil, false, fmt.Errorf("%s is no YAML: %w", place(path[:i]), err)
			}
		}
		if value, found = below(value, step); !found {
			return nil, false, nil
		}
	}
	return value, value != nil, nil
}

// read is what a text says as YAML 1.1, which is what Kubernetes' own programs
// read. Its aliases stay shared: a short text cannot become a large value.
func read(text string) (any, error) {
	if len(text) > maxYAML {
		return nil, fmt.Errorf("it has %d bytes; %d are read", len(text), maxYAML)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	return value, nil
}

// below is one step into a value.
func below(value any, step string) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		next, ok := value[step]
		return next, ok
	case map[any]any:
		if next, ok := value[step]; ok {
			return next, true
		}
		for key, next := range value {
			if name, ok := keyText(key); ok && name == step {
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

// keyText is a key of YAML as it is in JSON; false for what has no place there.
func keyText(key any) (string, bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(key), true
	}
	return "", false
}
