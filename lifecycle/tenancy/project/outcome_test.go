// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

var (
	testTime  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	phaseTime = metav1.NewTime(testTime.AddDate(0, 6, 0))
)

// amounts are amounts of a quota by node pool, or of the pools that share a unit by "".
type amounts map[string]string

func (a amounts) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for pool, amount := range a {
		unit := v1alpha1.ResourceGPUMilli
		if pool != "" {
			unit = v1alpha1.ResourceGPUMilliFor(pool)
		}
		list["requests."+unit] = resource.MustParse(amount)
	}
	return list
}

func newQuota(hard, counted, used amounts) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.QuotaName},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard.list()},
		Status:     corev1.ResourceQuotaStatus{Hard: counted.list(), Used: used.list()},
	}
}

// newCountedQuota returns a quota that is counted.
func newCountedQuota(hard, used amounts) *corev1.ResourceQuota { return newQuota(hard, hard, used) }

func TestBuildStatus(t *testing.T) {
	deleted := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: testTime}}}
	counted := newCountedQuota(amounts{"dgx": "1000"}, nil)
	fault := func(ofQuota bool) []apply.Failure {
		return []apply.Failure{{Policy: "p", AffectsQuota: ofQuota, Err: errors.New("cannot be had")}}
	}
	tests := map[string]struct {
		project     v1alpha1.Project
		outcome     Outcome
		ready       string // reason; True where it is Ready
		quota       string // reason; True where it is Applied, no condition where it is empty
		wantMessage string
	}{
		"governed": {
			outcome: Outcome{Quota: counted},
			ready:   v1alpha1.ReasonReady, quota: v1alpha1.ReasonApplied, wantMessage: "is governed",
		},
		"refused": {
			outcome: Outcome{ClaimError: &tenancy.ClaimError{Reason: tenancy.ReasonNamespaceTaken, Message: "taken"}},
			ready:   tenancy.ReasonNamespaceTaken, wantMessage: "taken",
		},
		"deleted": {
			project: deleted, ready: ReasonDeleting, wantMessage: "waiting for the deletion of namespace",
		},
		"not counted": {
			outcome: Outcome{Quota: newQuota(amounts{"dgx": "2000"}, amounts{"dgx": "1000"}, nil)},
			ready:   v1alpha1.ReasonQuotaNotCounted, quota: v1alpha1.ReasonQuotaNotCounted, wantMessage: "has counted ResourceQuota sluice; the former limits hold until then",
		},
		"no room for what runs there": {
			outcome: Outcome{
				Pools: []input.NodePool{{Name: "dgx", Limit: 1000}}, ExceedsLimit: true, UncountedObserved: true,
				Uncounted: []UncountedPod{{Pod: "a", Pool: "dgx", Uncharged: 1000}, {Pod: "b", Pool: "dgx", Uncharged: 500}},
			},
			ready: v1alpha1.ReasonUncountedPodsExceedLimit, quota: v1alpha1.ReasonUncountedPodsExceedLimit,
			wantMessage: "GPU pods in it, a, b: they hold 1.5 GPUs of node pool dgx, and the project may have 1 GPU there;",
		},
		"a quota that cannot be had": {
			outcome: Outcome{Quota: counted, Failures: fault(true)},
			ready:   ReasonObjectsRefused, quota: ReasonObjectsRefused, wantMessage: "policy p: cannot be had",
		},
		"another object that cannot be had": {
			outcome: Outcome{Quota: counted, Failures: fault(false)},
			ready:   ReasonObjectsRefused, quota: v1alpha1.ReasonApplied, wantMessage: "policy p: cannot be had",
		},
		"a pool that is missing": {
			outcome: Outcome{Quota: counted, MissingPools: []string{"h200", "a100"}},
			ready:   v1alpha1.ReasonNodePoolNotFound, quota: v1alpha1.ReasonApplied, wantMessage: "no node pool h200, a100;",
		},
		"several": {
			outcome: Outcome{Quota: newQuota(amounts{"dgx": "1"}, amounts{"dgx": "2"}, nil), MissingPools: []string{"h200"}},
			ready:   v1alpha1.ReasonMultipleReasons, quota: v1alpha1.ReasonQuotaNotCounted, wantMessage: "no node pool h200;",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.project.Generation = 7
			got := BuildStatus(&tc.project, tc.outcome, metav1.NewTime(testTime))
			if got.Phase != "" || got.ObservedGeneration != 7 {
				t.Errorf("phase %q, which another controller writes, generation %d", got.Phase, got.ObservedGeneration)
			}
			assertCondition(t, got.Conditions, v1alpha1.ConditionReady, tc.ready, v1alpha1.ReasonReady)
			assertCondition(t, got.Conditions, v1alpha1.ConditionQuotaApplied, tc.quota, v1alpha1.ReasonApplied)
			if ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); ready != nil && !strings.Contains(ready.Message, tc.wantMessage) {
				t.Errorf("Ready has message %q, want %q", ready.Message, tc.wantMessage)
			}
			tc.project.Status = got
			if again := BuildStatus(&tc.project, tc.outcome, metav1.Now()); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("the second pass differs: %+v", again)
			}
		})
	}
}

// assertCondition checks that the condition has the reason, is true for one reason alone,
// and speaks of this generation in machine time.
func assertCondition(t *testing.T, conditions []metav1.Condition, kind, reason, reasonIfTrue string) {
	t.Helper()
	got := meta.FindStatusCondition(conditions, kind)
	if (got == nil) != (reason == "") {
		t.Fatalf("%s = %+v, want the reason %q", kind, got, reason)
	}
	if got == nil {
		return
	}
	status := metav1.ConditionFalse
	if reason == reasonIfTrue {
		status = metav1.ConditionTrue
	}
	if got.Status != status || got.Reason != reason || got.ObservedGeneration != 7 || !got.LastTransitionTime.Time.Equal(testTime) {
		t.Errorf("%s = %+v, want %s %s of generation 7, at machine time", kind, got, status, reason)
	}
}

// After a refused claim the conditions of the quotas keep their earlier generation.
func TestClaimErrorPreservesQuotaStatus(t *testing.T) {
	p := &v1alpha1.Project{}
	p.Generation = 7
	p.Status = BuildStatus(p, Outcome{}, phaseTime)
	p.Generation = 8
	got := BuildStatus(p, Outcome{ClaimError: &tenancy.ClaimError{Reason: v1alpha1.ReasonDepartmentNotFound, Message: "gone"}}, phaseTime)
	if c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionQuotaApplied); c == nil || c.ObservedGeneration != 7 {
		t.Errorf("QuotaApplied = %+v, want that of generation 7", c)
	}
}

func TestLongMessagesAreTruncated(t *testing.T) {
	long := strings.Repeat("ü", 40000)
	outcome := Outcome{Failures: []apply.Failure{{Err: errors.New(long)}}}
	got := BuildStatus(&v1alpha1.Project{}, outcome, phaseTime).Conditions[0].Message
	if len(got) > 32768 || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü ...") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}

func TestHasPrecedence(t *testing.T) {
	at := func(name string, created time.Time, holds bool) *v1alpha1.Project {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created)}}
		if holds {
			p.Status.Namespace = &v1alpha1.ProjectNamespace{}
		}
		return p
	}
	createdFor := func(uid string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationCreatedFor: uid}}}
	}
	tests := map[string]struct {
		first, second *v1alpha1.Project
		namespace     *corev1.Namespace
	}{
		"who has it, though younger": {at("b", testTime.Add(time.Hour), true), at("a", testTime, false), nil},
		"the older":                  {at("b", testTime, false), at("a", testTime.Add(time.Hour), false), nil},
		"else by name":               {at("a", testTime, false), at("b", testTime, false), createdFor("")},
		// A project that created the namespace and was interrupted before its status was
		// written has it. Otherwise each of the two would refuse for the other.
		"for whom it was created": {at("b", testTime, false), at("a", testTime, false), createdFor("b")},
		"created for a third":     {at("a", testTime, false), at("b", testTime, false), createdFor("c")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !hasPrecedence(tc.first, tc.second, tc.namespace) || hasPrecedence(tc.second, tc.first, tc.namespace) {
				t.Errorf("%s does not come before %s, or both come first", tc.first.Name, tc.second.Name)
			}
		})
	}
}

// formatUsage is a GPUUse in words, as it is printed.
func formatUsage(u v1alpha1.GPUUsage) string {
	return fmt.Sprintf("%s of %s, %s guaranteed, %s beyond, %s pending", &u.Allocated, &u.Limit, &u.Guaranteed, &u.OverQuota, &u.Pending)
}

func TestComputeUsage(t *testing.T) {
	schedulers := map[string]v1alpha1.Scheduler{
		"dgx": v1alpha1.SchedulerKube, "old": v1alpha1.SchedulerKube, "kai-a": v1alpha1.SchedulerKAI, "kai-b": v1alpha1.SchedulerKAI,
		"queue-a": v1alpha1.SchedulerKueue, "queue-b": v1alpha1.SchedulerKueue,
	}
	has := func(pool, guaranteed, limit string) v1alpha1.PoolQuota {
		return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
	}
	tests := map[string]struct {
		pools []v1alpha1.PoolQuota
		quota *corev1.ResourceQuota
		all   string
		each  map[string]string
	}{
		"nothing": {all: "2 of 0, 0 guaranteed, 2 beyond, 250m pending"},
		"not counted yet": {
			pools: []v1alpha1.PoolQuota{has("dgx", "500m", "1")},
			all:   "2 of 1, 500m guaranteed, 1500m beyond, 250m pending",
		},
		"two pools, of which one is counted": {
			pools: []v1alpha1.PoolQuota{has("dgx", "500m", "1"), has("old", "0.25", "2.5")},
			quota: newCountedQuota(amounts{"dgx": "1000"}, amounts{"dgx": "125"}),
			all:   "2 of 3500m, 750m guaranteed, 1250m beyond, 250m pending",
			each:  map[string]string{"dgx": "1 of 1, 500m guaranteed, 500m beyond, 250m pending"},
		},
		"one that is missing counts in the quota alone": {
			pools: []v1alpha1.PoolQuota{has("gone", "1", "2")},
			all:   "2 of 2, 1 guaranteed, 1 beyond, 250m pending",
		},
		"two that are counted together": {
			pools: []v1alpha1.PoolQuota{has("dgx", "0", "3"), has("queue-a", "0", "1"), has("queue-b", "0", "2")},
			quota: newCountedQuota(amounts{"dgx": "3000", "": "3000"}, amounts{"dgx": "2000", "": "700"}),
			all:   "2 of 6, 0 guaranteed, 2 beyond, 250m pending",
			each: map[string]string{
				"dgx":     "1 of 3, 0 guaranteed, 1 beyond, 250m pending",
				"queue-a": "0 of 1, 0 guaranteed, 0 beyond, 0 pending", "queue-b": "1 of 2, 0 guaranteed, 1 beyond, 0 pending",
			},
		},
		// Protects invariant 11: KAI-Scheduler counts for itself, and its projects have no quota of GPUs.
		"KAI-Scheduler's have no quota": {
			pools: []v1alpha1.PoolQuota{has("kai-a", "500m", "1"), has("kai-b", "500m", "2"), has("dgx", "0", "3")},
			quota: &corev1.ResourceQuota{},
			all:   "2 of 6, 1 guaranteed, 1 beyond, 250m pending",
			each: map[string]string{
				"kai-a": "0 of 1, 500m guaranteed, 0 beyond, 0 pending", "kai-b": "1 of 2, 500m guaranteed, 500m beyond, 0 pending",
			},
		},
		"usage above the guarantee of one pool is over quota although another pool is free": {
			pools: []v1alpha1.PoolQuota{has("dgx", "0", "3"), has("old", "5", "5")},
			quota: newCountedQuota(amounts{"dgx": "3000", "old": "5000"}, amounts{"dgx": "1000", "old": "0"}),
			all:   "2 of 8, 5 guaranteed, 1 beyond, 250m pending",
			each: map[string]string{
				"dgx": "1 of 3, 0 guaranteed, 1 beyond, 250m pending", "old": "0 of 5, 5 guaranteed, 0 beyond, 0 pending",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: tc.pools}}
			p.Status.GPU = v1alpha1.GPUUsage{Allocated: resource.MustParse("2"), Pending: resource.MustParse("250m")}
			p.Status.NodePools = []v1alpha1.PoolUsage{
				{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse("1"), Pending: resource.MustParse("250m")}},
				{Name: "kai-b", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse("1")}},
				{Name: "queue-b", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse("1")}},
			}
			pools := input.NewProjectPools(p, func(name string) *v1alpha1.NodePool {
				if schedulers[name] == "" {
					return nil
				}
				return &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{Scheduler: schedulers[name]}}
			})
			all, each := ComputeUsage(p, pools, tc.quota, []UncountedPod{{Pool: "dgx", Uncharged: 250}, {Pool: "dgx", Uncharged: 500}, {}})
			if got := formatUsage(all); got != tc.all {
				t.Errorf("all = %s, want %s", got, tc.all)
			}
			var got map[string]string
			for _, use := range each {
				if got == nil {
					got = map[string]string{}
				}
				got[use.Name] = formatUsage(use.GPUUsage)
				if want := map[string]int64{"dgx": 750}[use.Name]; use.Uncounted.MilliValue() != want {
					t.Errorf("%s: %s uncounted, want %dm", use.Name, &use.Uncounted, want)
				}
			}
			if diff := cmp.Diff(tc.each, got); diff != "" {
				t.Errorf("each (-want +got)\n%s", diff)
			}
		})
	}
}

func TestOnlyUsageChanged(t *testing.T) {
	before := newCountedQuota(amounts{"dgx": "1000"}, amounts{"dgx": "0"})
	change := func(f func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		q := before.DeepCopy()
		f(q)
		return q
	}
	more := corev1.ResourceList{"requests.sluice.dev/gpu-milli.dgx": resource.MustParse("2000")}
	tests := map[string]struct {
		after *corev1.ResourceQuota
		want  bool
	}{
		"used":    {change(func(q *corev1.ResourceQuota) { q.Status.Used, q.ResourceVersion = more, "2" }), true},
		"spec":    {change(func(q *corev1.ResourceQuota) { q.Spec.Hard = more }), false},
		"counted": {change(func(q *corev1.ResourceQuota) { q.Status.Hard = more }), false},
		"labels":  {change(func(q *corev1.ResourceQuota) { q.Labels = map[string]string{"a": "b"} }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := onlyUsageChanged(before, tc.after); got != tc.want {
				t.Errorf("usedAlone = %v, want %v", got, tc.want)
			}
		})
	}
	if onlyUsageChanged(&corev1.LimitRange{}, &corev1.LimitRange{}) {
		t.Error("another kind has no use")
	}
}

// Guards invariant 11 of the design: a quota with which the API server does not hold the limits is named, until it is gone.
func TestOtherQuotasAreReported(t *testing.T) {
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
	report := func(names ...string) *metav1.Condition {
		project.Status = BuildStatus(project, Outcome{OtherQuotas: names}, metav1.NewTime(testTime))
		return meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionOtherQuotas)
	}
	if c := report(); c != nil {
		t.Errorf("without another quota: %+v", c)
	}
	if c := report("team", "compute"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonQuotasFound ||
		!strings.Contains(c.Message, "namespace thesis has other ResourceQuotas than sluice: team, compute.") {
		t.Errorf("with two: %+v", c)
	}
	if c := report(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNoOtherQuotas {
		t.Errorf("after their deletion: %+v", c)
	}
}

// Guards invariant 11 of the design: an expired project says what its schedulers cannot do, until it is renewed.
func TestExpiredProjectSaysWhatItsSchedulersCannotDo(t *testing.T) {
	project := &v1alpha1.Project{}
	outcome := Outcome{Pools: []input.NodePool{
		{Name: "dgx", Scheduler: v1alpha1.SchedulerKube},
		{Name: "batch", Scheduler: v1alpha1.SchedulerKueue},
		{Name: "shared", Scheduler: v1alpha1.SchedulerKAI},
		{Name: "old", Scheduler: v1alpha1.SchedulerKube},
	}}
	unsupported := func() *metav1.Condition {
		project.Status = BuildStatus(project, outcome, metav1.NewTime(testTime))
		return meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUnsupported)
	}
	if got := unsupported(); got != nil {
		t.Errorf("an open project has %+v", got)
	}
	project.Status.ClosedAt = &phaseTime
	got := unsupported()
	if got == nil || got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonClosedInPart {
		t.Fatalf("a closed project has %+v", got)
	}
	want := "kai, node pool shared: pods that replace others wait until the project is renewed, and other projects can reclaim GPUs from " +
		"its preemptible pods; kube-scheduler, node pool dgx, old: pods that were pending when the project expired can still start; " +
		"kueue, node pool batch: pods that replace others wait until the project is renewed, except for those of workloads that " +
		"Kueue admits as a whole, such as Jobs"
	if diff := cmp.Diff(want, got.Message); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	project.Status.Phase = v1alpha1.ProjectSuspended // its workloads are stopped, and nothing starts
	if got := unsupported(); got.Status != metav1.ConditionFalse {
		t.Errorf("a suspended project has %+v", got)
	}
	project.Status.Phase, project.Status.ClosedAt = v1alpha1.ProjectActive, nil
	if got := unsupported(); got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonSupported {
		t.Errorf("a renewed project has %+v", got)
	}
}

// Policies render other queues for a closed project.
func TestClosedProjectIsReconciledAgain(t *testing.T) {
	change := func(to v1alpha1.ProjectStatus) bool {
		from := v1alpha1.Project{Status: v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive, PoolSummary: "dgx 1/2"}}
		return closedChanged.Update(event.UpdateEvent{ObjectOld: &from, ObjectNew: &v1alpha1.Project{Status: to}})
	}
	for name, tc := range map[string]struct {
		status v1alpha1.ProjectStatus
		want   bool
	}{
		"closed":                   {v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive, ClosedAt: &phaseTime}, true},
		"expiring":                 {v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectExpiring}, true},
		"another use":              {v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive, PoolSummary: "dgx 2/2"}, false},
		"without a recorded phase": {v1alpha1.ProjectStatus{}, false},
	} {
		if got := change(tc.status); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// With kube-scheduler the guarantee frees no GPUs for training: the condition appears where a project with a guarantee runs some.
func TestTrainingInGuarantee(t *testing.T) {
	for name, tc := range map[string]struct {
		scheduler           v1alpha1.Scheduler
		guaranteed          workload.Milli
		all, nonPreemptible string
		want                bool
	}{
		"training":          {v1alpha1.SchedulerKube, 1000, "2000", "1000", true},
		"notebooks only":    {v1alpha1.SchedulerKube, 1000, "1000", "1000", false},
		"without guarantee": {v1alpha1.SchedulerKube, 0, "1000", "0", false},
		"with Kueue":        {v1alpha1.SchedulerKueue, 1000, "2000", "0", false},
	} {
		pool := input.NodePool{
			Name: "dgx", Scheduler: tc.scheduler, Guaranteed: tc.guaranteed,
			QuotaResource: v1alpha1.ResourceGPUMilliFor("dgx"), GuaranteedResource: v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor("dgx")),
		}
		quota := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{"requests.sluice.dev/gpu-milli.dgx": resource.MustParse("4000"), "requests.sluice.dev/guaranteed-milli.dgx": resource.MustParse("1000")},
			Used: corev1.ResourceList{
				"requests.sluice.dev/gpu-milli.dgx": resource.MustParse(tc.all), "requests.sluice.dev/guaranteed-milli.dgx": resource.MustParse(tc.nonPreemptible),
			},
		}}
		conditions := unsupportedConditions(&v1alpha1.Project{}, Outcome{Pools: []input.NodePool{pool}, Quota: quota})
		if got := len(conditions) == 1 && conditions[0].Reason == v1alpha1.ReasonTrainingGuaranteeUnsupported; got != tc.want {
			t.Errorf("%s: %+v", name, conditions)
		}
	}
}
