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

// elementFields matches the indices and map keys in a path, which a schema does not
// distinguish. Schema validation writes a key after a dot, CEL in brackets.
var elementFields = regexp.MustCompile(`\[[^\]]*\]|\.train\b`)

// checkComplete fails if no rejected edit names a field of the kind's spec.
func (k table) checkComplete(t *testing.T) {
	covered := map[string]bool{}
	for _, e := range k.rejected {
		covered[elementFields.ReplaceAllString(e.field, "")] = true
	}
	crd := loadCRD(t, k.kind)
	for _, path := range schemaFields("spec", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]) {
		if !covered[path] {
			t.Errorf("no rejected edit covers %s", path)
		}
	}
}

// schemaFields returns the paths of a schema's properties at any depth. It skips the fields
// of a Toleration, which Kubernetes defines.
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

// checkGoTypes fails if the Go types and the schemas differ. It decodes the valid object
// strictly into Go, encodes it again, and expects the API server to store the same object.
func (k table) checkGoTypes(t *testing.T, c client.Client) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	written := k.loadValid(t)
	typed := func(object *unstructured.Unstructured) runtime.Object {
		into, err := scheme.New(written.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		const strict = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, strict); err != nil {
			t.Fatalf("the Go type rejects an object that the schema accepts: %v", err)
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
		t.Errorf("original:\n%v\nthrough Go:\n%v", written, throughGo)
	}
}
