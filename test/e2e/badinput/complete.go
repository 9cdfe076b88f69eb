// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"regexp"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/manifests"
)

// elements are the indices and keys that a path has where a schema has one
// element for all. The schema's validation writes a key behind a dot, CEL in
// brackets.
var elements = regexp.MustCompile(`\[[^\]]*\]|\.train\b`)

// checkComplete fails for every field of the kind's spec that no refused edit names.
func (k table) checkComplete(t *testing.T) {
	wrong := map[string]bool{}
	for _, e := range k.refused {
		wrong[elements.ReplaceAllString(e.field, "")] = true
	}
	crd := definition(t, k.kind)
	for _, path := range fields("spec", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]) {
		if !wrong[path] {
			t.Errorf("no edit makes %s wrong", path)
		}
	}
}

// fields are the paths of a schema's properties, at any depth. What a Toleration
// is, Kubernetes says.
func fields(path string, schema apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	for name, property := range schema.Properties {
		found = append(found, path+"."+name)
		if name != "tolerations" {
			found = append(found, fields(path+"."+name, property)...)
		}
	}
	if schema.Items != nil {
		found = append(found, fields(path, *schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		found = append(found, fields(path, *schema.AdditionalProperties.Schema)...)
	}
	return found
}

func definition(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
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
