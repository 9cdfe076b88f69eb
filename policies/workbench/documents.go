// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// ReadObject returns the only object of a file in YAML or JSON.
func ReadObject(text []byte) (object map[string]any, err error) {
	err = EachDocument(text, func(document []byte, _ int) error {
		if object != nil {
			return errors.New("it has more than one object")
		}
		return unmarshalStrict(document, &object)
	})
	if err == nil && object == nil {
		err = errors.New("it has no object")
	}
	return object, err
}

// ReadObjects returns the objects of a file, or of the YAML and JSON files in a folder and the folders in it. The elements of
// lists count one by one.
func ReadObjects(folder fs.FS, name string) ([]map[string]any, error) {
	var objects []map[string]any
	err := fs.WalkDir(folder, name, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		err = EachDocument(text, func(document []byte, _ int) error {
			var content any
			err := yaml.Unmarshal(document, &content)
			if object, ok := content.(map[string]any); ok {
				objects = append(objects, object)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil && len(objects) == 0 {
		err = fmt.Errorf("%s has no objects", name)
	}
	return objects, err
}

// EachDocument calls a function for each document of a YAML or JSON file that is not empty, with its first line. The items of a List
// are documents, too; they have the line of the list.
func EachDocument(text []byte, use func(document []byte, line int) error) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	line, rest := 1, text
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// The reader leaves out the separators.
		if at := bytes.Index(rest, document); at >= 0 {
			line += bytes.Count(rest[:at], []byte("\n"))
			rest = rest[at:]
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return plainError(err)
		}
		if content == nil {
			continue
		}
		documents, err := listItems(content, document)
		if err != nil {
			return err
		}
		for _, document := range documents {
			if err := use(document, line); err != nil {
				return err
			}
		}
	}
}

// listItems returns the items of a List, or the document itself.
func listItems(content any, document []byte) ([][]byte, error) {
	object, _ := content.(map[string]any)
	kind, _ := object["kind"].(string)
	items, ok := object["items"].([]any)
	if !ok || !strings.HasSuffix(kind, "List") {
		return [][]byte{document}, nil
	}
	documents := make([][]byte, len(items))
	for i, item := range items {
		var err error
		if documents[i], err = yaml.Marshal(item); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

func decodeInto[T any](list *[]T, document []byte) error {
	object, err := decode[T](document)
	if err == nil {
		*list = append(*list, object)
	}
	return err
}

func decode[T any](document []byte) (object T, err error) {
	if err = unmarshalStrict(document, &object); err != nil {
		err = fmt.Errorf("a %s: %w", strings.TrimPrefix(path.Ext(fmt.Sprintf("%T", object)), "."), err)
	}
	return object, err
}

// unmarshalStrict decodes YAML, and refuses unknown and duplicate keys.
func unmarshalStrict(document []byte, object any) error {
	return plainError(yaml.UnmarshalStrict(document, object))
}

// plainError returns an error of the YAML decoder without the names of its steps.
func plainError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, step := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, step)
	}
	return errors.New(text)
}

// yamlDocuments returns the documents of a file with their lines, until the first one that is no YAML. Aliases stay references.
func yamlDocuments(text string) []*yamlv3.Node {
	decoder := yamlv3.NewDecoder(bytes.NewReader([]byte(text)))
	var documents []*yamlv3.Node
	for {
		var document yamlv3.Node
		if err := decoder.Decode(&document); err != nil {
			return documents
		}
		if len(document.Content) == 1 {
			documents = append(documents, document.Content[0])
		}
	}
}

// lineOf returns a line of a text, the first is 1; empty if there is none.
func lineOf(text string, number int) string {
	for line := range strings.Lines(text) {
		if number--; number == 0 {
			return strings.TrimRight(line, "\r\n")
		}
	}
	return ""
}
