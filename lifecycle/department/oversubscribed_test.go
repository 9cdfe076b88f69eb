// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestOversubscribed(t *testing.T) {
	pool := func(guaranteed string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse("8")}}}
	}
	project := func(name, guaranteed string) v1alpha1.Project {
		return v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "students", NodePools: pool(guaranteed)}}
	}
	both := []v1alpha1.Project{project("course", "1"), project("thesis", "500m")}
	const excess = "GPUs of node pool dgx: it has 1 and has promised 1500m (course 1, thesis 500m)"
	tests := map[string]struct {
		rule     v1alpha1.Oversubscription
		projects []v1alpha1.Project
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"within":      {v1alpha1.OversubscriptionRefuse, both[:1], metav1.ConditionFalse, "WithinQuota", "what its projects were promised is there"},
		"too much":    {v1alpha1.OversubscriptionRefuse, both, metav1.ConditionTrue, "PromisedTooMuch", excess + "; lower what its projects were promised, or set spec.oversubscription to Allow"},
		"and allowed": {v1alpha1.OversubscriptionAllow, both, metav1.ConditionTrue, "Allowed", "as spec.oversubscription allows, not all of its projects can have what they were promised at once: " + excess},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{NodePools: pool("1"), Oversubscription: tc.rule}}
			got := Oversubscribed(d, tc.projects, metav1.Now())
			if got.Type != "Oversubscribed" || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("condition = %+v", got)
			}
		})
	}
}
