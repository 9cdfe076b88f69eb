// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/input"
)

func TestNewProjectLimits(t *testing.T) {
	long, short := period.MustParseDuration("48h"), period.MustParseDuration("24h")
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 2, Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "vision",
		}},
		Spec: v1alpha1.ProjectSpec{
			Department: "students",
			Workloads:  map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.WorkloadInteractive: {MaxRuntime: &short}},
			Objects:    v1alpha1.ObjectLimits{"pods": 150, "services": 200, "count/leases.coordination.k8s.io": 5},
		},
	}
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{
		Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.AnyWorkload: {MaxRuntime: &long}},
		Objects:   v1alpha1.ObjectLimits{"pods": 200, "count/jobs.batch": 2000},
		Activity:  v1alpha1.ActivityTerms{Percent: 20},
	}}
	objects := v1alpha1.DefaultObjectLimits()
	objects["pods"], objects["count/jobs.batch"], objects["count/leases.coordination.k8s.io"] = 150, 2000, 5
	refused := []input.NodeLabel{{Key: "pool", Value: "dgx"}}
	want := input.Project{
		Name: "thesis", Namespace: "thesis", Department: "students",
		Labels: map[string]string{}, Annotations: map[string]string{"team": "vision"},
		Phase: v1alpha1.ProjectActive, Owners: []string{},
		Limits: map[v1alpha1.WorkloadType]input.Limits{
			"train":       {MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600},
			"interactive": {MaxRuntime: "24h", MaxRuntimeSeconds: 24 * 3600},
			"inference":   {MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600},
		},
		Activity: "20%/5m", Objects: objects, RefusedNodes: refused, OpenPools: []input.OpenPool{}, UnlistedResources: map[string]string{},
		PodSecurity: v1alpha1.PodSecurityBaseline,
	}
	if diff := cmp.Diff(want, input.NewProject(project, department, refused)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if withoutDepartment := input.NewProject(project, nil, nil); withoutDepartment.Activity != "5%/5m" {
		t.Errorf("without a department the activity is %q", withoutDepartment.Activity)
	}
}

// A pool accepts pods once a quota counts it, also while a changed quota is not counted yet. Guards invariant 3 of the
// design: without a quota in force, nothing would limit a pod.
func TestQuotaApplied(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: status, Reason: reason}}
	}
	limited := v1alpha1.GPUUsage{Limit: resource.MustParse("1")}
	dgx := []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: limited}}
	released := []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse("1")}}}
	for name, tc := range map[string]struct {
		status v1alpha1.ProjectStatus
		want   bool
	}{
		"a new project":       {},
		"in force":            {v1alpha1.ProjectStatus{Conditions: condition(metav1.ConditionTrue, v1alpha1.ReasonApplied), NodePools: dgx}, true},
		"a changed quota":     {v1alpha1.ProjectStatus{Conditions: condition(metav1.ConditionFalse, v1alpha1.ReasonQuotaNotCounted), NodePools: dgx}, true},
		"a pool not counted":  {v1alpha1.ProjectStatus{Conditions: condition(metav1.ConditionTrue, v1alpha1.ReasonApplied), NodePools: []v1alpha1.PoolUsage{{Name: "mig", GPUUsage: limited}}}, false},
		"one no longer":       {v1alpha1.ProjectStatus{Conditions: condition(metav1.ConditionFalse, v1alpha1.ReasonQuotaNotCounted), NodePools: released}, false},
		"a policy that fails": {v1alpha1.ProjectStatus{Conditions: condition(metav1.ConditionFalse, "ObjectsRefused"), NodePools: dgx}, false},
		"no condition":        {v1alpha1.ProjectStatus{NodePools: dgx}, false},
	} {
		t.Run(name, func(t *testing.T) {
			project := &v1alpha1.Project{Status: tc.status}
			project.Spec.NodePools = []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("1")}}}
			pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}}
			if got := input.NewProjectPools(project, func(string) *v1alpha1.NodePool { return pool }); got[0].QuotaApplied != tc.want {
				t.Errorf("the quota is applied: %t", got[0].QuotaApplied)
			}
		})
	}
}

// Pods without GPUs avoid the nodes of the pools that refuse them, whichever project has these pools.
func TestRefusedNodes(t *testing.T) {
	pool := func(name string, cpuPods v1alpha1.CPUPods) v1alpha1.NodePool {
		return v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"pool": name}, CPUPods: cpuPods}}
	}
	pools := []v1alpha1.NodePool{pool("mig", v1alpha1.CPUPodsRefuse), pool("old", ""), pool("open", v1alpha1.CPUPodsAllow), pool("dgx", v1alpha1.CPUPodsRefuse)}
	if diff := cmp.Diff([]input.NodeLabel{{Key: "pool", Value: "dgx"}, {Key: "pool", Value: "mig"}}, input.RefusedNodes(pools)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// New GPU pods are refused from the request to delete the project, before lifecycle has observed it.
func TestNewProjectIsDeletingAtOnce(t *testing.T) {
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", DeletionTimestamp: &metav1.Time{Time: time.Unix(1e9, 0)}},
		Status:     v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive},
	}
	if got := input.NewProject(project, nil, nil); got.Phase != v1alpha1.ProjectDeleting || !got.Closed || got.ClosedSince != "" {
		t.Errorf("phase %s, closed %v since %q", got.Phase, got.Closed, got.ClosedSince)
	}
}

// The time is that of the department, where a project expires at the end of a day.
func TestNewProjectIsClosed(t *testing.T) {
	closed := metav1.NewTime(time.Date(2026, 9, 30, 22, 0, 0, 0, time.UTC))
	project := &v1alpha1.Project{
		Spec:   v1alpha1.ProjectSpec{Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna Beispiel"}}}},
		Status: v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectExpired, ClosedAt: &closed},
	}
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}}}
	got := input.NewProject(project, department, nil)
	if !got.Closed || got.ClosedSince != "2026-10-01T00:00:00+02:00" || !slices.Equal(got.Owners, []string{"Anna Beispiel"}) {
		t.Errorf("closed %v since %q, owners %v", got.Closed, got.ClosedSince, got.Owners)
	}
	project.Status.Phase, project.Status.ClosedAt = v1alpha1.ProjectPendingDeletion, nil
	if got := input.NewProject(project, department, nil); got.Closed || got.ClosedSince != "" {
		t.Errorf("a project that awaits its deletion is closed since %q", got.ClosedSince)
	}
}

func TestNewProjectPoolsKeepOrder(t *testing.T) {
	pools := map[string]*v1alpha1.NodePool{
		"mig": {
			ObjectMeta: metav1.ObjectMeta{Name: "mig"},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingMIG, NodeSelector: map[string]string{"pool": "mig"}, Resources: []v1alpha1.GPUResource{{Name: "nvidia.com/a100", GPUs: resource.MustParse("0.5")}}},
			Status: v1alpha1.NodePoolStatus{Products: []v1alpha1.GPUModel{{
				Name: "A100", MemoryMiB: 40960, MIGProfiles: []v1alpha1.MIGProfile{"3g.20gb", "1g.5gb+me", "1g.5gb", "broken"},
			}}, NodeKinds: []v1alpha1.NodeKind{{Product: "A100", GPUs: 8, PerGPU: corev1.ResourceList{
				"cpu": resource.MustParse("31875m"), "memory": resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("2Mi"),
			}}}},
		},
		"kai": {
			ObjectMeta: metav1.ObjectMeta{Name: "kai"},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKAI, ResourceShares: v1alpha1.ResourceShares{NonPreemptible: "0.9", Preemptible: "Unlimited"}},
			Status: v1alpha1.NodePoolStatus{GPUs: 16, Settings: map[string]string{"queueLabelKey": "team"}, Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSchedulerMissing, Message: "not yet",
			}}},
		},
	}
	project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: []v1alpha1.PoolQuota{
		{Name: "kai", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}},
		{Name: "gone"},
		{Name: "mig", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("500m"), Limit: resource.MustParse("1.5"), OverQuotaWeight: new(int32)}},
	}}}
	got, err := json.Marshal(input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[` +
		`{"name":"kai","scheduler":"kai","sharing":"None","compute":"Fair","burst":"Refuse","driverReservePercent":3,"driverLimits":false,"nodeSelector":{},"topologyKeys":[],"tolerations":[],"unsupported":"not yet",` +
		`"settings":{"queueLabelKey":"team"},"gpus":16,"quotaResource":"sluice.dev/gpu-milli","guaranteedResource":"sluice.dev/guaranteed-milli","quotaApplied":false,"guaranteed":0,"limit":2,"weight":1,"subscribed":0,"products":[],` +
		`"nodeKinds":[{"product":"","gpus":0,"perGPU":{"cpu":12000,"ephemeral-storage":53687091200,"memory":85899345920}}],"resourceFactors":{"nonPreemptible":0.9,"preemptible":0},"resources":[]},` +
		`{"name":"mig","scheduler":"kube-scheduler","sharing":"MIG","compute":"Fair","burst":"Refuse","driverReservePercent":3,"driverLimits":false,"nodeSelector":{"pool":"mig"},"topologyKeys":[],"tolerations":[],"unsupported":"",` +
		`"settings":{},"gpus":0,"quotaResource":"sluice.dev/gpu-milli.mig","guaranteedResource":"sluice.dev/guaranteed-milli.mig","quotaApplied":false,"guaranteed":0.5,"limit":0.5,"weight":0,"subscribed":0,"products":[{"name":"A100","memoryMiB":40960,"replicas":0,"replicaResource":"","profiles":[` +
		`{"name":"1g.5gb","resource":"nvidia.com/mig-1g.5gb","compute":1,"memoryMiB":5120,"quotaCharge":0.125,"plain":true},` +
		`{"name":"1g.5gb+me","resource":"nvidia.com/mig-1g.5gb.me","compute":1,"memoryMiB":5120,"quotaCharge":0.125,"plain":false},` +
		`{"name":"3g.20gb","resource":"nvidia.com/mig-3g.20gb","compute":3,"memoryMiB":20480,"quotaCharge":0.5,"plain":true}]}],` +
		`"nodeKinds":[{"product":"A100","gpus":8,"perGPU":{"cpu":31875,"hugepages-2Mi":2097152,"memory":1073741824}}],"resourceFactors":{"nonPreemptible":1,"preemptible":1.5},"resources":[{"name":"nvidia.com/a100","gpus":0.5}]}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnlistedResources(t *testing.T) {
	pool := func(name string, offered ...string) v1alpha1.NodePool {
		p := v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, resource := range offered {
			p.Status.UnlistedResources = append(p.Status.UnlistedResources, v1alpha1.UnlistedResource{Name: resource})
		}
		return p
	}
	pools := []v1alpha1.NodePool{pool("b", "nvidia.com/a100", "rdma/hca"), pool("a", "nvidia.com/a100"), pool("c", "example.com/gpu", "amd.com/gpu")}
	pools[1].Spec.Resources = []v1alpha1.GPUResource{{Name: "amd.com/gpu", GPUs: resource.MustParse("1")}}
	// What was listed since lifecycle wrote the status counts at once.
	units := workload.NewListedResources(pools, []v1alpha1.ResourcePattern{"rdma/*"}).Units()
	want := map[string]string{"nvidia.com/a100": "a", "example.com/gpu": "c"}
	if diff := cmp.Diff(want, input.UnlistedResources(pools, units)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpenPools(t *testing.T) {
	taint := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	pool := func(name string, cpuPods v1alpha1.CPUPods, nodes int32, taints ...corev1.Taint) v1alpha1.NodePool {
		return v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"pool": name}, CPUPods: cpuPods},
			Status:     v1alpha1.NodePoolStatus{Nodes: nodes, Taints: taints},
		}
	}
	got := input.OpenPools([]v1alpha1.NodePool{
		pool("tainted", v1alpha1.CPUPodsAllow, 2, taint), pool("refusing", v1alpha1.CPUPodsRefuse, 2), pool("empty", v1alpha1.CPUPodsAllow, 0), pool("plain", "", 1),
	})
	want := []input.OpenPool{
		{NodeSelector: map[string]string{"pool": "plain"}, Taints: []corev1.Taint{}},
		{NodeSelector: map[string]string{"pool": "tainted"}, Taints: []corev1.Taint{taint}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The boards' memory is what NVML reports of them, in MiB.
func TestProfileChargeIsShareOfMemorySlices(t *testing.T) {
	boards := map[string]struct {
		memoryMiB int64
		prices    map[v1alpha1.MIGProfile]workload.Milli
	}{
		"A100 40 GB": {40960, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 125, "1g.5gb+me": 125, "1g.10gb": 250, "2g.10gb": 250, "3g.20gb": 500, "4g.20gb": 500, "7g.40gb": 1000}},
		"H100 80 GB": {81559, map[v1alpha1.MIGProfile]workload.Milli{"1g.10gb": 125, "1g.10gb-me": 125, "1g.20gb": 250, "2g.20gb": 250, "3g.40gb": 500, "4g.40gb": 500, "7g.80gb": 1000}},
		"H100 NVL":   {95830, map[v1alpha1.MIGProfile]workload.Milli{"1g.12gb": 125, "1g.24gb": 250, "2g.24gb": 250, "3g.47gb": 500, "4g.47gb": 500, "7g.94gb": 1000}},
		"H200":       {143771, map[v1alpha1.MIGProfile]workload.Milli{"1g.18gb": 125, "1g.35gb": 250, "2g.35gb": 250, "3g.71gb": 500, "4g.71gb": 500, "7g.141gb": 1000}},
		"B200":       {183359, map[v1alpha1.MIGProfile]workload.Milli{"1g.23gb": 125, "1g.45gb": 250, "2g.45gb": 250, "3g.90gb": 500, "4g.90gb": 500, "7g.180gb": 1000}},
		"A30":        {24576, map[v1alpha1.MIGProfile]workload.Milli{"1g.6gb": 250, "2g.12gb": 500, "4g.24gb": 1000}},
		"not known":  {0, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 1000}},
		"nonsense":   {1, map[v1alpha1.MIGProfile]workload.Milli{"1g.9999gb": 1000, "no profile": 1000, "": 1000}},
		"enormous":   {1 << 60, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 125}},
	}
	for name, board := range boards {
		for profile, want := range board.prices {
			if got := input.ProfileCharge(profile, board.memoryMiB); got != want {
				t.Errorf("%s: a slice %s costs %s of a GPU, want %s", name, profile, got, want)
			}
		}
	}
}

// poolQuotas are quotas by pool: "dgx=4/8" is 4 guaranteed and 8 at most.
func poolQuotas(texts ...string) []v1alpha1.PoolQuota {
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

func projectIn(department string, pools ...string) v1alpha1.Project {
	return v1alpha1.Project{Spec: v1alpha1.ProjectSpec{Department: department, NodePools: poolQuotas(pools...)}}
}

func TestNewDepartmentPoolsCommitted(t *testing.T) {
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec:       v1alpha1.DepartmentSpec{NodePools: poolQuotas("dgx=8/16", "gone=1/1", "mig=2/2")},
	}
	projects := []v1alpha1.Project{
		projectIn("students", "dgx=4/8", "other=9/9"), projectIn("students", "dgx=500m/8", "mig=3/3"), projectIn("chemistry", "dgx=7/8"), projectIn("students"),
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
	for _, p := range input.NewDepartmentPools(department, projects, func(name string) *v1alpha1.NodePool { return pools[name] }) {
		got = append(got, figures{p.Name, p.Guaranteed, p.Limit, p.Subscribed, p.GPUs, p.Weight})
	}
	want := []figures{{"dgx", 8000, 16000, 4500, 16, 1}, {"mig", 2000, 2000, 3000, 0, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a department's pools (-want +got):\n%s", diff)
	}
	other := v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: poolQuotas("mig=1/1", "dgx=2500m/4")}}
	p := input.NewNodePool(pools["dgx"], []v1alpha1.Department{*department, other}, nil)
	if diff := cmp.Diff(figures{"dgx", 0, 0, 10500, 16, 0}, figures{p.Name, p.Guaranteed, p.Limit, p.Subscribed, p.GPUs, p.Weight}); diff != "" {
		t.Errorf("the node pool (-want +got):\n%s", diff)
	}
}

func TestPoolWithUnmetSchedulerRequirementsIsUnsupported(t *testing.T) {
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
		"a share without limits":   {[]metav1.Condition{condition(v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonMemoryIsolation)}, ""},
		"a field without effect":   {[]metav1.Condition{condition(v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonFieldsWithoutEffect)}, ""},
		"requirements are missing": {[]metav1.Condition{supported, missing}, "RequirementsMissing!"},
		"both":                     {[]metav1.Condition{missing, unsupported}, "SchedulerMissing!"},
		"a setting is advised":     {[]metav1.Condition{condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonRecommendationsMissing)}, ""},
		"GPUs are not known":       {[]metav1.Condition{condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonGPUCountUnknown)}, ""},
		"nobody can tell":          {[]metav1.Condition{condition(v1alpha1.ConditionRequirementsMet, metav1.ConditionUnknown, v1alpha1.ReasonRequirementsMissing)}, ""},
	} {
		pool := &v1alpha1.NodePool{Status: v1alpha1.NodePoolStatus{Conditions: tt.conditions}}
		if got := input.NewNodePool(pool, nil, nil).Unsupported; got != tt.want {
			t.Errorf("%s: unsupported %q, want %q", name, got, tt.want)
		}
	}
}

func TestDriverLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		sharing v1alpha1.Sharing
		version string
		use     v1alpha1.DriverMemoryLimits
		want    bool
	}{
		"the first driver that has them": {v1alpha1.SharingTimeSlicing, "615.12.03", "", true},
		"a newer one, for KAI":           {v1alpha1.SharingKAI, "1000.1", v1alpha1.DriverMemoryLimitsAuto, true},
		"an older driver":                {v1alpha1.SharingTimeSlicing, "610.99", "", false},
		"an unknown driver":              {v1alpha1.SharingTimeSlicing, "", "", false},
		"a version that is none":         {v1alpha1.SharingTimeSlicing, "r615.1", "", false},
		"a version that is too large":    {v1alpha1.SharingTimeSlicing, "99999999999999999999.1", "", false},
		"a negative version":             {v1alpha1.SharingTimeSlicing, "-615.1", "", false},
		"MPS limits its clients itself":  {v1alpha1.SharingMPS, "615.1", "", false},
		"a MIG instance has its memory":  {v1alpha1.SharingMIG, "615.1", "", false},
		"administrators do not use them": {v1alpha1.SharingTimeSlicing, "615.1", v1alpha1.DriverMemoryLimitsNever, false},
	} {
		pool := &v1alpha1.NodePool{
			Spec:   v1alpha1.NodePoolSpec{Sharing: tt.sharing, DriverMemoryLimits: tt.use},
			Status: v1alpha1.NodePoolStatus{DriverVersion: tt.version},
		}
		if got := input.NewNodePool(pool, nil, nil).DriverLimits; got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestEffectivePodSecurityIsTheStricter(t *testing.T) {
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
		if got := input.EffectivePodSecurity(project, department); got != tt.want {
			t.Errorf("project %q in department %q: %s, want %s", tt.project, tt.department, got, tt.want)
		}
	}
	if got := input.EffectivePodSecurity(&v1alpha1.Project{Spec: v1alpha1.ProjectSpec{PodSecurity: "privileged"}}, nil); got != v1alpha1.PodSecurityBaseline {
		t.Errorf("without a department: %s", got)
	}
}

func TestResourceQuotasAreQuantitiesOrOmitted(t *testing.T) {
	cpu, memory := resource.MustParse("1500m"), resource.MustParse("512Gi")
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Resources: v1alpha1.ResourceQuota{CPU: &cpu, Memory: &memory}}}
	told := input.NewDepartment(department)
	for want, resources := range map[string]input.Resources{
		`{"cpu":"1500m","memory":"512Gi"}`: told.Resources,
		`{}`:                               input.NewProject(&v1alpha1.Project{}, department, nil).Resources,
	} {
		if got, err := json.Marshal(resources); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if told.Oversubscription != v1alpha1.OversubscriptionDeny {
		t.Errorf("oversubscription is %q where nothing is said, want Refuse", told.Oversubscription)
	}
}
