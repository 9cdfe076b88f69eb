// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

var (
	leaderMetric = prometheus.NewDesc("sluice_lifecycle_leader",
		"1 on the replica of lifecycle that runs the controllers, 0 on a standby replica.", nil, nil)
	poolGPUs = prometheus.NewDesc("sluice_nodepool_gpus",
		"Physical GPUs on the nodes of a node pool.", []string{"pool"}, nil)
	projectGPUs = prometheus.NewDesc("sluice_project_gpus",
		"GPU quota of a project in a node pool, in physical GPUs, by type: guaranteed, limit, allocated, overQuota, pending, "+
			"unscheduled, uncounted as in the project's status, and resourceQuota, the use that the API server counts.",
		[]string{"project", "department", "pool", "type"}, nil)
	projectProblem = prometheus.NewDesc("sluice_project_problem",
		"1 while a condition of a project reports a problem: NotReady, QuotaNotApplied, OtherQuotas, LimitExceeded, Uncounted or UsageDiffers.",
		[]string{"project", "department", "problem"}, nil)
	nodeSampled = prometheus.NewDesc("sluice_gpunode_sample_timestamp_seconds",
		"Unix time of the last sample of a node's agent, in machine time; 0 if it has not reported any.", []string{"node", "pool"}, nil)
	nodeGPUs = prometheus.NewDesc("sluice_gpunode_gpus",
		"GPUs that a node's agent reports, by health: Healthy, Unhealthy or Lost.", []string{"node", "pool", "health"}, nil)
	nodeProblem = prometheus.NewDesc("sluice_gpunode_problem",
		"1 while a condition of a GPUNode reports a problem: NotReady, LayoutNotApplied, GPULost, ResetRequired or NoPermission.",
		[]string{"node", "pool", "problem"}, nil)
	policyProblem = prometheus.NewDesc("sluice_policy_problem",
		"1 while a condition of a Policy reports a problem: NotCompiled, NotReady or TimedOut (in the last hour).", []string{"policy", "problem"}, nil)
	clockStates = prometheus.NewDesc("sluice_workloads",
		"Workloads with GPUs by the state of their clock.", []string{"project", "state"}, nil)
	unstoppable = prometheus.NewDesc("sluice_unstoppable_workloads",
		"Workloads that run although Sluice stopped them; a project without any has no series.", []string{"project"}, nil)
	nextDeadline = prometheus.NewDesc("sluice_workload_next_deadline_timestamp_seconds",
		"Unix time, in policy time, at which the first of the project's running workloads will be stopped; no series without one.",
		[]string{"project", "reason"}, nil)
	endingSoon = prometheus.NewDesc("sluice_workloads_ending",
		"Running workloads whose deadline is at most so far away, in policy time; within: 1h, 4h, 24h, 72h.", []string{"project", "within"}, nil)
	stateDescriptions = []*prometheus.Desc{
		leaderMetric, poolGPUs, projectGPUs, projectProblem, nodeSampled, nodeGPUs, nodeProblem, policyProblem, clockStates,
		unstoppable, nextDeadline, endingSoon, auditViolations, auditLastRun, auditDuration, auditObjects,
	}
)

// informers returns the informers of the manager's cache.
type informers interface {
	GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error)
}

// stateCollector reports the state of the cluster as the cache has it, so that no series outlives its object. Only the leader
// reports it: a standby replica has none of these caches. It reads the stores of the informers, since a list would copy each
// object.
type stateCollector struct {
	cache informers
	// elected is closed when this replica becomes the leader.
	elected <-chan struct{}
	clock   policytime.Clock
}

// registerStateMetrics registers the collector, instead of that of a former manager of the process.
func registerStateMetrics(mgr ctrl.Manager, clock policytime.Clock) error {
	own := &stateCollector{mgr.GetCache(), mgr.Elected(), clock}
	metrics.Registry.Unregister(own)
	if err := metrics.Registry.Register(own); err != nil {
		return fmt.Errorf("register metrics of the cluster's state: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (*stateCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range stateDescriptions {
		descriptions <- d
	}
}

// gauges receives the values of one scrape.
type gauges chan<- prometheus.Metric

func (g gauges) set(d *prometheus.Desc, value float64, labels ...string) {
	g <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// setProblem sets a gauge to 1 if a condition has the status that means a problem.
func (g gauges) setProblem(d *prometheus.Desc, all []metav1.Condition, condition string, status metav1.ConditionStatus, labels ...string) {
	if meta.IsStatusConditionPresentAndEqual(all, condition, status) {
		g.set(d, 1, labels...)
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(values chan<- prometheus.Metric) {
	g := gauges(values)
	select {
	case <-c.elected:
		g.set(leaderMetric, 1)
	default:
		g.set(leaderMetric, 0)
		return
	}
	projects := map[string]*v1alpha1.Project{} // by namespace
	each(c, func(p *v1alpha1.Project) {
		if p.Status.Namespace != nil {
			projects[p.Status.Namespace.Name] = p
		}
		g.setProject(p)
	})
	each(c, func(q *corev1.ResourceQuota) { g.setResourceQuota(q, projects[q.Namespace]) })
	each(c, func(p *v1alpha1.NodePool) { g.set(poolGPUs, float64(p.Status.GPUs), p.Name) })
	each(c, g.setNode)
	each(c, g.setPolicy)
	each(c, g.setAudit)
	each(c, g.setAuditRecord)
	now := c.clock.Now()
	workloads := map[string]*projectWorkloads{}
	each(c, func(clock *v1alpha1.WorkloadClock) {
		if p := projects[clock.Namespace]; p != nil {
			if workloads[p.Name] == nil {
				workloads[p.Name] = &projectWorkloads{states: map[v1alpha1.ClockState]int{}, ending: make([]int, len(endingWindows))}
			}
			workloads[p.Name].add(clock, now)
		}
	})
	for project, w := range workloads {
		w.set(g, project)
	}
}

// each calls visit with each object of a kind in the cache, which visit must not change. It calls it with none before the
// cache is synced.
func each[T any, P interface {
	*T
	client.Object
}](c *stateCollector, visit func(P)) {
	informer, err := c.cache.GetInformer(context.Background(), P(new(T)), cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() {
		return
	}
	indexed, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return
	}
	for _, object := range indexed.GetStore().List() {
		if typed, ok := object.(P); ok {
			visit(typed)
		}
	}
}

func (g gauges) setProject(p *v1alpha1.Project) {
	for i := range p.Status.NodePools {
		u := &p.Status.NodePools[i]
		for kind, value := range map[string]*resource.Quantity{
			"guaranteed": &u.Guaranteed, "limit": &u.Limit, "allocated": &u.Allocated, "overQuota": &u.OverQuota,
			"pending": &u.Pending, "unscheduled": &u.Unscheduled, "uncounted": &u.Uncounted,
		} {
			g.set(projectGPUs, float64(value.MilliValue())/1000, p.Name, p.Spec.Department, u.Name, kind)
		}
	}
	problem := func(condition string, status metav1.ConditionStatus, name string) {
		g.setProblem(projectProblem, p.Status.Conditions, condition, status, p.Name, p.Spec.Department, name)
	}
	problem(v1alpha1.ConditionReady, metav1.ConditionFalse, "NotReady")
	problem(v1alpha1.ConditionQuotaApplied, metav1.ConditionFalse, "QuotaNotApplied")
	problem(v1alpha1.ConditionOtherQuotas, metav1.ConditionTrue, "OtherQuotas")
	problem(v1alpha1.ConditionLimitExceeded, metav1.ConditionTrue, "LimitExceeded")
	problem(v1alpha1.ConditionUncounted, metav1.ConditionTrue, "Uncounted")
	problem(v1alpha1.ConditionUsageDiffers, metav1.ConditionTrue, "UsageDiffers")
}

// quotaPrefix begins the resource of a node pool's GPUs in a ResourceQuota. On Kueue it counts all pools together.
const quotaPrefix = corev1.DefaultResourceRequestsPrefix + string(v1alpha1.ResourceGPUMilli) + "."

// setResourceQuota sets the use of each node pool that a project's quota counts.
func (g gauges) setResourceQuota(q *corev1.ResourceQuota, p *v1alpha1.Project) {
	if p == nil || q.Name != v1alpha1.QuotaName {
		return
	}
	for name, used := range q.Status.Used {
		hard := q.Status.Hard[name] // 0 of a pool that the project had before
		if pool, ok := strings.CutPrefix(string(name), quotaPrefix); ok && !hard.IsZero() {
			g.set(projectGPUs, float64(used.Value())/1000, p.Name, p.Spec.Department, pool, "resourceQuota")
		}
	}
}

func (g gauges) setNode(n *v1alpha1.GPUNode) {
	pool, sampled := n.Spec.NodePool, 0.0
	if n.Status.SampledAt != nil {
		sampled = float64(n.Status.SampledAt.Unix())
	}
	g.set(nodeSampled, sampled, n.Name, pool)
	counts := map[v1alpha1.GPUHealth]int{v1alpha1.GPUHealthy: 0, v1alpha1.GPUUnhealthy: 0, v1alpha1.GPULost: 0}
	for i := range n.Status.GPUs {
		counts[n.Status.GPUs[i].Health]++
	}
	for health, count := range counts {
		if health != "" {
			g.set(nodeGPUs, float64(count), n.Name, pool, string(health))
		}
	}
	problem := func(condition string, status metav1.ConditionStatus, name string) {
		g.setProblem(nodeProblem, n.Status.Conditions, condition, status, n.Name, pool, name)
	}
	problem(v1alpha1.ConditionReady, metav1.ConditionFalse, "NotReady")
	problem(v1alpha1.ConditionLayoutApplied, metav1.ConditionFalse, "LayoutNotApplied")
	problem(v1alpha1.ConditionGPULost, metav1.ConditionTrue, "GPULost")
	problem(v1alpha1.ConditionResetRequired, metav1.ConditionTrue, "ResetRequired")
	problem(v1alpha1.ConditionNoPermission, metav1.ConditionTrue, "NoPermission")
}

func (g gauges) setPolicy(p *v1alpha1.Policy) {
	problem := func(condition string, status metav1.ConditionStatus, name string) {
		g.setProblem(policyProblem, p.Status.Conditions, condition, status, p.Name, name)
	}
	problem(v1alpha1.ConditionCompiled, metav1.ConditionFalse, "NotCompiled")
	problem(v1alpha1.ConditionReady, metav1.ConditionFalse, "NotReady")
	problem(v1alpha1.ConditionTimedOut, metav1.ConditionTrue, "TimedOut")
}

// endingWindows are the values of the label within, the shortest first.
var endingWindows = []struct {
	name   string
	length time.Duration
}{{"1h", time.Hour}, {"4h", 4 * time.Hour}, {"24h", 24 * time.Hour}, {"72h", 72 * time.Hour}}

// projectWorkloads are the sums of a project's clocks.
type projectWorkloads struct {
	states      map[v1alpha1.ClockState]int
	ending      []int // by endingWindows
	unstoppable int
	next        *v1alpha1.ClockDeadline
}

func (w *projectWorkloads) add(clock *v1alpha1.WorkloadClock, now time.Time) {
	s := &clock.Status
	if s.State != "" {
		w.states[s.State]++
	}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionUnstoppable) && s.State != v1alpha1.ClockStateDeleted {
		w.unstoppable++
	}
	if s.Deadline == nil || s.State != v1alpha1.ClockStateRunning {
		return
	}
	if w.next == nil || s.Deadline.At.Before(&w.next.At) {
		w.next = s.Deadline
	}
	for i, window := range endingWindows {
		if s.Deadline.At.Sub(now) <= window.length {
			w.ending[i]++
		}
	}
}

func (w *projectWorkloads) set(g gauges, project string) {
	for state, n := range w.states {
		g.set(clockStates, float64(n), project, string(state))
	}
	if w.unstoppable > 0 {
		g.set(unstoppable, float64(w.unstoppable), project)
	}
	if w.next != nil {
		g.set(nextDeadline, float64(w.next.At.Unix()), project, string(w.next.Reason))
	}
	for i, window := range endingWindows {
		g.set(endingSoon, float64(w.ending[i]), project, window.name)
	}
}
