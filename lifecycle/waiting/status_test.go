// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func thesis() *v1alpha1.Project {
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 3}, Spec: v1alpha1.ProjectSpec{Department: "students"}}
	p.Status.GPU.Allocated = resource.MustParse("1")
	p.Spec.NodePools = []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "old"}}
	p.Status.NodePools = []v1alpha1.PoolUse{{Name: "dgx"}, {Name: "old"}}
	one := p.Status.GPU.Allocated
	p.Status.GPU.OverQuota, p.Status.NodePools[0].Allocated, p.Status.NodePools[0].OverQuota = one, one, one
	return p
}

func TestStatus(t *testing.T) {
	p := thesis()
	seen := Seen{
		Quotas:  quotas(1000, 1000, 0, 0),
		Charged: Charged{Waiting: charges{"dgx": 250, "old": 125}},
		Refused: []Workload{one("web", 2, 500), one("db", 1, 125)},
	}
	got := Status(p, seen, metav1.NewTime(noon))
	if all := got.GPU.Pending.String(); all != "1500m" {
		t.Errorf("pending = %s, want 1500m", all)
	}
	if dgx, old := got.NodePools[0].Pending.String(), got.NodePools[1].Pending.String(); dgx != "1375m" || old != "125m" {
		t.Errorf("pending in dgx %s, in old %s", dgx, old)
	}
	condition := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionWaiting)
	const want = "2 workloads wait for GPU quota, 1.125 GPUs in all: " +
		"Deployment web (2 pods of 0.5 of a GPU of node pool dgx, since 2026-05-01T12:00:00Z), " +
		"Deployment db (1 pod of 0.125 of a GPU of node pool dgx, since 2026-05-01T12:00:00Z); " +
		"their pods are made as room appears, the oldest first"
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonQuotaExceeded || condition.Message != want || condition.ObservedGeneration != 3 {
		t.Errorf("condition = %+v", condition)
	}

	p.Status = got
	if again := Status(p, seen, metav1.Now()); !equality.Semantic.DeepEqual(got, again) {
		t.Errorf("the second pass says something else: %+v", again)
	}
	got = Status(p, Seen{Quotas: seen.Quotas}, metav1.Now())
	condition = meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionWaiting)
	if !got.GPU.Pending.IsZero() || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonNothingWaits {
		t.Errorf("when all is over: %s pending, %+v", &got.GPU.Pending, condition)
	}
}

func TestNothingIsSaidWhereNothingEverWaited(t *testing.T) {
	p := thesis()
	if got := Status(p, Seen{Quotas: quotas(1000, 1000, 0, 0)}, metav1.Now()); !equality.Semantic.DeepEqual(got, p.Status) {
		t.Errorf("status = %+v", got)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	var waiting []Workload
	for i := range 500 {
		waiting = append(waiting, one(strings.Repeat("n", 60)+strconv.Itoa(i), 1, 1000))
	}
	got := summary(waiting)
	if len(got) > 4096 || !strings.HasPrefix(got, "500 workloads wait for GPU quota, 500 GPUs in all") || !strings.Contains(got, " and 490 more; ") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestExplain(t *testing.T) {
	guaranteed := func(w *Workload) { w.Quota = "sluice-dgx-guaranteed" }
	gone := func(w *Workload) { w.Quota = "gone" }
	const end = "; what is missing is made as soon as there is room, by itself; end something of the project, or ask an administrator of department students for more"
	tests := map[string]Workload{
		"2 pods wait for GPU quota, each 0.5 of a GPU of node pool dgx: project thesis holds 1 GPU and may hold 1 GPU at once" + end:                                                 one("web", 2, 500),
		"1 pod waits for GPU quota, 1 GPU of node pool dgx: project thesis holds 0.25 of a GPU with pods that cannot be preempted, for which 0.5 of a GPU may be used at once" + end: one("web", 1, 1000, guaranteed),
		"1 pod waits for GPU quota, 2 GPUs of node pool dgx: the quota gone of project thesis is used up" + end:                                                                      one("web", 1, 2000, gone),
	}
	for want, w := range tests {
		if got := explain(&w, thesis(), quotas(1000, 1000, 500, 250)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
