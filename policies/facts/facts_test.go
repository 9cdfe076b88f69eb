// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

func TestProjectKnowsTheTighterLimitAndWhetherItsQuotaCounts(t *testing.T) {
	long, short := period.MustParseDuration("48h"), period.MustParseDuration("24h")
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 2, Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "vision",
		}},
		Spec: v1alpha1.ProjectSpec{
			Department: "students",
			Workloads:  map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.WorkloadInteractive: {MaxRuntime: &short}},
		},
	}
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{
		Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.AnyWorkload: {MaxRuntime: &long}},
	}}
	want := facts.Project{
		Name: "thesis", Namespace: "thesis", Department: "students",
		Labels: map[string]string{}, Annotations: map[string]string{"team": "vision"},
		Phase: v1alpha1.ProjectActive,
		Limits: map[v1alpha1.WorkloadType]facts.Limits{
			"train":       {MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600},
			"interactive": {MaxRuntime: "24h", MaxRuntimeSeconds: 24 * 3600},
			"inference":   {MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600},
		},
		PodSecurity: v1alpha1.PodSecurityBaseline,
	}
	if diff := cmp.Diff(want, facts.OfProject(project, department)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for generation, counted := range map[int64]bool{1: false, 2: true} {
		project.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: generation}}
		if got := facts.OfProject(project, nil).QuotaApplied; got != counted {
			t.Errorf("quota counted at generation %d of 2: %v, want %v", generation, got, counted)
		}
	}
}

func TestPoolsAreTheProjectsInItsOrder(t *testing.T) {
	pools := map[string]*v1alpha1.NodePool{
		"cut": {
			ObjectMeta: metav1.ObjectMeta{Name: "cut"},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingMIG, NodeSelector: map[string]string{"pool": "cut"}},
			Status: v1alpha1.NodePoolStatus{Boards: []v1alpha1.Board{{
				Product: "A100", MemoryMiB: 40960, MIGProfiles: []v1alpha1.MIGProfile{"3g.20gb", "1g.5gb+me", "1g.5gb", "broken"},
			}}},
		},
		"kai": {
			ObjectMeta: metav1.ObjectMeta{Name: "kai"},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKAI},
			Status: v1alpha1.NodePoolStatus{GPUs: 16, Settings: map[string]string{"queueLabelKey": "team"}, Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionTrue, Message: "not yet",
			}}},
		},
	}
	project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: []v1alpha1.PoolQuota{
		{Name: "kai", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}},
		{Name: "gone"},
		{Name: "cut", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("500m"), Limit: resource.MustParse("1.5"), OverQuotaWeight: new(int32)}},
	}}}
	got, err := json.Marshal(facts.OfPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[` +
		`{"name":"kai","scheduler":"kai","sharing":"None","compute":"Fair","nodeSelector":{},"tolerations":[],"unsupported":"not yet",` +
		`"settings":{"queueLabelKey":"team"},"gpus":16,"currency":"sluice.dev/gpu-milli","guaranteed":0,"limit":2,"weight":1,"promised":0,"boards":[]},` +
		`{"name":"cut","scheduler":"kube-scheduler","sharing":"MIG","compute":"Fair","nodeSelector":{"pool":"cut"},"tolerations":[],"unsupported":"",` +
		`"settings":{},"gpus":0,"currency":"sluice.dev/gpu-milli.cut","guaranteed":0.5,"limit":0.5,"weight":0,"promised":0,"boards":[{"product":"A100","memoryMiB":40960,"replicas":0,"replicaResource":"","profiles":[` +
		`{"name":"1g.5gb","resource":"nvidia.com/mig-1g.5gb","compute":1,"memoryMiB":5120,"price":0.125,"plain":true},` +
		`{"name":"1g.5gb+me","resource":"nvidia.com/mig-1g.5gb.me","compute":1,"memoryMiB":5120,"price":0.125,"plain":false},` +
		`{"name":"3g.20gb","resource":"nvidia.com/mig-3g.20gb","compute":3,"memoryMiB":20480,"price":0.5,"plain":true}]}]}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
