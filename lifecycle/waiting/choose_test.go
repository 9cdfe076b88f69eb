// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/workload"
)

func milli(value int64) corev1.ResourceList {
	return corev1.ResourceList{"requests.sluice.dev/gpu-milli.dgx": *resource.NewQuantity(value, resource.DecimalSI)}
}

// quotas are a project's two: all pods, and those that cannot be preempted.
func quotas(limit, used, guaranteed, usedOfIt int64) []corev1.ResourceQuota {
	return []corev1.ResourceQuota{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx"},
			Status:     corev1.ResourceQuotaStatus{Hard: milli(limit), Used: milli(used)},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx-guaranteed"},
			Spec:       corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{}},
			Status:     corev1.ResourceQuotaStatus{Hard: milli(guaranteed), Used: milli(usedOfIt)},
		},
	}
}

// one waits for so many pods of a share, refused at second 50 and not woken yet.
func one(name string, pods int32, share workload.Milli, change ...func(*Workload)) Workload {
	w := Workload{
		Refused: Refused{Kind: "ReplicaSet", Name: name, Last: after(50), Refusal: Refusal{
			Quota: "sluice-dgx", Currency: "sluice.dev/gpu-milli.dgx", Share: share,
		}},
		Root: corev1.ObjectReference{Kind: "Deployment", Name: name},
		Pods: pods, Since: noon,
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

func TestChoose(t *testing.T) {
	guaranteed := func(w *Workload) { w.Quota = "sluice-dgx-guaranteed" }
	foreign := func(w *Workload) { w.Quota = "theirs" }
	woken := func(second int) func(*Workload) {
		return func(w *Workload) { w.Woken = after(second) }
	}
	var many []Workload
	for i := range 12 {
		many = append(many, one(strconv.Itoa(i), 1, 100))
	}
	tests := map[string]struct {
		waiting []Workload
		quotas  []corev1.ResourceQuota
		want    []string
	}{
		"no room":                    {[]Workload{one("a", 1, 500)}, quotas(1000, 1000, 500, 0), nil},
		"room for part of a pod":     {[]Workload{one("a", 1, 500)}, quotas(1000, 501, 500, 0), nil},
		"room for one of two":        {[]Workload{one("old", 1, 500), one("young", 1, 500)}, quotas(1000, 500, 500, 0), []string{"old"}},
		"room for both":              {[]Workload{one("old", 1, 500), one("young", 1, 500)}, quotas(1000, 0, 500, 0), []string{"old", "young"}},
		"the oldest takes all":       {[]Workload{one("old", 4, 500), one("young", 1, 500)}, quotas(1000, 0, 500, 0), []string{"old"}},
		"who does not fit is passed": {[]Workload{one("large", 1, 1000), one("small", 1, 500)}, quotas(1000, 500, 500, 0), []string{"small"}},
		"the guarantee is full":      {[]Workload{one("a", 1, 500, guaranteed)}, quotas(2000, 500, 500, 500), nil},
		"the guarantee has room":     {[]Workload{one("a", 1, 500, guaranteed)}, quotas(2000, 500, 500, 0), []string{"a"}},
		"and the limit has none":     {[]Workload{one("a", 1, 500, guaranteed)}, quotas(2000, 2000, 500, 0), nil},
		"the guarantee is of no concern": {
			[]Workload{one("a", 1, 500)}, quotas(2000, 0, 0, 0), []string{"a"},
		},
		"a quota of others":   {[]Workload{one("a", 1, 500, foreign)}, quotas(2000, 0, 0, 0), nil},
		"a quota not counted": {[]Workload{one("a", 1, 500)}, []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx"}}}, nil},
		"a lowered quota":     {[]Workload{one("a", 1, 500)}, quotas(1000, 3000, 0, 0), nil},
		"who was woken is at it": {
			[]Workload{one("a", 1, 500, woken(97)), one("b", 1, 500)}, quotas(1000, 500, 0, 0), nil,
		},
		"who was woken in vain":        {[]Workload{one("a", 1, 500, woken(40))}, quotas(1000, 500, 0, 0), []string{"a"}},
		"in the second of its refusal": {[]Workload{one("a", 1, 500, woken(50))}, quotas(1000, 500, 0, 0), []string{"a"}},
		"who was woken and is silent":  {[]Workload{one("a", 1, 500, woken(60)), one("b", 1, 500)}, quotas(1000, 500, 0, 0), []string{"b"}},
		"who was silent for long":      {[]Workload{one("a", 1, 500, woken(-300), func(w *Workload) { w.Last = after(-301) })}, quotas(1000, 500, 0, 0), []string{"a"}},
		"no more than some at once":    {many, quotas(5000, 0, 0, 0), []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range Choose(tc.waiting, tc.quotas, after(100)) {
				got = append(got, w.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
