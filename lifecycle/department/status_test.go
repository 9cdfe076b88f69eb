// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestStatus(t *testing.T) {
	d := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "h200"}}}}
	tests := map[string]struct {
		pools  []string
		status metav1.ConditionStatus
		says   string
	}{
		"all there":   {[]string{"h200", "dgx", "more"}, metav1.ConditionTrue, "are there"},
		"one missing": {[]string{"dgx"}, metav1.ConditionFalse, "no node pool h200"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Status(d, make([]v1alpha1.Project, 4), tc.pools, metav1.Now())
			if got.Projects != 4 || len(got.Conditions) != 2 || got.Conditions[0].Status != tc.status || !strings.Contains(got.Conditions[0].Message, tc.says) {
				t.Errorf("status = %+v", got)
			}
			again := d.DeepCopy()
			again.Status = got
			if !equality.Semantic.DeepEqual(Status(again, make([]v1alpha1.Project, 4), tc.pools, metav1.Now()), got) {
				t.Error("the second pass says something else")
			}
		})
	}
}
