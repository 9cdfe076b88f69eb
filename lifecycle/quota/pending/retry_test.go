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

	"sluice.dev/api/workload"
)

func quotaList(value int64) corev1.ResourceList {
	return corev1.ResourceList{"requests.sluice.dev/gpu-milli.dgx": *resource.NewQuantity(value, resource.DecimalSI)}
}

// newQuotas are a project's two: all pods, and those that cannot be preempted.
func newQuotas(limit, used, guaranteed, usedOfIt int64) []corev1.ResourceQuota {
	return []corev1.ResourceQuota{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx"},
			Status:     corev1.ResourceQuotaStatus{Hard: quotaList(limit), Used: quotaList(used)},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx-guaranteed"},
			Spec:       corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{}},
			Status:     corev1.ResourceQuotaStatus{Hard: quotaList(guaranteed), Used: quotaList(usedOfIt)},
		},
	}
}

// newWorkload returns a workload with missing pods of a share, rejected at second 50 and not retried yet.
func newWorkload(name string, pods int32, share workload.Milli, change ...func(*Workload)) Workload {
	w := Workload{
		RejectedObject: RejectedObject{Kind: "ReplicaSet", Name: name, Last: noonPlus(50), QuotaRejection: QuotaRejection{
			Quota: "sluice-dgx", Resource: "sluice.dev/gpu-milli.dgx", Charge: share,
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
	guaranteed := func(w *Workload) { w.Quota = "sluice-dgx-guaranteed" }
	foreign := func(w *Workload) { w.Quota = "theirs" }
	retried := func(second int) func(*Workload) {
		return func(w *Workload) { w.RetriedAt = noonPlus(second) }
	}
	var many []Workload
	for i := range 12 {
		many = append(many, newWorkload(strconv.Itoa(i), 1, 100))
	}
	tests := map[string]struct {
		waiting []Workload
		quotas  []corev1.ResourceQuota
		want    []string
	}{
		"no room":                    {[]Workload{newWorkload("a", 1, 500)}, newQuotas(1000, 1000, 500, 0), nil},
		"room for part of a pod":     {[]Workload{newWorkload("a", 1, 500)}, newQuotas(1000, 501, 500, 0), nil},
		"room for one of two":        {[]Workload{newWorkload("old", 1, 500), newWorkload("young", 1, 500)}, newQuotas(1000, 500, 500, 0), []string{"old"}},
		"room for both":              {[]Workload{newWorkload("old", 1, 500), newWorkload("young", 1, 500)}, newQuotas(1000, 0, 500, 0), []string{"old", "young"}},
		"the oldest takes all":       {[]Workload{newWorkload("old", 4, 500), newWorkload("young", 1, 500)}, newQuotas(1000, 0, 500, 0), []string{"old"}},
		"who does not fit is passed": {[]Workload{newWorkload("large", 1, 1000), newWorkload("small", 1, 500)}, newQuotas(1000, 500, 500, 0), []string{"small"}},
		"the guarantee is full":      {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuotas(2000, 500, 500, 500), nil},
		"the guarantee has room":     {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuotas(2000, 500, 500, 0), []string{"a"}},
		"and the limit has none":     {[]Workload{newWorkload("a", 1, 500, guaranteed)}, newQuotas(2000, 2000, 500, 0), nil},
		"the guarantee is of no concern": {
			[]Workload{newWorkload("a", 1, 500)}, newQuotas(2000, 0, 0, 0), []string{"a"},
		},
		"a quota of others":   {[]Workload{newWorkload("a", 1, 500, foreign)}, newQuotas(2000, 0, 0, 0), nil},
		"a quota not counted": {[]Workload{newWorkload("a", 1, 500)}, []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx"}}}, nil},
		"a lowered quota":     {[]Workload{newWorkload("a", 1, 500)}, newQuotas(1000, 3000, 0, 0), nil},
		"a retry is in progress": {
			[]Workload{newWorkload("a", 1, 500, retried(97)), newWorkload("b", 1, 500)}, newQuotas(1000, 500, 0, 0), nil,
		},
		"a retry failed":                 {[]Workload{newWorkload("a", 1, 500, retried(40))}, newQuotas(1000, 500, 0, 0), []string{"a"}},
		"in the second of its rejection": {[]Workload{newWorkload("a", 1, 500, retried(50))}, newQuotas(1000, 500, 0, 0), []string{"a"}},
		"a retry without a result":       {[]Workload{newWorkload("a", 1, 500, retried(60)), newWorkload("b", 1, 500)}, newQuotas(1000, 500, 0, 0), []string{"b"}},
		"without a result for long":      {[]Workload{newWorkload("a", 1, 500, retried(-300), func(w *Workload) { w.Last = noonPlus(-301) })}, newQuotas(1000, 500, 0, 0), []string{"a"}},
		"no more than some at once":      {many, newQuotas(5000, 0, 0, 0), []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range SelectToRetry(tc.waiting, tc.quotas, noonPlus(100)) {
				got = append(got, w.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
