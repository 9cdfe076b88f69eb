// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	k8syaml "sigs.k8s.io/yaml"

	"sluice.dev/policies/engine/document"
)

// yamlToJSON converts one YAML document. Anchors and aliases are errors: each alias repeats what its anchor names.
func yamlToJSON(text string) ([]byte, error) {
	if err := validateYAML(text); err != nil {
		return nil, err
	}
	raw, err := k8syaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	return raw, nil
}

// validateYAML returns an error for a text that is not one document without anchors, or that nests too deep.
func validateYAML(text string) error {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var first, second yaml.Node
	if err := decoder.Decode(&first); errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	} else if err != nil {
		return fmt.Errorf("parse YAML: %w", err)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one YAML document")
	}
	return validateNode(&first, 0)
}

func validateNode(node *yaml.Node, depth int) error {
	switch {
	case depth > document.MaxDepth:
		return document.ErrTooDeep
	case node.Kind == yaml.AliasNode, node.Anchor != "":
		return fmt.Errorf("line %d: anchors and aliases are not allowed: write the value twice", node.Line)
	}
	for _, child := range node.Content {
		if err := validateNode(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
