// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var crdKinds = []string{"NodePool", "Department", "Project", "Policy", "GPUNode", "WorkloadClock", "Extension", "Notice", "UsageRecord", "AdmissionParameters", "ProjectParameters", "Preset"}

func TestCRDNames(t *testing.T) {
	type names struct {
		Plural, Short string
		Scope         apiextensionsv1.ResourceScope
	}
	want := map[string]names{
		"NodePool":      {"nodepools", "slpool", "Cluster"},
		"Department":    {"departments", "sldept", "Cluster"},
		"Project":       {"projects", "slproj", "Cluster"},
		"Policy":        {"policies", "slpol", "Cluster"},
		"GPUNode":       {"gpunodes", "slgn", "Cluster"},
		"WorkloadClock": {"workloadclocks", "slclock", "Namespaced"},
		"Extension":     {"extensions", "slext", "Namespaced"},
		"Notice":        {"notices", "slnotice", "Cluster"},
		"UsageRecord":   {"usagerecords", "sluse", "Cluster"},
		"Preset":        {"presets", "slpreset", "Namespaced"},

		"AdmissionParameters": {"admissionparameters", "sladm", "Cluster"},
		"ProjectParameters":   {"projectparameters", "slparam", "Namespaced"},
	}
	got := map[string]names{}
	for _, crd := range loadCRDs(t) {
		if !slices.Contains(crd.Spec.Names.Categories, "sluice") || len(crd.Spec.Names.ShortNames) != 1 {
			t.Errorf("%s: categories %v, short names %v", crd.Name, crd.Spec.Names.Categories, crd.Spec.Names.ShortNames)
			continue
		}
		if kind := crd.Spec.Names.Kind; strings.HasSuffix(kind, "Parameters") || kind == "Preset" { // configuration, which has no status
			got[crd.Spec.Names.Kind] = names{crd.Spec.Names.Plural, crd.Spec.Names.ShortNames[0], crd.Spec.Scope}
			continue
		}
		if crd.Spec.Versions[0].Subresources == nil || crd.Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s: no status subresource", crd.Name)
		}
		got[crd.Spec.Names.Kind] = names{crd.Spec.Names.Plural, crd.Spec.Names.ShortNames[0], crd.Spec.Scope}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A column of type date prints an instant that lies ahead as <invalid>.
func TestPrinterColumnsFormatNoFutureTimeAsDate(t *testing.T) {
	past := []string{".metadata.creationTimestamp", ".status.sampledAt"}
	for _, crd := range loadCRDs(t) {
		for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if column.Type == "date" && !slices.Contains(past, column.JSONPath) {
				t.Errorf("%s: column %s (%s) is a date", crd.Name, column.Name, column.JSONPath)
			}
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	walkCRDs(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		for name, property := range schema.Properties {
			foreign := strings.Contains(path, "tolerations") || strings.Contains(path, "conditions")
			if property.Description == "" && name != "metadata" && !foreign {
				t.Errorf("%s.%s has no description", path, name)
			}
		}
	})
}

// Without a list type, server-side apply would let one writer's list replace
// another's, and without bounds no rule over it could be priced.
func TestEveryListHasListTypeAndMaxItems(t *testing.T) {
	walkCRDs(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if schema.Type == "array" && (schema.XListType == nil || schema.MaxItems == nil) {
			t.Errorf("%s: list type %v, at most %v items", path, schema.XListType, schema.MaxItems)
		}
		if strings.HasSuffix(path, ".conditions") && (schema.XListType == nil || *schema.XListType != "map") {
			t.Errorf("%s is no map by type", path)
		}
		if schema.AdditionalProperties != nil && schema.MaxProperties == nil {
			t.Errorf("%s: a map without a bound", path)
		}
	})
}

// The markers repeat patterns, since a marker cannot name a constant. Where the pattern is short it is the schema's as well, for tools
// that know no CEL.
func TestSchemaPatternsMatchConstants(t *testing.T) {
	found := map[string]int{}
	walkCRDs(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if _, err := regexp.Compile(schema.Pattern); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, rule := range schema.XValidations {
			for _, pattern := range []string{period.DurationPattern, period.PeriodPattern, period.DatePattern, v1alpha1.EmailPattern} {
				if strings.Contains(rule.Rule, "self.matches('"+strings.ReplaceAll(pattern, "'", `\x27`)+"')") {
					found[pattern]++
				}
				if schema.Pattern == pattern {
					found["the schema's "+pattern]++
				}
			}
		}
	})
	for _, pattern := range []string{
		period.DurationPattern, "the schema's " + period.DurationPattern,
		period.PeriodPattern, "the schema's " + period.PeriodPattern,
		period.DatePattern, v1alpha1.EmailPattern,
	} {
		if found[pattern] == 0 {
			t.Errorf("no field has %s", pattern)
		}
	}
}

// walkCRDs visits every schema of every CRD.
func walkCRDs(t *testing.T, visit func(path string, schema *apiextensionsv1.JSONSchemaProps)) {
	for _, crd := range loadCRDs(t) {
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			schema := root.Properties[part]
			walkSchema(crd.Spec.Names.Kind+"."+part, &schema, visit)
		}
	}
}

func walkSchema(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		walkSchema(path+"."+name, &property, visit)
	}
	if schema.Items != nil {
		walkSchema(path+"[]", schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walkSchema(path+".*", schema.AdditionalProperties.Schema, visit)
	}
}

func loadCRDs(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../manifests/crds/sluice.dev_*.yaml")
	if err != nil || len(files) != len(crdKinds) {
		t.Fatalf("want %d CRDs: %v, %v", len(crdKinds), files, err)
	}
	var all []apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, crd)
	}
	return all
}
