// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// syncedInformer is an informer whose store the test fills.
type syncedInformer struct{ toolscache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }

// storedObjects are the informers of a cache, by the type of their objects.
type storedObjects map[reflect.Type]syncedInformer

func newStoredObjects(t *testing.T, objects ...client.Object) storedObjects {
	t.Helper()
	stored := storedObjects{}
	for _, object := range objects {
		informer, err := stored.GetInformer(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
		if err := informer.(syncedInformer).GetStore().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	return stored
}

func (s storedObjects) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind := reflect.TypeOf(object)
	if _, ok := s[kind]; !ok {
		s[kind] = syncedInformer{toolscache.NewSharedIndexInformer(nil, object.(runtime.Object), 0, toolscache.Indexers{})}
	}
	return s[kind], nil
}

// conditions returns conditions from pairs of a type and a status.
func conditions(pairs ...string) (all []metav1.Condition) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, metav1.Condition{Type: pairs[i], Status: metav1.ConditionStatus(pairs[i+1])})
	}
	return all
}

func newClock(name string, state v1alpha1.ClockState, deadline time.Time, pairs ...string) *v1alpha1.WorkloadClock {
	clock := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis-ns", Name: name}}
	clock.Status.State, clock.Status.Conditions = state, conditions(pairs...)
	if !deadline.IsZero() {
		clock.Status.Deadline = &v1alpha1.ClockDeadline{At: metav1.NewTime(deadline), Reason: v1alpha1.EndMaxRuntime}
	}
	return clock
}

func newStateCollector(t *testing.T, elected bool) *stateCollector {
	t.Helper()
	now := time.Now().UTC()
	sampled := metav1.NewTime(time.Unix(1700000000, 0))
	quantity := resource.MustParse
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"}, Spec: v1alpha1.ProjectSpec{Department: "students"},
		Status: v1alpha1.ProjectStatus{
			Namespace: &v1alpha1.ProjectNamespace{Name: "thesis-ns"},
			NodePools: []v1alpha1.PoolUsage{{
				Name: "dgx", GPUUsage: v1alpha1.GPUUsage{
					Guaranteed: quantity("1"), Limit: quantity("4"), Allocated: quantity("2500m"), OverQuota: quantity("1500m"), Pending: quantity("3"),
				},
				Unscheduled: quantity("1"), Uncounted: quantity("500m"),
			}},
			Conditions: conditions(v1alpha1.ConditionReady, "True", v1alpha1.ConditionLimitExceeded, "True", v1alpha1.ConditionUsageDiffers, "False"),
		},
	}
	quota := func(namespace, name, resourceName, used string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status: corev1.ResourceQuotaStatus{
				Hard: corev1.ResourceList{corev1.ResourceName(resourceName): quantity("9k")}, Used: corev1.ResourceList{corev1.ResourceName(resourceName): quantity(used)},
			},
		}
	}
	node := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}, Spec: v1alpha1.GPUNodeSpec{NodePool: "dgx"},
		Status: v1alpha1.GPUNodeStatus{
			SampledAt: &sampled, GPUs: []v1alpha1.ObservedGPU{{Health: v1alpha1.GPUHealthy}, {Health: v1alpha1.GPULost}},
			Conditions: conditions(v1alpha1.ConditionReady, "False", v1alpha1.ConditionGPULost, "True", v1alpha1.ConditionLayoutApplied, "True"),
		},
	}
	c := make(chan struct{})
	if elected {
		close(c)
	}
	return &stateCollector{newStoredObjects(t, project, node,
		quota("thesis-ns", "sluice", "requests.sluice.dev/gpu-milli.dgx", "3k"),
		quota("thesis-ns", "another", "requests.sluice.dev/gpu-milli.dgx", "1k"),
		quota("elsewhere", "sluice", "requests.sluice.dev/gpu-milli.dgx", "9k"),
		&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-2"}, Spec: v1alpha1.GPUNodeSpec{NodePool: "dgx"}},
		&v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 16}},
		&v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Status: v1alpha1.PolicyStatus{
			Conditions: conditions(v1alpha1.ConditionCompiled, "False", v1alpha1.ConditionEnforced, "True", v1alpha1.ConditionTimedOut, "True"),
		}},
		&v1alpha1.Policy{
			ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Spec: v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementWarn},
			Status: v1alpha1.PolicyStatus{Audit: &v1alpha1.PolicyAudit{Violations: 7}},
		},
		&v1alpha1.AdmissionParameters{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
			Status: v1alpha1.AdmissionParametersStatus{Audit: &v1alpha1.AuditRecord{
				Time: sampled, DurationSeconds: 12, Evaluated: 300, Unevaluated: 2,
			}},
		},
		newClock("soon", v1alpha1.ClockStateRunning, now.Add(2*time.Hour)),
		newClock("first", v1alpha1.ClockStateRunning, time.Unix(1700000000, 0)),
		newClock("later", v1alpha1.ClockStateRunning, now.Add(100*time.Hour)),
		newClock("stopped", v1alpha1.ClockStateStopped, now),
		newClock("runs-on", v1alpha1.ClockStateRunning, time.Time{}, v1alpha1.ConditionUnstoppable, "True"),
		newClock("gone", v1alpha1.ClockStateDeleted, time.Time{}, v1alpha1.ConditionUnstoppable, "True"),
	), c, policytime.System()}
}

// The series are those of the objects in the cache, and tell apart quotas, problems and deadlines.
func TestStateMetrics(t *testing.T) {
	const want = `
sluice_lifecycle_leader 1
sluice_nodepool_gpus{pool="dgx"} 16
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="allocated"} 2.5
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="guaranteed"} 1
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="limit"} 4
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="overQuota"} 1.5
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="pending"} 3
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="resourceQuota"} 3
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="uncounted"} 0.5
sluice_project_gpus{department="students",pool="dgx",project="thesis",type="unscheduled"} 1
sluice_project_problem{department="students",problem="LimitExceeded",project="thesis"} 1
sluice_gpunode_sample_timestamp_seconds{node="dgx-1",pool="dgx"} 1.7e+09
sluice_gpunode_sample_timestamp_seconds{node="dgx-2",pool="dgx"} 0
sluice_gpunode_gpus{health="Healthy",node="dgx-1",pool="dgx"} 1
sluice_gpunode_gpus{health="Lost",node="dgx-1",pool="dgx"} 1
sluice_gpunode_gpus{health="Unhealthy",node="dgx-1",pool="dgx"} 0
sluice_gpunode_gpus{health="Healthy",node="dgx-2",pool="dgx"} 0
sluice_gpunode_gpus{health="Lost",node="dgx-2",pool="dgx"} 0
sluice_gpunode_gpus{health="Unhealthy",node="dgx-2",pool="dgx"} 0
sluice_gpunode_problem{node="dgx-1",pool="dgx",problem="GPULost"} 1
sluice_gpunode_problem{node="dgx-1",pool="dgx",problem="NotReady"} 1
sluice_policy_problem{policy="broken",problem="NotCompiled"} 1
sluice_policy_problem{policy="broken",problem="TimedOut"} 1
sluice_audit_violations{enforcement="Warn",policy="audited"} 7
sluice_audit_last_run_timestamp_seconds 1.7e+09
sluice_audit_duration_seconds 12
sluice_audit_objects{result="evaluated"} 300
sluice_audit_objects{result="unevaluated"} 2
sluice_workloads{project="thesis",state="Deleted"} 1
sluice_workloads{project="thesis",state="Running"} 4
sluice_workloads{project="thesis",state="Stopped"} 1
sluice_unstoppable_workloads{project="thesis"} 1
sluice_workload_next_deadline_timestamp_seconds{project="thesis",reason="MaxRuntime"} 1.7e+09
sluice_workloads_ending{project="thesis",within="1h"} 1
sluice_workloads_ending{project="thesis",within="4h"} 2
sluice_workloads_ending{project="thesis",within="24h"} 2
sluice_workloads_ending{project="thesis",within="72h"} 2
`
	if err := testutil.CollectAndCompare(newStateCollector(t, true), strings.NewReader(withTypes(want))); err != nil {
		t.Error(err)
	}
}

// A standby replica reports only that it is one: the sums of both replicas would count each object twice.
func TestStandbyReplicaReportsNoState(t *testing.T) {
	if err := testutil.CollectAndCompare(newStateCollector(t, false), strings.NewReader(withTypes("sluice_lifecycle_leader 0\n"))); err != nil {
		t.Error(err)
	}
}

// withTypes adds the help and the type of each metric.
func withTypes(series string) string {
	help := map[string]string{}
	for _, d := range stateDescriptions {
		text := d.String() // Desc{fqName: "...", help: "...", ...}
		name, rest, _ := strings.Cut(strings.TrimPrefix(text, `Desc{fqName: "`), `", help: "`)
		help[name], _, _ = strings.Cut(rest, `", `)
	}
	var out strings.Builder
	last := ""
	for line := range strings.Lines(strings.TrimLeft(series, "\n")) {
		name := line[:strings.IndexAny(line, "{ ")]
		if name != last {
			out.WriteString("# HELP " + name + " " + help[name] + "\n# TYPE " + name + " gauge\n")
			last = name
		}
		out.WriteString(line)
	}
	return out.String()
}

// BenchmarkStateMetrics measures one scrape of a large cluster: a thousand projects with twenty workloads each.
func BenchmarkStateMetrics(b *testing.B) {
	const projects, workloads = 1000, 20
	stored := storedObjects{}
	add := func(object client.Object) {
		informer, _ := stored.GetInformer(b.Context(), object)
		if err := informer.(syncedInformer).GetStore().Add(object); err != nil {
			b.Fatal(err)
		}
	}
	now := metav1.Now()
	for i := range projects {
		name := fmt.Sprintf("project-%d", i)
		add(&v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "students"},
			Status: v1alpha1.ProjectStatus{
				Namespace: &v1alpha1.ProjectNamespace{Name: name}, NodePools: []v1alpha1.PoolUsage{{Name: "dgx"}, {Name: "dgx-mig"}},
			},
		})
		for j := range workloads {
			clock := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprintf("pod-%d", j)}}
			clock.Status.State, clock.Status.Deadline = v1alpha1.ClockStateRunning, &v1alpha1.ClockDeadline{At: now, Reason: v1alpha1.EndMaxRuntime}
			add(clock)
		}
	}
	elected := make(chan struct{})
	close(elected)
	c := &stateCollector{stored, elected, policytime.System()}
	b.ReportAllocs()
	series := 0
	for b.Loop() {
		series = testutil.CollectAndCount(c)
	}
	b.ReportMetric(float64(series), "series")
}
