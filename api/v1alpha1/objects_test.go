// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func TestNamespaceName(t *testing.T) {
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}}
	if got := project.NamespaceName(); got != "thesis-mueller" {
		t.Errorf("without spec.namespace: %q", got)
	}
	project.Spec.Namespace = "old-lab"
	if got := project.NamespaceName(); got != "old-lab" {
		t.Errorf("with spec.namespace: %q", got)
	}
}

func TestPlansMIG(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec v1alpha1.NodePoolSpec
		want bool
	}{
		{"whole GPUs", v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingNone}, false},
		{"MIG, and nothing said", v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG}, true},
		{"dynamic", v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG, MIG: &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningDynamic}}, true},
		{"static", v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG, MIG: &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningStatic}}, false},
	} {
		if got := tc.spec.PlansMIG(); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestWeight(t *testing.T) {
	var none int32
	if got := (v1alpha1.GPUQuota{}).Weight(); got != 1 {
		t.Errorf("without a weight: %d", got)
	}
	if got := (v1alpha1.GPUQuota{OverQuotaWeight: &none}).Weight(); got != 0 {
		t.Errorf("with a weight of 0: %d", got)
	}
}

func TestSchemeRecognizesEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range crdKinds {
		for _, name := range []string{kind, kind + "List"} {
			if !scheme.Recognizes(v1alpha1.GroupVersion.WithKind(name)) {
				t.Errorf("the scheme does not know %s", name)
			}
		}
	}
}

// Controllers compare specs with equality.Semantic, which panics on types whose
// fields it cannot see.
func TestSemanticEquality(t *testing.T) {
	spec := func(runtime, validity, until string) any {
		most, p, day := period.MustParseDuration(runtime), period.MustParsePeriod(validity), period.MustParseDate(until)
		return []any{
			v1alpha1.DepartmentSpec{
				Workloads: limitsByType{"*": {MaxRuntime: &most}},
				Projects:  v1alpha1.ProjectTerms{Validity: &p},
				Holidays:  []v1alpha1.Holiday{{From: day, To: day}},
			},
			v1alpha1.ProjectSpec{Hold: &v1alpha1.Exception{Until: &day}},
		}
	}
	if !equality.Semantic.DeepEqual(spec("48h", "P1Y", "2026-12-31"), spec("2d", "P12M", "2026-12-31")) {
		t.Error("the same terms in other words are not equal")
	}
	for _, other := range []any{spec("47h", "P1Y", "2026-12-31"), spec("48h", "P6M", "2026-12-31"), spec("48h", "P1Y", "2026-12-30")} {
		if equality.Semantic.DeepEqual(spec("48h", "P1Y", "2026-12-31"), other) {
			t.Errorf("equal to %+v", other)
		}
	}
}
