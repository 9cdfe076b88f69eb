// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/gpupods"
)

// waited is how long pods waited. Its labels are bounded: a project that is, a type
// that is one, and a node pool that the project has.
var waited = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_pod_waiting_seconds",
	Help:    "Time from the creation of a GPU pod until it ran, in machine time, by project, type of workload and node pool.",
	Buckets: waitBuckets,
}, []string{"project", "type", "pool"})

// waitBuckets are in seconds, from one to a week.
var waitBuckets = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}

const (
	// unknown is the pool of a pod that is in none of its project's.
	unknown = "(unknown)"
	// maxHeard is how many waits of a project are kept until they are looked at.
	maxHeard = 10000
)

// pause is how long a pod waited.
type pause struct {
	namespace, pool string
	kind            v1alpha1.WorkloadType
	took            time.Duration
}

// waits are those that were heard of and are not in the histogram yet, by the
// project that their pods are labelled.
type waits struct {
	mu sync.Mutex
	by map[string][]pause
	// ran are pods that ran, do not run now, and are there still: a node was out of
	// reach.
	ran map[types.UID]bool
}

// hear takes note of a pod that has begun to run, and tells whether it did. A pod is
// heard of once: not when the node is back on which it ran.
func (w *waits) hear(c gpupods.Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, pod := c.Before != nil && c.Before.Running, c.After
	switch {
	case pod == nil:
		delete(w.ran, c.Before.UID)
		return false
	case before && !pod.Running:
		if w.ran == nil {
			w.ran = map[types.UID]bool{}
		}
		w.ran[pod.UID] = true
		return false
	case before || !pod.Running:
		return false
	case w.ran[pod.UID]:
		delete(w.ran, pod.UID)
		return false
	}
	if len(w.by[pod.Project]) >= maxHeard {
		return false
	}
	kind := pod.WorkloadType
	if !slices.Contains(v1alpha1.WorkloadTypes, kind) {
		kind = v1alpha1.WorkloadTrain
	}
	w.by[pod.Project] = append(w.by[pod.Project], pause{pod.Namespace, pod.Pool, kind, max(0, pod.Began().Sub(pod.CreatedAt))})
	return true
}

// take are the waits of a project, which are forgotten.
func (w *waits) take(project string) []pause {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.by[project]
	delete(w.by, project)
	return taken
}

// observe puts into the histogram what was heard of a project. What a pod is
// labelled that is not in the project's namespace means nothing.
func (w *waits) observe(project *v1alpha1.Project) {
	for _, one := range w.take(project.Name) {
		if one.namespace != project.NamespaceName() {
			continue
		}
		pool := one.pool
		if !slices.ContainsFunc(project.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pool }) {
			pool = unknown
		}
		waited.WithLabelValues(project.Name, string(one.kind), pool).Observe(one.took.Seconds())
	}
}

// forget drops all that is known of a project that is gone.
func (w *waits) forget(project string) {
	w.take(project)
	waited.DeletePartialMatch(prometheus.Labels{"project": project})
}
