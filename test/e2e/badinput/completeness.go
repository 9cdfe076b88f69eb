// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"regexp"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/manifests"
)

// elementFields are the indices and keys that a path has where a schema has one
// element for all. The schema's validation writes a key behind a dot, CEL in
// brackets.
var elementFields = regexp.MustCompile(`\[[^\]]*\]|\.train\b`)

// checkComplete fails for every field of the kind's spec that no refused edit names.
func (k table) checkComplete(t *testing.T) {
	wrong := map[string]bool{}
	for _, e := range k.refused {
		wrong[elementFields.ReplaceAllString(e.field, "")] = true
	}
	crd := loadCRD(t, k.kind)
	for _, path := range schemaFields("spec", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]) {
		if !wrong[path] {
			t.Errorf("no edit makes %s wrong", path)
		}
	}
}

// schemaFields are the paths of a schema's properties, at any depth. What a Toleration
// is, Kubernetes says.
func schemaFields(path string, schema apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	for name, property := range schema.Properties {
		found = append(found, path+"."+name)
		if name != "tolerations" {
			found = append(found, schemaFields(path+"."+name, property)...)
		}
	}
	if schema.Items != nil {
		found = append(found, schemaFields(path, *schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		found = append(found, schemaFields(path, *schema.AdditionalProperties.Schema)...)
	}
	return found
}

func loadCRD(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	objects, err := manifests.Build("crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.Kind == kind {
			return crd
		}
	}
	t.Fatalf("no CRD for %s", kind)
	return nil
}

// checkGoTypes fails where the Go types and the schemas differ: the valid object,
// read strictly into Go and written from there, must be stored as the same.
func (k table) checkGoTypes(t *testing.T, c client.Client) {
	known, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	written := k.loadValid(t)
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
