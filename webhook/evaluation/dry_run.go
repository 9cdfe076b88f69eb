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
	"sluice.dev/policies/merge"
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
	evaluator *Evaluator
	set       *engine.Set
	in        *engine.Input
	bytes     int64
	result    *dryRunViolations
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

// add adds an object, if a policy in DryRun matches it, and returns the result to come. It returns false if it drops the
// object.
func (q *DryRunQueue) add(evaluator *Evaluator, set *engine.Set, in *engine.Input, bytes int) (*dryRunViolations, bool) {
	if !set.HasDryRun(in.Subject) {
		return nil, true
	}
	next := dryRun{evaluator: evaluator, set: set, in: in, bytes: int64(bytes), result: &dryRunViolations{}}
	if q.bytes.Add(next.bytes) <= maxQueuedDryRunBytes {
		select {
		case q.queue <- next:
			return next.result, true
		default:
		}
	}
	q.bytes.Add(-next.bytes)
	dryRunsDropped.Inc()
	return nil, false
}

func (q *DryRunQueue) evaluate(ctx context.Context, next dryRun) {
	defer q.bytes.Add(-next.bytes)
	subject := next.in.Subject
	release, err := q.slots.Acquire(ctx, subject.Project)
	if err != nil {
		next.result.drop()
		return
	}
	defer release()
	outcome, err := next.set.EvaluateDryRun(ctx, *next.in)
	if err != nil {
		next.result.drop()
		return
	}
	found, changed := next.violations(&outcome)
	complete := !slices.ContainsFunc(outcome.Evaluations, func(e engine.Evaluation) bool { return !e.IsComplete() })
	next.result.finish(found, complete, next.evaluator.count)
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

// violations returns what the policies would have refused or changed, and the names of those that would have changed the
// object.
func (d *dryRun) violations(outcome *engine.Outcome) (found []violation, changed []string) {
	object := d.in.Object.Object()
	found = newViolations(d.set, outcome.Denials, object)
	for i := range outcome.Changes {
		policy := outcome.Changes[i].Policy
		version, ok := d.set.Version(policy)
		merged, err := merge.Apply(object, outcome.Changes[i:i+1], d.evaluator.Cluster)
		if !ok || err != nil || len(merged.ChangedPaths[policy]) == 0 {
			continue
		}
		changed = append(changed, policy)
		at := slices.IndexFunc(found, func(v violation) bool { return v.version == version })
		if at < 0 {
			at = len(found)
			found = append(found, violation{version: version, only: true})
		}
		found[at].changes = merged.ChangedPaths[policy]
	}
	slices.Sort(changed)
	return found, changed
}

var dryRunsDropped = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "sluice_policy_dry_runs_dropped_total",
	Help: "Objects for which the policies in DryRun were not evaluated, because too many were waiting.",
})

func init() { metrics.Registry.MustRegister(dryRunsDropped) }
