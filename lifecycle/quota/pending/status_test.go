// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

func newThesisProject() *v1alpha1.Project {
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 3}, Spec: v1alpha1.ProjectSpec{Department: "students"}}
	p.Status.GPU.Allocated = resource.MustParse("1")
	p.Spec.NodePools = []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "old"}}
	p.Status.NodePools = []v1alpha1.PoolUsage{{Name: "dgx"}, {Name: "old"}}
	p.Status.PoolSummary = "dgx 1/0, old 0/0"
	one := p.Status.GPU.Allocated
	p.Status.GPU.OverQuota, p.Status.NodePools[0].Allocated, p.Status.NodePools[0].OverQuota = one, one, one
	return p
}

func TestDesiredStatus(t *testing.T) {
	p := newThesisProject()
	observed := ObservedState{
		Quota:    newQuota(1000, 1000, 0, 0),
		Charges:  PodCharges{Pending: poolCharges{"dgx": 250, "old": 125}},
		Rejected: []Workload{newWorkload("web", 2, 500), newWorkload("db", 1, 125)},
	}
	got := DesiredStatus(p, observed, metav1.NewTime(noon))
	if all := got.GPU.Pending.String(); all != "1500m" {
		t.Errorf("pending = %s, want 1500m", all)
	}
	if dgx, old := got.NodePools[0].Pending.String(), got.NodePools[1].Pending.String(); dgx != "1375m" || old != "125m" {
		t.Errorf("pending in dgx %s, in old %s", dgx, old)
	}
	condition := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionPending)
	const want = "2 workloads wait for GPU quota, 1.125 GPUs in total: " +
		"Deployment web (2 pods of 0.5 of a GPU of node pool dgx, since 2026-05-01T12:00:00Z), " +
		"Deployment db (1 pod of 0.125 of a GPU of node pool dgx, since 2026-05-01T12:00:00Z); " +
		"their pods are created when quota becomes available, the oldest workload first"
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonQuotaExceeded || condition.Message != want || condition.ObservedGeneration != 3 {
		t.Errorf("condition = %+v", condition)
	}

	p.Status = got
	if again := DesiredStatus(p, observed, metav1.Now()); !equality.Semantic.DeepEqual(got, again) {
		t.Errorf("the second pass has another status: %+v", again)
	}
	got = DesiredStatus(p, ObservedState{Quota: observed.Quota}, metav1.Now())
	condition = meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionPending)
	if !got.GPU.Pending.IsZero() || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonNoPendingWorkloads {
		t.Errorf("when all is over: %s pending, %+v", &got.GPU.Pending, condition)
	}
}

func TestNoConditionWithoutPendingWork(t *testing.T) {
	p := newThesisProject()
	if got := DesiredStatus(p, ObservedState{Quota: newQuota(1000, 1000, 0, 0)}, metav1.Now()); !equality.Semantic.DeepEqual(got, p.Status) {
		t.Errorf("status = %+v", got)
	}
}

func TestSummarizeRejectedBounds(t *testing.T) {
	var waiting []Workload
	for i := range 500 {
		waiting = append(waiting, newWorkload(strings.Repeat("n", 60)+strconv.Itoa(i), 1, 1000))
	}
	got := summarizeRejected(waiting)
	if len(got) > 4096 || !strings.HasPrefix(got, "500 workloads wait for GPU quota, 500 GPUs in total") || !strings.Contains(got, " and 490 more; ") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestDescribeRejected(t *testing.T) {
	guaranteed := func(w *Workload) { w.Resource = "sluice.dev/guaranteed-milli.dgx" }
	gone := func(w *Workload) { w.Resource = "sluice.dev/gpu-milli.gone" }
	const end = "; the missing pods are created automatically when quota becomes available; stop another workload of the project, or ask an administrator of department students for more quota"
	tests := map[string]Workload{
		"2 pods wait for GPU quota, each 0.5 of a GPU of node pool dgx: project thesis uses 1 GPU of a limit of 1 GPU" + end:                                      newWorkload("web", 2, 500),
		"1 pod waits for GPU quota, 1 GPU of node pool dgx: project thesis uses 0.25 of a GPU of a limit of 0.5 of a GPU for pods that cannot be preempted" + end: newWorkload("web", 1, 1000, guaranteed),
		"1 pod waits for GPU quota, 2 GPUs of node pool gone: the quota of project thesis is used up" + end:                                                       newWorkload("web", 1, 2000, gone),
	}
	for want, w := range tests {
		if got := describeRejected(&w, newThesisProject(), newQuota(1000, 1000, 500, 250)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// fakePods are the GPU pods that there are.
type fakePods []*podcache.Pod

func (p *fakePods) InNamespace(string) iter.Seq[*podcache.Pod] { return slices.Values(*p) }

func (p *fakePods) ByUID(uid types.UID) (*podcache.Pod, bool) {
	at := slices.IndexFunc(*p, func(pod *podcache.Pod) bool { return pod.UID == uid })
	if at < 0 {
		return nil, false
	}
	return (*p)[at], true
}

func (p *fakePods) Subscribe(handler func(podcache.Change)) func() {
	for _, pod := range *p {
		handler(podcache.Change{After: pod})
	}
	return func() {}
}

func (*fakePods) WaitForSync(context.Context) error { return nil }

// newGPUPod is a pod of project thesis in a node pool, changed.
func newGPUPod(pool string, milli workload.Milli, change ...func(*podcache.Pod)) *podcache.Pod {
	p := &podcache.Pod{Namespace: "thesis", Project: "thesis", Pool: pool, Milli: milli, Node: "dgx-1"}
	for _, f := range change {
		f(p)
	}
	return p
}

func withoutNode(p *podcache.Pod)      { p.Node = "" }
func withDeletion(p *podcache.Pod)     { p.Deleting = true }
func withKueueHold(p *podcache.Pod)    { p.Queued, p.Node = true, "" }
func withOtherProject(p *podcache.Pod) { p.Project = "another" }

func TestSumPodCharges(t *testing.T) {
	got := SumPodCharges(slices.Values([]*podcache.Pod{
		newGPUPod("whole", 1000), newGPUPod("whole", 500, withoutNode), newGPUPod("mig", 125, withoutNode, withDeletion),
		newGPUPod("mig", 250, withKueueHold), newGPUPod("mig", 125, withKueueHold, withDeletion), newGPUPod("whole", 4000, withOtherProject), newGPUPod("", 1, withoutNode),
	}), "thesis")
	want := PodCharges{
		Bound: poolCharges{"whole": 1000}, Unbound: poolCharges{"whole": 500, "mig": 500, "": 1}, Unscheduled: poolCharges{"whole": 500, "mig": 125, "": 1}, Pending: poolCharges{"whole": 500, "mig": 250, "": 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// newUsedQuota returns a quota with the usage of GPU quota units.
func newUsedQuota(used map[corev1.ResourceName]string) *corev1.ResourceQuota {
	quota := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}}
	for unit, amount := range used {
		name := corev1.DefaultResourceRequestsPrefix + unit
		quota.Status.Hard[name], quota.Status.Used[name] = resource.MustParse("99k"), resource.MustParse(amount)
	}
	return quota
}

// Protects invariant 11: what a quota counts is in the status to the last thousandth and once: a
// pod with a node as allocated, one that Kueue or the scheduler holds back as pending.
func TestPodsCountOnceAsQuotaCountsThem(t *testing.T) {
	type used = map[corev1.ResourceName]string
	own := v1alpha1.ResourceGPUMilliFor("dgx")
	// Of the scheduler that pool whole had before, and of the time when dgx was one of Kueue's.
	former := newUsedQuota(used{v1alpha1.ResourceGPUMilli: "8125", own: "1500", v1alpha1.ResourceGPUMilliFor("whole"): "500"})
	former.Status.Hard["requests.sluice.dev/gpu-milli.whole"] = resource.MustParse("0")
	busy := []*podcache.Pod{newGPUPod("whole", 4000), newGPUPod("whole", 3000, withKueueHold), newGPUPod("mig", 1125), newGPUPod("dgx", 500), newGPUPod("dgx", 1000, withoutNode)}
	tests := map[string]struct {
		quota *corev1.ResourceQuota
		pods  []*podcache.Pod
		want  []string // allocated, over quota and pending: in all, and in whole, mig, dgx
	}{
		"nothing counted":    {nil, nil, []string{"0 0 0", "0 0 0", "0 0 0", "0 0 0"}},
		"all at once":        {newUsedQuota(used{v1alpha1.ResourceGPUMilli: "8125", own: "1500"}), busy, []string{"5625m 1125m 4", "4 0 3", "1125m 625m 0", "500m 500m 1"}},
		"a former scheduler": {former, busy, []string{"5625m 1125m 4", "4 0 3", "1125m 625m 0", "500m 500m 1"}},
		"a counted pod that is not in the cache yet": {
			newUsedQuota(used{v1alpha1.ResourceGPUMilli: "8125"}), nil, []string{"8125m 3625m 0", "0 0 0", "0 0 0", "0 0 0"},
		},
		// KAI-Scheduler counts for itself: its projects have no ResourceQuota.
		"no quota counts": {nil, busy, []string{"5625m 1125m 4", "4 0 3", "1125m 625m 0", "500m 500m 1"}},
		"a pod that waits for a node": {
			newUsedQuota(used{v1alpha1.ResourceGPUMilli: "7000"}),
			[]*podcache.Pod{newGPUPod("whole", 4000), newGPUPod("whole", 3000, withoutNode)},
			[]string{"4 0 3", "4 0 3", "0 0 0", "0 0 0"},
		},
		"a pod in a queue that the quota does not count yet": {
			newUsedQuota(used{v1alpha1.ResourceGPUMilli: "0"}), []*podcache.Pod{newGPUPod("whole", 3000, withKueueHold)}, []string{"0 0 3", "0 0 3", "0 0 0", "0 0 0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.Project{}
			guaranteed := map[string]string{"whole": "4", "mig": "500m", "dgx": "0"}
			for _, pool := range []string{"whole", "mig", "dgx"} {
				p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: pool})
				p.Status.NodePools = append(p.Status.NodePools, v1alpha1.PoolUsage{Name: pool, GPUUsage: v1alpha1.GPUUsage{Guaranteed: resource.MustParse(guaranteed[pool])}})
			}
			p.Status.GPU.Guaranteed = resource.MustParse("4500m")
			status := DesiredStatus(p, ObservedState{Quota: tc.quota, Charges: SumPodCharges(slices.Values(tc.pods), "thesis")}, metav1.Now())
			got := []string{formatGPUUse(&status.GPU)}
			for i := range status.NodePools {
				got = append(got, formatGPUUse(&status.NodePools[i].GPUUsage))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func formatGPUUse(u *v1alpha1.GPUUsage) string {
	return u.Allocated.String() + " " + u.OverQuota.String() + " " + u.Pending.String()
}
