// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The limits of a source. Conversion time grows with its size.
const (
	maxFileBytes = 4 << 20
	maxObjects   = 5000
	maxDepth     = 64
	maxNodes     = 20000
)

// sourceObject is an object of the source.
type sourceObject struct {
	file    string
	content map[string]any
}

func (d *sourceObject) kind() string       { return text(d.content["kind"]) }
func (d *sourceObject) apiVersion() string { return text(d.content["apiVersion"]) }
func (d *sourceObject) name() string       { return text(at(d.content, "metadata", "name")) }
func (d *sourceObject) namespace() string  { return text(at(d.content, "metadata", "namespace")) }

// group returns the API group of the object.
func (d *sourceObject) group() string {
	group, _, found := strings.Cut(d.apiVersion(), "/")
	if !found {
		return ""
	}
	return group
}

// label returns how entries name the object.
func (d *sourceObject) label() string { return d.kind() + "/" + d.name() }

// readDocuments returns the objects of all files, with those of lists, and an entry for each document that cannot be read.
func (c *conversion) readDocuments(files []File) []sourceObject {
	var all []sourceObject
	for _, file := range files {
		if len(file.Text) > maxFileBytes {
			c.entry(file.Name, "the file").refuse("", fmt.Sprintf("it has %d bytes; %d are allowed", len(file.Text), maxFileBytes),
				"split the file")
			continue
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file.Text)))
		for number := 1; ; number++ {
			raw, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var content any
			if err == nil {
				content, err = decode(raw)
			}
			if err != nil {
				c.entry(file.Name, fmt.Sprintf("document %d", number)).refuse("", "it cannot be read: "+err.Error(), "correct the file")
				break
			}
			all = appendDocument(all, file.Name, content)
			if len(all) > maxObjects {
				c.entry(file.Name, "the file").refuse("", fmt.Sprintf("the directory has more than %d objects", maxObjects), "import it in parts")
				return all[:maxObjects]
			}
		}
	}
	return all
}

// appendDocument appends an object, or the items of a list.
func appendDocument(all []sourceObject, file string, content any) []sourceObject {
	object, ok := content.(map[string]any)
	if !ok {
		return all
	}
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(text(object["kind"]), "List") {
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				all = append(all, sourceObject{file: file, content: object})
			}
		}
		return all
	}
	return append(all, sourceObject{file: file, content: object})
}

// decode reads one document. Aliases cannot make it larger than the limits, which bound all later work.
func decode(raw []byte) (content any, err error) {
	if depth := bracketDepth(string(raw)); depth > maxNesting {
		return nil, fmt.Errorf("it nests %d brackets; %d are allowed", depth, maxNesting)
	}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, err
	}
	if len(asJSON) > 2*maxFileBytes {
		return nil, fmt.Errorf("it has %d bytes with its aliases; %d are allowed", len(asJSON), 2*maxFileBytes)
	}
	// Whole numbers become int64, as objects of Kubernetes have them.
	if err := utiljson.Unmarshal(asJSON, &content); err != nil {
		return nil, err
	}
	nodes := 0
	if !within(content, maxDepth, &nodes) {
		return nil, fmt.Errorf("it has more than %d levels or %d values", maxDepth, maxNodes)
	}
	return content, nil
}

// within reports whether a value has at most this depth and maxNodes values.
func within(value any, depth int, nodes *int) bool {
	*nodes++
	if depth < 0 || *nodes > maxNodes {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		for _, child := range value {
			if !within(child, depth-1, nodes) {
				return false
			}
		}
	case []any:
		for _, child := range value {
			if !within(child, depth-1, nodes) {
				return false
			}
		}
	}
	return true
}

// at returns the value at a path of keys; nil if there is none.
func at(value any, path ...string) any {
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

// text returns a string, and "" for any other value.
func text(value any) string {
	s, _ := value.(string)
	return s
}

// object returns a map, and nil for any other value.
func object(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// list returns the elements of a list, and nil for any other value.
func list(value any) []any {
	l, _ := value.([]any)
	return l
}

// texts returns the strings of a list, or one string.
func texts(value any) []string {
	if s, ok := value.(string); ok {
		return []string{s}
	}
	var all []string
	for _, element := range list(value) {
		if s, ok := element.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// keys returns the keys of a map, sorted.
func keys(value map[string]any) []string { return slices.Sorted(maps.Keys(value)) }

// unknownKeys returns the keys of a map that are not among those known.
func unknownKeys(value map[string]any, known ...string) []string {
	return slices.DeleteFunc(keys(value), func(key string) bool { return slices.Contains(known, key) })
}
