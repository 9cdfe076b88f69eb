// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// newQuota returns a project's quota in node pool dgx.
func newQuota(limit, used, guaranteed, usedOfIt int64) *corev1.ResourceQuota {
	list := func(all, guaranteed int64) corev1.ResourceList {
		return corev1.ResourceList{
			"requests.sluice.dev/gpu-milli.dgx":        *resource.NewQuantity(all, resource.DecimalSI),
			"requests.sluice.dev/guaranteed-milli.dgx": *resource.NewQuantity(guaranteed, resource.DecimalSI),
			"pods": resource.MustParse("5"),
		}
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.QuotaName},
		Status:     corev1.ResourceQuotaStatus{Hard: list(limit, guaranteed), Used: list(used, usedOfIt)},
	}
}

// newWorkload returns a workload with missing pods of a share, rejected at second 50 and not retried yet.
func newWorkload(name string, pods int32, share workload.Milli, change ...func(*Workload)) Workload {
	w := Workload{
		RejectedObject: RejectedObject{Kind: "ReplicaSet", Name: name, Last: noonPlus(50), QuotaRejection: QuotaRejection{
			Quota: v1alpha1.QuotaName, Resource: "sluice.dev/gpu-milli.dgx", Charge: share,
		}},
		Root:        corev1.ObjectReference{Kind: "Deployment", Name: name},
		MissingPods: pods, Since: noon,
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

func TestSelectToRetry(t *testing.T) {
	guaranteed := func(w *Workload) { w.Resource = "sluice.dev/guaranteed-milli.dgx" }
	elsewhere := func(w *Workload) { w.Resource = "sluice.dev/gpu-milli.h100" }
	retried := func(second int) func(*Workload) {
		return func(w *Workload) { w.RetriedAt = noonPlus(second) }
	}
	var many []Workload
	for i := range 12 {
		many = append(many, newWorkload(strconv.Itoa(i), 1, 100))
	}
	tests := map[string]struct {
		waiting []Workload
		quota   *corev1.ResourceQuota
		want    []string
	}{
		"no room":                    {[]Workload{newWorkload("a", 1, 500)}, newQuota(1000, 1000, 500, 0), nil},
		"room for part of a pod":     {[]Workload{newWorkload("a", 1, 500)}, newQuota(1000, 501, 500, 0), nil},
		"room for one of two":        {[]Workload{newWorkload("old", 1, 500), newWorkload("young", 1, 500)}, newQuota(1000, 500, 500, 0), []string{"old"}},
		"room for both":              {[]Workload{newWorkload("old", 1, 500), newWorkload("young", 1, 500)}, newQuota(1000, 0, 500, 0), []string{"old", "young"}},
		"the oldest takes all":       {[]Workload{newWorkload("old", 4, 500), newWorkload("young", 1, 500)}, newQuota(1000, 0, 500, 0), []string{"old"}},
		"who does not fit is passed": {[]Workload{newWorkload("large", 1, 1000), newWorkload("small", 1, 500)}, newQuota(1000, 500, 500, 0), []string{"small"}},
		"the guarantee is full":      {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuota(2000, 500, 500, 500), nil},
		"the guarantee has room":     {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuota(2000, 500, 500, 0), []string{"a"}},
		"and the limit has none":     {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuota(2000, 2000, 500, 0), nil},
		"the guarantee is of no concern": {
			[]Workload{newWorkload("a", 1, 500)}, newQuota(2000, 0, 0, 0), []string{"a"},
		},
		"a pool without quota": {[]Workload{newWorkload("a", 1, 500, elsewhere)}, newQuota(2000, 0, 0, 0), nil},
		"a quota not counted":  {[]Workload{newWorkload("a", 1, 500)}, &corev1.ResourceQuota{}, nil},
		"no quota":             {[]Workload{newWorkload("a", 1, 500)}, nil, nil},
		"both have room for one": {
			[]Workload{newWorkload("old", 1, 500, guaranteed), newWorkload("young", 1, 500)}, newQuota(500, 0, 500, 0), []string{"old"},
		},
		"a lowered quota": {[]Workload{newWorkload("a", 1, 500)}, newQuota(1000, 3000, 0, 0), nil},
		"a retry is in progress": {
			[]Workload{newWorkload("a", 1, 500, retried(97)), newWorkload("b", 1, 500)}, newQuota(1000, 500, 0, 0), nil,
		},
		"a retry failed":                 {[]Workload{newWorkload("a", 1, 500, retried(40))}, newQuota(1000, 500, 0, 0), []string{"a"}},
		"in the second of its rejection": {[]Workload{newWorkload("a", 1, 500, retried(50))}, newQuota(1000, 500, 0, 0), []string{"a"}},
		"a retry without a result":       {[]Workload{newWorkload("a", 1, 500, retried(60)), newWorkload("b", 1, 500)}, newQuota(1000, 500, 0, 0), []string{"b"}},
		"without a result for long":      {[]Workload{newWorkload("a", 1, 500, retried(-300), func(w *Workload) { w.Last = noonPlus(-301) })}, newQuota(1000, 500, 0, 0), []string{"a"}},
		"no more than some at once":      {many, newQuota(5000, 0, 0, 0), []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range SelectToRetry(tc.waiting, tc.quota, noonPlus(100)) {
				got = append(got, w.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
