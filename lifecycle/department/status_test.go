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
			var pools []v1alpha1.NodePool
			for _, name := range tc.pools {
				pools = append(pools, v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			got := Status(d, make([]v1alpha1.Project, 4), pools, metav1.Now())
			if got.Projects != 4 || len(got.Conditions) != 3 || got.Conditions[0].Status != tc.status || !strings.Contains(got.Conditions[0].Message, tc.says) {
				t.Errorf("status = %+v", got)
			}
			again := d.DeepCopy()
			again.Status = got
			if !equality.Semantic.DeepEqual(Status(again, make([]v1alpha1.Project, 4), pools, metav1.Now()), got) {
				t.Error("the second pass says something else")
			}
		})
	}
}
