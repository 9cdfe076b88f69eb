// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/input"
)

// whole and mig are the pools of the project of these tests.
func newTestPools() []input.NodePool {
	return []input.NodePool{
		{
			Name: "whole", QuotaResource: "sluice.dev/gpu-milli.whole", NodeSelector: map[string]string{"pool": "whole"},
			Guaranteed: 1000, Limit: 2000, Products: []input.GPUModel{{MemoryMiB: 40960}},
		},
		{
			Name: "mig", QuotaResource: "sluice.dev/gpu-milli.mig", NodeSelector: map[string]string{"pool": "mig"},
			Guaranteed: 500, Limit: 1000,
			Products: []input.GPUModel{{MemoryMiB: 40960, Profiles: []input.MIGProfile{{Name: "1g.5gb", QuotaCharge: 125}, {Name: "3g.20gb", QuotaCharge: 500}}}},
		},
	}
}

// poolsForTestNode: node n-whole is of pool whole, and so on; both is of two pools.
func poolsForTestNode(node string) []string {
	return map[string][]string{
		"n-whole": {"whole"}, "n-mig": {"mig"}, "n-other": {"other"}, "both": {"mig", "whole"},
	}[node]
}

func newGPUPod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func withResource(name, count string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		resources := &p.Spec.Containers[0].Resources
		if resources.Limits == nil {
			resources.Limits, resources.Requests = corev1.ResourceList{}, corev1.ResourceList{}
		}
		resources.Limits[corev1.ResourceName(name)] = resource.MustParse(count)
		resources.Requests[corev1.ResourceName(name)] = resource.MustParse(count)
	}
}

func withAnnotation(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func withNodeName(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

func TestFindUncounted(t *testing.T) {
	gpu := withResource("nvidia.com/gpu", "1")
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	selects := func(pool string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": pool} }
	}
	training := func(p *corev1.Pod) { p.Spec.PriorityClassName = v1alpha1.PriorityClassTrain }
	tests := map[string]struct {
		pod  corev1.Pod
		want []UncountedPod
	}{
		"without GPUs":        {newGPUPod("p"), nil},
		"over":                {newGPUPod("p", gpu, over, withNodeName("n-whole")), nil},
		"counted":             {newGPUPod("p", gpu, withResource("sluice.dev/gpu-milli.whole", "1000"), withNodeName("n-whole")), nil},
		"in another resource": {newGPUPod("p", gpu, withResource("sluice.dev/gpu-milli", "1000"), withNodeName("n-whole"), training), []UncountedPod{{"p", "whole", 1000, true, false}}},
		"counted in part":     {newGPUPod("p", gpu, withResource("sluice.dev/gpu-milli.whole", "1"), withNodeName("n-whole")), []UncountedPod{{"p", "whole", 999, false, false}}},
		"a GPU":               {newGPUPod("p", gpu, withNodeName("n-whole")), []UncountedPod{{"p", "whole", 1000, false, false}}},
		"two slices":          {newGPUPod("p", withResource("nvidia.com/mig-3g.20gb", "2"), withNodeName("n-mig")), []UncountedPod{{"p", "mig", 1000, false, false}}},
		"a share":             {newGPUPod("p", withAnnotation("gpu-fraction", "0.3"), withNodeName("n-mig")), []UncountedPod{{"p", "mig", 300, false, false}}},
		"memory":              {newGPUPod("p", withAnnotation("gpu-memory", "10241"), withNodeName("n-whole")), []UncountedPod{{"p", "whole", 251, false, false}}},
		"of a pool by its selector": {
			newGPUPod("p", withResource("nvidia.com/mig-1g.5gb", "1"), selects("mig")), []UncountedPod{{"p", "mig", 125, false, false}},
		},
		"that may come to any":       {newGPUPod("p", gpu), []UncountedPod{{"p", "whole", 1000, false, false}}},
		"that selects other nodes":   {newGPUPod("p", gpu, selects("other")), []UncountedPod{{Pod: "p"}}},
		"on a node of another pool":  {newGPUPod("p", gpu, withNodeName("n-other")), []UncountedPod{{Pod: "p"}}},
		"on a node of no pool":       {newGPUPod("p", gpu, withNodeName("both")), []UncountedPod{{Pod: "p"}}},
		"of a pool that it had":      {newGPUPod("p", gpu, withResource("sluice.dev/gpu-milli.old", "1000"), withNodeName("n-other")), nil},
		"GPUs of a NodePool's name":  {newGPUPod("p", withResource("example.com/pair", "2"), withNodeName("n-whole")), []UncountedPod{{"p", "whole", 4000, false, false}}},
		"with an invalid request":    {newGPUPod("p", withAnnotation(v1alpha1.AnnotationGPU, "half"), withNodeName("n-mig")), []UncountedPod{{"p", "mig", 1000, false, false}}},
		"a slice of no GPU model":    {newGPUPod("p", withResource("nvidia.com/mig-7g.80gb", "1"), withNodeName("n-mig")), []UncountedPod{{"p", "mig", 1000, false, false}}},
		"a replica of an odd device": {newGPUPod("p", withResource("nvidia.com/gpu.shared", "2"), withNodeName("n-mig")), []UncountedPod{{"p", "mig", 2000, false, false}}},
	}
	units := workload.ListedResources{GPUs: map[corev1.ResourceName]workload.Milli{"example.com/pair": 2000}}.Units()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, FindUncounted([]corev1.Pod{tc.pod}, units, newTestPools(), poolsForTestNode)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A pool without known GPU models has no prices; admitted pods count as charged.
func TestFindUncountedTrustsAdmissionWithoutGPUModels(t *testing.T) {
	pools := newTestPools()
	pools[1].Products = nil
	slice := withResource("nvidia.com/mig-3g.20gb", "1")
	got := FindUncounted([]corev1.Pod{
		newGPUPod("old", slice, withNodeName("n-mig")), newGPUPod("new", slice, withResource("sluice.dev/gpu-milli.mig", "500"), withNodeName("n-mig")),
	}, nil, pools, poolsForTestNode)
	if diff := cmp.Diff([]UncountedPod{{"old", "mig", 1000, false, false}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDeductUncounted(t *testing.T) {
	type amounts struct{ Guaranteed, Limit workload.Milli }
	tests := map[string]struct {
		pods []UncountedPod
		want amounts // of pool whole: 1000 guaranteed, 2000 at most
	}{
		"none":                       {nil, amounts{1000, 2000}},
		"of another pool":            {[]UncountedPod{{Pool: "mig", Uncharged: 500}, {Uncharged: 1}}, amounts{1000, 2000}},
		"not preemptible":            {[]UncountedPod{{Pool: "whole", Uncharged: 500}}, amounts{500, 1500}},
		"preemptible":                {[]UncountedPod{{Pool: "whole", Uncharged: 500, Preemptible: true}}, amounts{1000, 1500}},
		"over the guarantee":         {[]UncountedPod{{Pool: "whole", Uncharged: 1500}}, amounts{0, 500}},
		"never more than the limit":  {[]UncountedPod{{Pool: "whole", Uncharged: 1500, Preemptible: true}}, amounts{500, 500}},
		"together more than all":     {[]UncountedPod{{Pool: "whole", Uncharged: 1500}, {Pool: "whole", Uncharged: 1500}}, amounts{0, 0}},
		"some of each kind together": {[]UncountedPod{{Pool: "whole", Uncharged: 250}, {Pool: "whole", Uncharged: 250, Preemptible: true}}, amounts{750, 1500}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pools := newTestPools()
			got := DeductUncounted(pools, tc.pods)[0]
			if diff := cmp.Diff(tc.want, amounts{got.Guaranteed, got.Limit}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(newTestPools(), pools); diff != "" {
				t.Errorf("the pools that were given changed:\n%s", diff)
			}
		})
	}
}

func TestExceededLimits(t *testing.T) {
	if p := exceededLimits(newTestPools(), []UncountedPod{{Pool: "whole", Uncharged: 2000}, {Uncharged: 9000}}); p != nil {
		t.Errorf("exactly the limit: %+v", p)
	}
	p := exceededLimits(newTestPools(), []UncountedPod{{Pod: "x", Pool: "mig", Uncharged: 1125}})
	if p == nil || p.reason != v1alpha1.ReasonUncountedPodsExceedLimit || !strings.Contains(p.message, "x: they hold 1.125 GPUs of node pool mig, and the project may have 1 GPU there;") {
		t.Errorf("over the limit: %+v", p)
	}
}

func TestUncountedCondition(t *testing.T) {
	none := uncountedCondition(newTestPools(), nil)
	if none.Status != metav1.ConditionFalse || none.Reason != ReasonAllCounted ||
		none.Message != "every GPU pod is counted, in sluice.dev/gpu-milli.mig, sluice.dev/gpu-milli.whole" {
		t.Errorf("of none: %+v", none)
	}
	var pods []UncountedPod
	for i := range 12 {
		pods = append(pods, UncountedPod{Pod: strconv.Itoa(i), Pool: "mig", Uncharged: 125})
	}
	c := uncountedCondition(newTestPools(), pods)
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPodsUncounted ||
		!strings.Contains(c.Message, "8, 9 and 2 more; until they are gone the project's limit is lower by what they hold, 1.5 GPUs of node pool mig; delete them") {
		t.Errorf("of twelve: %+v", c)
	}
	gone := uncountedCondition(newTestPools(), []UncountedPod{{Pod: "forced", Pool: "whole", Uncharged: 1000, Gone: true}})
	if want := "pods that were deleted by force and whose GPUs are still held, as their nodes report: forced; " +
		"until they are gone the project's limit is lower by what they hold, 1 GPU of node pool whole"; gone.Message != want {
		t.Errorf("of one that is gone: %q, want %q", gone.Message, want)
	}
	if c := uncountedCondition(nil, []UncountedPod{{Pod: "x"}}); !strings.Contains(c.Message, "count them: x; delete them") {
		t.Errorf("of one in no pool: %+v", c)
	}
}
