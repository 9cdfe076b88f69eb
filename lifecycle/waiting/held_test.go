// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/gpupods"
)

// podsThere are the GPU pods that there are.
type podsThere []*gpupods.Pod

func (p *podsThere) InNamespace(string) iter.Seq[*gpupods.Pod] { return slices.Values(*p) }

func (p *podsThere) ByUID(uid types.UID) (*gpupods.Pod, bool) {
	at := slices.IndexFunc(*p, func(pod *gpupods.Pod) bool { return pod.UID == uid })
	if at < 0 {
		return nil, false
	}
	return (*p)[at], true
}

func (p *podsThere) Changes(handler func(gpupods.Change)) func() {
	for _, pod := range *p {
		handler(gpupods.Change{After: pod})
	}
	return func() {}
}

func (*podsThere) WaitForSync(context.Context) error { return nil }

// gpuPod is a pod of project thesis in a node pool, changed.
func gpuPod(pool string, milli workload.Milli, change ...func(*gpupods.Pod)) *gpupods.Pod {
	p := &gpupods.Pod{Namespace: "thesis", Project: "thesis", Pool: pool, Milli: milli, Node: "dgx-1"}
	for _, f := range change {
		f(p)
	}
	return p
}

func unplaced(p *gpupods.Pod) { p.Node = "" }
func leaving(p *gpupods.Pod)  { p.Deleting = true }
func inQueue(p *gpupods.Pod)  { p.Queued, p.Node = true, "" }
func strange(p *gpupods.Pod)  { p.Project = "another" }

func TestCharge(t *testing.T) {
	got := Charge(slices.Values([]*gpupods.Pod{
		gpuPod("whole", 1000), gpuPod("whole", 500, unplaced), gpuPod("mig", 125, unplaced, leaving),
		gpuPod("mig", 250, inQueue), gpuPod("mig", 125, inQueue, leaving), gpuPod("whole", 4000, strange), gpuPod("", 1, unplaced),
	}), "thesis")
	want := Charged{
		In: charges{"whole": 1500, "mig": 125, "": 1}, Queued: charges{"mig": 375}, Waiting: charges{"whole": 500, "mig": 250, "": 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// counting is a quota of some currency, as it is counted.
func counting(currency corev1.ResourceName, used string) corev1.ResourceQuota {
	list := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.DefaultResourceRequestsPrefix + currency: resource.MustParse(amount)}
	}
	return corev1.ResourceQuota{
		Spec:   corev1.ResourceQuotaSpec{Hard: list("99k")},
		Status: corev1.ResourceQuotaStatus{Hard: list("99k"), Used: list(used)},
	}
}

// What a quota counts is in the status to the last thousandth: a pod that Kueue holds
// back as pending, all others as allocated.
func TestWhatIsAllocated(t *testing.T) {
	shared, own := counting(v1alpha1.ResourceGPUMilli, "8125"), counting(v1alpha1.GPUMilliFor("dgx"), "1500")
	busy := []*gpupods.Pod{gpuPod("whole", 4000), gpuPod("whole", 3000, inQueue), gpuPod("mig", 1125), gpuPod("dgx", 500), gpuPod("dgx", 1000, unplaced)}
	tests := map[string]struct {
		quotas []corev1.ResourceQuota
		pods   []*gpupods.Pod
		want   []string // allocated, over quota and pending: in all, and in whole, mig, dgx
	}{
		"nothing counted": {nil, nil, []string{"0 0 0", "0 0 0", "0 0 0", "0 0 0"}},
		"all at once":     {[]corev1.ResourceQuota{shared, own}, busy, []string{"6625m 2125m 4", "4 0 3", "1125m 625m 0", "1500m 1500m 1"}},
		"a pod that the quota counts and nobody heard of yet": {
			[]corev1.ResourceQuota{shared}, nil, []string{"8125m 3625m 0", "0 0 0", "0 0 0", "0 0 0"},
		},
		"a pod in a queue that the quota does not count yet": {
			[]corev1.ResourceQuota{counting(v1alpha1.ResourceGPUMilli, "0")}, []*gpupods.Pod{gpuPod("whole", 3000, inQueue)}, []string{"0 0 3", "0 0 3", "0 0 0", "0 0 0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.Project{}
			guaranteed := map[string]string{"whole": "4", "mig": "500m", "dgx": "0"}
			for _, pool := range []string{"whole", "mig", "dgx"} {
				p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: pool})
				p.Status.NodePools = append(p.Status.NodePools, v1alpha1.PoolUse{Name: pool, GPUUse: v1alpha1.GPUUse{Guaranteed: resource.MustParse(guaranteed[pool])}})
			}
			p.Status.GPU.Guaranteed = resource.MustParse("4500m")
			status := Status(p, Seen{Quotas: tc.quotas, Charged: Charge(slices.Values(tc.pods), "thesis")}, metav1.Now())
			got := []string{figures(&status.GPU)}
			for i := range status.NodePools {
				got = append(got, figures(&status.NodePools[i].GPUUse))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func figures(u *v1alpha1.GPUUse) string {
	return u.Allocated.String() + " " + u.OverQuota.String() + " " + u.Pending.String()
}
