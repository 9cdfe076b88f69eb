// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// podWaitSeconds is how long pods waited. Its labels are bounded: a project that is, a type
// that is one, and a node pool that the project has.
var podWaitSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_pod_waiting_seconds",
	Help:    "Time from the creation of a GPU pod until it ran, in machine time, by project, type of workload and node pool.",
	Buckets: podWaitBuckets,
}, []string{"project", "type", "pool"})

// podWaitBuckets are in seconds, from one to a week.
var podWaitBuckets = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}

const (
	// unknownPool is the pool of a pod that is in none of its project's.
	unknownPool = "(unknown)"
	// maxRecordedWaits is how many waits of a project are kept until they are looked at.
	maxRecordedWaits = 10000
)

// podWait is how long a pod waited.
type podWait struct {
	namespace, pool string
	kind            v1alpha1.WorkloadType
	duration        time.Duration
}

// waitRecorder are those that were heard of and are not in the histogram yet, by the
// project that their pods are labeled.
type waitRecorder struct {
	mu             sync.Mutex
	waitsByProject map[string][]podWait
	// hasRun are pods that ran, do not run now, and are there still: a node was out of
	// reach.
	hasRun map[types.UID]bool
}

// recordStart takes note of a pod that has begun to run, and tells whether it did. A pod is
// heard of once: not when the node is back on which it ran.
func (w *waitRecorder) recordStart(c podcache.Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, pod := c.Before != nil && c.Before.Running, c.After
	switch {
	case pod == nil:
		delete(w.hasRun, c.Before.UID)
		return false
	case before && !pod.Running:
		if w.hasRun == nil {
			w.hasRun = map[types.UID]bool{}
		}
		w.hasRun[pod.UID] = true
		return false
	case before || !pod.Running:
		return false
	case w.hasRun[pod.UID]:
		delete(w.hasRun, pod.UID)
		return false
	}
	if len(w.waitsByProject[pod.Project]) >= maxRecordedWaits {
		return false
	}
	kind := pod.WorkloadType
	if !slices.Contains(v1alpha1.WorkloadTypes, kind) {
		kind = v1alpha1.WorkloadTrain
	}
	w.waitsByProject[pod.Project] = append(w.waitsByProject[pod.Project], podWait{pod.Namespace, pod.Pool, kind, max(0, pod.EffectiveStart().Sub(pod.CreatedAt))})
	return true
}

// drain are the waits of a project, which are forgotten.
func (w *waitRecorder) drain(project string) []podWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.waitsByProject[project]
	delete(w.waitsByProject, project)
	return taken
}

// observeWaits puts into the histogram what was heard of a project. What a pod is
// labeled that is not in the project's namespace means nothing.
func (w *waitRecorder) observeWaits(project *v1alpha1.Project) {
	for _, one := range w.drain(project.Name) {
		if one.namespace != project.NamespaceName() {
			continue
		}
		pool := one.pool
		if !slices.ContainsFunc(project.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pool }) {
			pool = unknownPool
		}
		podWaitSeconds.WithLabelValues(project.Name, string(one.kind), pool).Observe(one.duration.Seconds())
	}
}

// forgetProject drops all that is known of a project that is gone.
func (w *waitRecorder) forgetProject(project string) {
	w.drain(project)
	podWaitSeconds.DeletePartialMatch(prometheus.Labels{"project": project})
}

var pendingWorkloads = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_waiting_workloads",
	Help: "Workloads that wait for the GPU quota of a project, outside or in a queue, by project; projects of which none waits are left out.",
}, []string{"project"})

var wakesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_wakes_total",
	Help: "Times that a workload's controller was made to try again since there was room in its project's GPU quota, by the object's kind.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(pendingWorkloads, wakesTotal, podWaitSeconds) }

func recordPendingWorkloads(project string, waiting int) {
	if waiting == 0 {
		pendingWorkloads.DeleteLabelValues(project)
		return
	}
	pendingWorkloads.WithLabelValues(project).Set(float64(waiting))
}
