// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/scheme"
)

// checkGoTypes fails where the Go types and the schemas differ: the valid object,
// read strictly into Go and written from there, must be stored as the same.
func (k table) checkGoTypes(t *testing.T, c client.Client) {
	known, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	written := k.valid(t)
	typed := func(object *unstructured.Unstructured) runtime.Object {
		into, err := known.New(written.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		const strict = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, strict); err != nil {
			t.Fatalf("the Go type does not take what the schema does: %v", err)
		}
		return into
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed(written))
	if err != nil {
		t.Fatal(err)
	}
	throughGo := &unstructured.Unstructured{Object: content}
	for _, object := range []*unstructured.Unstructured{written, throughGo} {
		if err := c.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		unstructured.RemoveNestedField(object.Object, "metadata")
	}
	if !equality.Semantic.DeepEqual(typed(written), typed(throughGo)) {
		t.Errorf("as written:\n%v\nthrough Go:\n%v", written, throughGo)
	}
}
