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

// podWaitSeconds has bounded labels: known types, and node pools of existing projects. It has no
// label for the project, which would make some forty series for each.
var podWaitSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_pod_pending_duration_seconds",
	Help:    "Time in seconds from the creation of a GPU pod until it ran, in machine time, by type of workload and node pool.",
	Buckets: podWaitBuckets,
}, []string{"type", "pool"})

// podWaitBuckets are in seconds, from one second to a week.
var podWaitBuckets = []float64{
	1, 2, 5, 10, 30, 60, 120, 300, 600, 1800,
	3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600,
}

const (
	// unknownPool labels pods in a node pool that is not the project's.
	unknownPool = "(unknown)"
	// maxRecordedWaits is the largest number of recorded waits of a project between two
	// passes.
	maxRecordedWaits = 10000
)

// podWait is the time for which a pod waited until it ran.
type podWait struct {
	namespace, pool string
	workloadType    v1alpha1.WorkloadType
	duration        time.Duration
}

// waitRecorder collects the waits that are not in the histogram yet, by the project label of the
// pods.
type waitRecorder struct {
	mu             sync.Mutex
	waitsByProject map[string][]podWait
	// hasRun are the pods that ran before and do not run now, for example because their node
	// was unreachable.
	hasRun map[types.UID]bool
}

// recordStart records the wait of a pod that started, and reports whether it recorded one. A pod
// is recorded once.
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
	workloadType := pod.WorkloadType
	if !slices.Contains(v1alpha1.WorkloadTypes, workloadType) {
		workloadType = v1alpha1.WorkloadTrain
	}
	duration := max(0, pod.EffectiveStart().Sub(pod.CreatedAt))
	w.waitsByProject[pod.Project] = append(w.waitsByProject[pod.Project], podWait{pod.Namespace, pod.Pool, workloadType, duration})
	return true
}

// drain returns and removes the waits of a project.
func (w *waitRecorder) drain(project string) []podWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.waitsByProject[project]
	delete(w.waitsByProject, project)
	return waits
}

// observeWaits adds the waits of a project to the histogram. It ignores pods outside the
// project's namespace, whose label may be forged.
func (w *waitRecorder) observeWaits(project *v1alpha1.Project) {
	for _, one := range w.drain(project.Name) {
		if one.namespace != project.NamespaceName() {
			continue
		}
		pool := one.pool
		if !slices.ContainsFunc(project.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pool }) {
			pool = unknownPool
		}
		podWaitSeconds.WithLabelValues(string(one.workloadType), pool).Observe(one.duration.Seconds())
	}
}

var pendingWorkloads = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_pending_workloads",
	Help: "Workloads pending for GPU quota, rejected or queued in a scheduler, by project and reason. " +
		"Projects without pending workloads have no series.",
}, []string{"project", "reason"})

// ReasonCode is why a workload is pending, for metrics.
type ReasonCode string

const (
	codeQuotaExceeded     ReasonCode = "QuotaExceeded"     // a ResourceQuota refused its pods
	codeQuotaUsed         ReasonCode = "QuotaUsed"         // other work has the quota of its queue
	codeLimitReached      ReasonCode = "LimitReached"      // it exceeds the limit of the project or department
	codeGuaranteeReached  ReasonCode = "GuaranteeReached"  // it cannot be preempted and exceeds a guarantee
	codeNoRoom            ReasonCode = "NoRoom"            // no node has room
	codeNodePoolMismatch  ReasonCode = "NodePoolMismatch"  // its node selector matches no node pool
	codeQueueUnavailable  ReasonCode = "QueueUnavailable"  // its queue does not exist or accepts no work
	codePreemptionDelayed ReasonCode = "PreemptionDelayed" // it may not preempt other work yet
	codeAdmissionCheck    ReasonCode = "AdmissionCheck"    // an admission check of Kueue is not complete
	codeNotEvaluated      ReasonCode = "NotEvaluated"      // its scheduler has not evaluated it
	codeOther             ReasonCode = "Other"             // the scheduler reports another reason
)

// reasonCodes are all of them.
var reasonCodes = []ReasonCode{
	codeQuotaExceeded, codeQuotaUsed, codeLimitReached, codeGuaranteeReached, codeNoRoom, codeNodePoolMismatch,
	codeQueueUnavailable, codePreemptionDelayed, codeAdmissionCheck, codeNotEvaluated, codeOther,
}

var oldestPending = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_oldest_pending_timestamp_seconds",
	Help: "Unix time since which the longest pending workload or GPU pod is pending, in machine time, by project. " +
		"Projects without pending workloads and pods have no series.",
}, []string{"project"})

var retriesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_workload_retries_total",
	Help: "Retries of workload controllers that Sluice triggered because GPU quota became available, by kind of object.",
}, []string{"kind"})

func init() {
	metrics.Registry.MustRegister(pendingWorkloads, oldestPending, retriesTotal, podWaitSeconds)
}

// recordPending records how many workloads of the project are pending for each reason, and since when the
// oldest workload or pod is; zero if none is.
func recordPending(project string, count map[ReasonCode]int, since time.Time) {
	for _, code := range reasonCodes {
		if count[code] == 0 {
			pendingWorkloads.DeleteLabelValues(project, string(code))
		} else {
			pendingWorkloads.WithLabelValues(project, string(code)).Set(float64(count[code]))
		}
	}
	if since.IsZero() {
		oldestPending.DeleteLabelValues(project)
	} else {
		oldestPending.WithLabelValues(project).Set(float64(since.Unix()))
	}
}

// countReasons counts the pending workloads by reason.
func (s *ObservedState) countReasons() map[ReasonCode]int {
	count := map[ReasonCode]int{codeQuotaExceeded: len(s.Rejected)}
	for i := range s.Queued {
		count[s.Queued[i].Reason.Code]++
	}
	return count
}
