// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const applyCRDs = "apply the CRDs of this version: kubectl apply --server-side -k manifests/crds, or upgrade the chart"

// checkCRDs compares the CustomResourceDefinitions with those of this program.
func checkCRDs(o *Observation) (out outcome) {
	if reason := firstUnread(o.CRDs); reason != "" {
		return skip("%s", reason)
	}
	present := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for i := range o.CRDs.Value {
		present[o.CRDs.Value[i].Name] = &o.CRDs.Value[i]
	}
	for i := range o.ExpectedCRDs {
		expected := &o.ExpectedCRDs[i]
		object := "CustomResourceDefinition " + expected.Name
		crd := present[expected.Name]
		if crd == nil {
			out.add(Error, object, "it does not exist", applyCRDs)
			continue
		}
		if !isEstablished(crd) {
			out.add(Error, object, "the API server does not serve it: its condition Established is not True",
				"kubectl describe crd "+expected.Name+", and correct what its conditions name")
		}
		for j := range expected.Spec.Versions {
			result, message := compareVersions(&expected.Spec.Versions[j], crd.Spec.Versions)
			if message != "" {
				out.add(result, object, message, applyCRDs)
			}
		}
	}
	out.ok = fmt.Sprintf("%d CRDs are served, with the fields of this version", len(o.ExpectedCRDs))
	return out
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// maxListedFields limits the fields that a message names.
const maxListedFields = 5

// compareVersions returns how the version of a CRD differs from what is expected; an empty message for not at all.
// A missing field is an error, since the API server removes it from every object.
func compareVersions(expected *apiextensionsv1.CustomResourceDefinitionVersion, all []apiextensionsv1.CustomResourceDefinitionVersion) (Result, string) {
	at := slices.IndexFunc(all, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == expected.Name })
	if at < 0 || !all[at].Served {
		return Error, "version " + expected.Name + " is not served"
	}
	live := &all[at]
	if live.Schema == nil || live.Schema.OpenAPIV3Schema == nil || expected.Schema == nil {
		return Error, "version " + expected.Name + " has no schema"
	}
	missing, changed, further := compareSchemas(expected.Schema.OpenAPIV3Schema, live.Schema.OpenAPIV3Schema)
	switch {
	case len(missing) > 0:
		return Error, "fields of this version are missing: " + listFields(missing)
	case len(changed) > 0:
		return Warning, "fields differ from those of this version: " + listFields(changed)
	case len(further) > 0:
		return Warning, "it has fields that this version does not know, as those of a newer Sluice: " + listFields(further)
	case expected.Subresources != nil && !reflect.DeepEqual(expected.Subresources, live.Subresources):
		return Error, "the subresources differ from those of this version"
	}
	return OK, ""
}

func listFields(fields []string) string {
	slices.Sort(fields)
	fields = slices.Compact(fields)
	text := strings.Join(fields[:min(len(fields), maxListedFields)], ", ")
	if more := len(fields) - maxListedFields; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// compareSchemas returns the paths of the fields that are missing, that have another validation, and that are not
// expected.
func compareSchemas(expected, live *apiextensionsv1.JSONSchemaProps) (missing, changed, further []string) {
	walkSchema("", expected, live, func(path string, want, have *apiextensionsv1.JSONSchemaProps) {
		switch {
		case have == nil:
			missing = append(missing, path)
		case want == nil:
			further = append(further, path)
		case !reflect.DeepEqual(withoutChildren(want), withoutChildren(have)):
			changed = append(changed, path)
		}
	})
	return missing, changed, further
}

// walkSchema visits the fields of two schemas. A field of only one of them is visited without those below it.
func walkSchema(path string, expected, live *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps, *apiextensionsv1.JSONSchemaProps)) {
	if path != "" && (expected != nil || live != nil) {
		visit(strings.TrimPrefix(path, "."), expected, live)
	}
	if expected == nil || live == nil {
		return
	}
	names := maps.Clone(expected.Properties)
	if names == nil {
		names = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	maps.Copy(names, live.Properties)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		walkSchema(path+"."+name, property(expected, name), property(live, name), visit)
	}
	walkSchema(path+"[]", itemSchema(expected), itemSchema(live), visit)
	walkSchema(path+".*", valueSchema(expected), valueSchema(live), visit)
}

func property(schema *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if found, ok := schema.Properties[name]; ok {
		return &found
	}
	return nil
}

func itemSchema(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

func valueSchema(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}

// withoutChildren returns the validation of one field: without its description, and without the fields below it.
func withoutChildren(schema *apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	one := *schema.DeepCopy()
	one.Description, one.Properties = "", nil
	if one.Items != nil && one.Items.Schema != nil {
		one.Items = &apiextensionsv1.JSONSchemaPropsOrArray{}
	}
	if one.AdditionalProperties != nil && one.AdditionalProperties.Schema != nil {
		one.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: one.AdditionalProperties.Allows}
	}
	return one
}
