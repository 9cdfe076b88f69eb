// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// positions finds the lines of a file's fields, for its errors.
type positions struct {
	root *yaml.Node // nil if the file is no YAML
}

// newPositions parses a file. The decoder reports the errors of its syntax.
func newPositions(raw []byte) positions {
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			return positions{}
		}
		if len(document.Content) == 1 && document.Content[0].Kind == yaml.MappingNode {
			return positions{root: document.Content[0]}
		}
	}
}

// annotate puts the position in front of each error whose field the file has, and sorts them by their positions.
func (p positions) annotate(errs ...error) error {
	type located struct {
		error
		line, column int // 0 if the file does not have the field
	}
	all := make([]located, 0, len(errs))
	for _, err := range errs {
		node := p.find(fieldPath(err))
		if node == nil {
			node = p.findRefused(err)
		}
		at := located{error: err}
		if node != nil {
			at = located{fmt.Errorf("line %d, column %d: %w", node.Line, node.Column, err), node.Line, node.Column}
		}
		all = append(all, at)
	}
	slices.SortStableFunc(all, func(a, b located) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column)) })
	annotated := make([]error, len(all))
	for i, each := range all {
		annotated[i] = each.error
	}
	return utilerrors.NewAggregate(annotated)
}

// fieldPath returns the path of the field that an error names, or "".
func fieldPath(err error) string {
	var invalid *field.Error
	var unknown kjson.FieldError
	var otherType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &invalid):
		return invalid.Field
	case errors.As(err, &unknown):
		return unknown.FieldPath()
	case errors.As(err, &otherType):
		return withoutEmbedded(otherType.Field)
	}
	return ""
}

// withoutEmbedded removes the names of embedded Go structs from a path. Fields begin with a small letter.
func withoutEmbedded(path string) string {
	segments := slices.DeleteFunc(strings.Split(path, "."), func(segment string) bool { return segment != "" && unicode.IsUpper(rune(segment[0])) })
	return strings.Join(segments, ".")
}

// find returns the key of the field at a path such as "mail.rate" or "identities.binders[1]", or nil. Of a field that the file
// has twice it returns the second.
func (p positions) find(path string) (found *yaml.Node) {
	at := p.root
	for path != "" && at != nil {
		var segment string
		if segment, path = nextSegment(path); strings.HasPrefix(segment, "[") {
			index, err := strconv.Atoi(strings.Trim(segment, "[]"))
			if err != nil || at.Kind != yaml.SequenceNode || index >= len(at.Content) {
				return found
			}
			at = at.Content[index]
			found = at
			continue
		}
		key, value := child(at, segment)
		if key == nil {
			return nil // the field is missing, and its parent is not to blame
		}
		found, at = key, value
	}
	return found
}

func nextSegment(path string) (segment, rest string) {
	if end := strings.IndexAny(path[1:], ".["); end >= 0 {
		segment, rest = path[:end+1], path[end+1:]
	} else {
		segment = path
	}
	return segment, strings.TrimPrefix(rest, ".")
}

func child(of *yaml.Node, name string) (key, value *yaml.Node) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	if of.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			key, value = of.Content[i], of.Content[i+1]
		}
	}
	return key, value
}

// findRefused returns the only value of the file that an error without a field quotes, such as an invalid duration, or nil.
func (p positions) findRefused(err error) (found *yaml.Node) {
	if p.root == nil || fieldPath(err) != "" {
		return nil
	}
	count := 0
	var visit func(*yaml.Node)
	visit = func(node *yaml.Node) {
		if node.Kind == yaml.ScalarNode && node.Value != "" && strings.HasSuffix(err.Error(), strconv.Quote(node.Value)) {
			found, count = node, count+1
		}
		for _, each := range node.Content {
			visit(each)
		}
	}
	visit(p.root)
	if count != 1 {
		return nil
	}
	return found
}
