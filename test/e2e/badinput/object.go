// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"embed"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// validFiles are one valid object of each kind, with every field set.
//
//go:embed valid
var validFiles embed.FS

// valid is a copy of the kind's valid object.
func (k table) valid(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	raw, err := validFiles.ReadFile("valid/" + strings.ToLower(k.kind) + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: parse(t, string(raw))}
}

// apply is the valid object with the edit in it.
func (e edit) apply(t *testing.T, valid *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	object := valid.DeepCopy()
	if e.patch == "" {
		return object
	}
	merge(object.Object, parse(t, e.patch))
	if reflect.DeepEqual(object, valid) {
		t.Fatal("the edit changes nothing")
	}
	return object
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		present, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(present, inner)
		default:
			into[key] = value
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	// Through unstructured's own decoder, whose integers are the ones it can copy.
	object := unstructured.Unstructured{}
	wrapped, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Wrapper", "content": json.RawMessage(raw)})
	if err != nil {
		t.Fatal(err)
	}
	if err := object.UnmarshalJSON(wrapped); err != nil {
		t.Fatal(err)
	}
	content, ok := object.Object["content"].(map[string]any)
	if !ok {
		t.Fatalf("%s: want an object", text)
	}
	return content
}
