// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/facts"
)

// quotas are quotas by pool: "dgx=4/8" is 4 guaranteed and 8 at most.
func quotas(texts ...string) []v1alpha1.PoolQuota {
	var all []v1alpha1.PoolQuota
	for _, text := range texts {
		name, figures, _ := strings.Cut(text, "=")
		guaranteed, limit, _ := strings.Cut(figures, "/")
		all = append(all, v1alpha1.PoolQuota{Name: name, GPU: v1alpha1.GPUQuota{
			Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit),
		}})
	}
	return all
}

func in(department string, pools ...string) v1alpha1.Project {
	return v1alpha1.Project{Spec: v1alpha1.ProjectSpec{Department: department, NodePools: quotas(pools...)}}
}

func TestDepartmentsKnowWhatTheyPromised(t *testing.T) {
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec:       v1alpha1.DepartmentSpec{NodePools: quotas("dgx=8/16", "gone=1/1", "mig=2/2")},
	}
	projects := []v1alpha1.Project{
		in("students", "dgx=4/8", "other=9/9"), in("students", "dgx=500m/8", "mig=3/3"), in("chemistry", "dgx=7/8"), in("students"),
	}
	pools := map[string]*v1alpha1.NodePool{
		"dgx": {ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 16}},
		"mig": {ObjectMeta: metav1.ObjectMeta{Name: "mig"}},
	}
	type figures struct {
		Name                        string
		Guaranteed, Limit, Promised workload.Milli
		GPUs, Weight                int32
	}
	var got []figures
	for _, p := range facts.OfDepartmentPools(department, projects, func(name string) *v1alpha1.NodePool { return pools[name] }) {
		got = append(got, figures{p.Name, p.Guaranteed, p.Limit, p.Promised, p.GPUs, p.Weight})
	}
	want := []figures{{"dgx", 8000, 16000, 4500, 16, 1}, {"mig", 2000, 2000, 3000, 0, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a department's pools (-want +got):\n%s", diff)
	}
	other := v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: quotas("mig=1/1", "dgx=2500m/4")}}
	p := facts.OfNodePool(pools["dgx"], []v1alpha1.Department{*department, other}, nil)
	if diff := cmp.Diff(figures{"dgx", 0, 0, 10500, 16, 0}, figures{p.Name, p.Guaranteed, p.Limit, p.Promised, p.GPUs, p.Weight}); diff != "" {
		t.Errorf("the node pool (-want +got):\n%s", diff)
	}
}

func TestAPoolWithoutWhatItsSchedulerNeedsTakesNoPods(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: reason + "!"}
	}
	supported := condition(v1alpha1.ConditionUnsupported, metav1.ConditionFalse, v1alpha1.ReasonSupported)
	unsupported := condition(v1alpha1.ConditionUnsupported, metav1.ConditionTrue, "SchedulerMissing")
	missing := condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonRequirementsMissing)
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"nothing said yet":         {nil, ""},
		"all is there":             {[]metav1.Condition{supported, condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionTrue, "RequirementsMet")}, ""},
		"unsupported":              {[]metav1.Condition{unsupported}, "SchedulerMissing!"},
		"requirements are missing": {[]metav1.Condition{supported, missing}, "RequirementsMissing!"},
		"both":                     {[]metav1.Condition{missing, unsupported}, "SchedulerMissing!"},
		"GPUs are not known":       {[]metav1.Condition{condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonGPUsUnknown)}, ""},
		"nobody can tell":          {[]metav1.Condition{condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionUnknown, v1alpha1.ReasonRequirementsMissing)}, ""},
	} {
		pool := &v1alpha1.NodePool{Status: v1alpha1.NodePoolStatus{Conditions: tt.conditions}}
		if got := facts.OfNodePool(pool, nil, nil).Unsupported; got != tt.want {
			t.Errorf("%s: unsupported %q, want %q", name, got, tt.want)
		}
	}
}

func TestTheStricterLevelOfPodSecurityHolds(t *testing.T) {
	for _, tt := range []struct{ project, department, want v1alpha1.PodSecurity }{
		{"", "", "baseline"},
		{"privileged", "", "baseline"},
		{"restricted", "", "restricted"},
		{"", "privileged", "privileged"},
		{"privileged", "privileged", "privileged"},
		{"baseline", "privileged", "baseline"},
		{"", "restricted", "restricted"},
		{"baseline", "restricted", "restricted"},
		{"nonsense", "nonsense", "baseline"},
	} {
		project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{PodSecurity: tt.project}}
		department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{PodSecurity: tt.department}}
		if got := facts.PodSecurity(project, department); got != tt.want {
			t.Errorf("project %q in department %q: %s, want %s", tt.project, tt.department, got, tt.want)
		}
	}
	if got := facts.PodSecurity(&v1alpha1.Project{Spec: v1alpha1.ProjectSpec{PodSecurity: "privileged"}}, nil); got != v1alpha1.PodSecurityBaseline {
		t.Errorf("without a department: %s", got)
	}
}

func TestQuotasOfCPUAndMemoryAreQuantitiesOrLeftOut(t *testing.T) {
	cpu, memory := resource.MustParse("1500m"), resource.MustParse("512Gi")
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Resources: v1alpha1.ResourceQuota{CPU: &cpu, Memory: &memory}}}
	told := facts.OfDepartment(department)
	for want, resources := range map[string]facts.Resources{
		`{"cpu":"1500m","memory":"512Gi"}`: told.Resources,
		`{}`:                               facts.OfProject(&v1alpha1.Project{}, department).Resources,
	} {
		if got, err := json.Marshal(resources); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if told.Oversubscription != v1alpha1.OversubscriptionRefuse {
		t.Errorf("oversubscription is %q where nothing is said, want Refuse", told.Oversubscription)
	}
}
