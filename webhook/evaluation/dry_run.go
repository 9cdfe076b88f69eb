// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/policies/engine"
)

const (
	// maxQueuedDryRuns is the number of objects that wait for the policies in DryRun.
	maxQueuedDryRuns = 256
	// maxQueuedDryRunBytes limits their JSON; decoded they take several times as much.
	maxQueuedDryRunBytes = 4 << 20
)

// DryRunQueue evaluates the policies in DryRun, after the answer to a request: no request waits for
// them. It drops what exceeds its size and counts it.
type DryRunQueue struct {
	slots  *Slots
	logger logr.Logger
	queue  chan dryRun
	bytes  atomic.Int64
}

var (
	_ manager.Runnable               = (*DryRunQueue)(nil)
	_ manager.LeaderElectionRunnable = (*DryRunQueue)(nil)
)

// NewDryRunQueue returns a queue whose evaluations take the same slots as others.
func NewDryRunQueue(slots *Slots, logger logr.Logger) *DryRunQueue {
	return &DryRunQueue{slots: slots, logger: logger.WithName("dry-run"), queue: make(chan dryRun, maxQueuedDryRuns)}
}

// dryRun is an object to evaluate.
type dryRun struct {
	set   *engine.Set
	in    *engine.Input
	bytes int64
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (q *DryRunQueue) NeedLeaderElection() bool { return false }

// Start evaluates what is in the queue until ctx ends.
func (q *DryRunQueue) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-q.queue:
			q.evaluate(ctx, next)
		}
	}
}

// add adds an object, if a policy in DryRun matches it.
func (q *DryRunQueue) add(set *engine.Set, in *engine.Input, bytes int) {
	if !set.HasDryRun(in.Subject) {
		return
	}
	next := dryRun{set: set, in: in, bytes: int64(bytes)}
	if q.bytes.Add(next.bytes) <= maxQueuedDryRunBytes {
		select {
		case q.queue <- next:
			return
		default:
		}
	}
	q.bytes.Add(-next.bytes)
	dryRunsDropped.Inc()
}

func (q *DryRunQueue) evaluate(ctx context.Context, next dryRun) {
	defer q.bytes.Add(-next.bytes)
	subject := next.in.Subject
	release, err := q.slots.Acquire(ctx, subject.Project)
	if err != nil {
		dryRunsDropped.Inc()
		return
	}
	defer release()
	outcome, err := next.set.EvaluateDryRun(ctx, *next.in)
	if err != nil {
		dryRunsDropped.Inc()
		return
	}
	var changed []string
	for _, changes := range outcome.Changes {
		changed = append(changed, changes.Policy)
	}
	slices.Sort(changed)
	denied, warned := policyNames(outcome.Denials), policyNames(outcome.Warnings)
	if len(denied)+len(warned)+len(changed) == 0 {
		return
	}
	q.logger.Info("Evaluated policies in DryRun",
		"project", subject.Project, "operation", subject.Operation, "kind", subject.Kind,
		"deniedBy", denied, "warnedBy", warned, "changedBy", changed,
		"messages", formatMessages(slices.Concat(outcome.Denials, outcome.Warnings), maxWarnings),
	)
}

var dryRunsDropped = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "sluice_policy_dry_runs_dropped_total",
	Help: "Objects for which the policies in DryRun were not evaluated, because too many were waiting.",
})

func init() { metrics.Registry.MustRegister(dryRunsDropped) }
