// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Who writes a Preset has the right for its type, and for both types when it changes; the right on the resource alone
// is none.
func TestPresetTypesAreRights(t *testing.T) {
	preset := func(presetType string) *unstructured.Unstructured {
		if presetType == "" {
			return nil
		}
		return decodeObject(t, "{apiVersion: sluice.dev/v1alpha1, kind: Preset, metadata: {name: a}, spec: {type: "+presetType+"}}")
	}
	const environment, data = "presets/environment", "presets/datasource"
	for name, tc := range map[string]struct {
		rights   namedRights
		old, new string
		want     string // "" if it is allowed
	}{
		"creates one of the type":             {namedRights{"create " + environment}, "", "Environment", ""},
		"creates a data source":               {namedRights{"create " + data}, "", "DataSource", ""},
		"creates a compute resource":          {namedRights{"create presets/compute"}, "", "Compute", ""},
		"creates a template":                  {namedRights{"create presets/template"}, "", "Template", ""},
		"has the right on the resource alone": {namedRights{"create presets", "update presets"}, "", "Environment", "spec.type: Environment: anna may not create presets/environment in namespace lab"},
		"creates one of another type":         {namedRights{"create " + environment}, "", "DataSource", "anna may not create presets/datasource in namespace lab; ask an administrator of the department, or of the cluster, for the role sluice:data-source-administrator"},
		"has another verb":                    {namedRights{"update " + environment, "delete " + environment}, "", "Environment", "may not create presets/environment"},
		"changes one":                         {namedRights{"update " + environment}, "Environment", "Environment", ""},
		"changes one of another":              {namedRights{"update " + data}, "Environment", "Environment", "may not update presets/environment"},
		"changes the type":                    {namedRights{"update " + environment, "update " + data}, "Environment", "DataSource", ""},
		"changes the type to another's":       {namedRights{"update " + environment}, "Environment", "DataSource", "spec.type: DataSource: anna may not update presets/datasource"},
		"changes the type of another's":       {namedRights{"update " + data}, "Environment", "DataSource", "spec.type: Environment: anna may not update presets/environment"},
		"changes the type without rights":     {nil, "Compute", "Template", "spec.type: Compute: anna may not update presets/compute"},
		"deletes one":                         {namedRights{"delete " + data}, "DataSource", "", ""},
		"deletes one of another type":         {namedRights{"delete " + environment}, "DataSource", "", "may not delete presets/datasource"},
	} {
		t.Run(name, func(t *testing.T) {
			got := denyClusterRequest(t, "sluice-presets", "anna", tc.rights, "presets", preset(tc.old), preset(tc.new))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("denied with %q, want %q", got, tc.want)
			}
		})
	}
	forAll := preset("DataSource")
	forAll.SetNamespace("sluice-system")
	got := denyClusterRequest(t, "sluice-presets", "anna", nil, "presets", nil, forAll)
	if want := "in namespace sluice-system; ask an administrator of the department, or of the cluster, for the role sluice:part:data-source-presets"; !strings.Contains(got, want) {
		t.Errorf("denied in sluice-system with %q, want %q", got, want)
	}
	policy := loadSet(t, false).policies["sluice-presets"]
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		if len(rule.Operations) != 3 || slices.Contains(rule.Operations, "*") || policy.Spec.MatchConstraints.NamespaceSelector != nil {
			t.Errorf("the policy does not see all writes: %+v", policy.Spec.MatchConstraints)
		}
	}
}
