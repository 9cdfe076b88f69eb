// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// reportDelay is how late a running pod may be reported without harm after a
	// crash, in machine time: what runs is accounted for up to so long ago.
	reportDelay = 10 * time.Second
	// minWriteInterval is how long at least lies between two writes of a project, in
	// machine time; runningSpacing is that where nothing has ended.
	minWriteInterval        = 10 * time.Second
	minRunningWriteInterval = time.Minute
	// accountingInterval is how long what runs is not accounted for at most, in policy
	// time.
	accountingInterval = time.Hour
	// maxRequeueAfter is how long a namespace is left alone at most, in machine time:
	// policy time may step.
	maxRequeueAfter = time.Minute
	// minRequeueAfter is when to look again for what will be known any moment, in machine time.
	minRequeueAfter = time.Second
	// maxZoneDifference is more than the time of two places on earth differs.
	maxZoneDifference = 27 * time.Hour
)

// pendingUsage is what was used in a namespace and is not in the records, reckoned at one
// moment.
type pendingUsage struct {
	*namespaceUsage
	clock policytime.Clock
	// now is machine time. through is up to when what runs is accounted for, in
	// policy time.
	now, runningUntil time.Time
	intervals         []observedInterval
	// isComplete is whether the workloads of all pods that run are known. pressed is
	// whether nothing can be waited for.
	isComplete, flush bool
}

// computePending reckons up a namespace's use, and whose it is.
func (r *Reconciler) computePending(ctx context.Context, namespace string, a *namespaceUsage, pressed bool) (*pendingUsage, error) {
	_, all := r.tracker.snapshot(namespace)
	if !a.loaded {
		if err := r.loadRecords(ctx, a.recordState, all); err != nil {
			return nil, err
		}
	}
	if err := r.resolvePendingWrites(ctx, a.recordState); err != nil {
		return nil, err
	}
	l := &pendingUsage{namespaceUsage: a, clock: r.Clock, now: policytime.MachineNow(), intervals: all, isComplete: true, flush: pressed}
	l.runningUntil = truncateToSecond(r.Clock.FromReal(l.now.Add(-reportDelay)))
	if err := r.attribute(ctx, namespace, l); err != nil {
		return nil, err
	}
	r.tracker.dropEnded(a, func(s *usageInterval) bool { return !l.accountedFrom(s).Before(l.toPolicyTime(s.to)) })
	return l, nil
}

// toPolicyTime is an instant of machine time as one of policy time, in whole seconds.
func (l *pendingUsage) toPolicyTime(at time.Time) time.Time {
	return truncateToSecond(l.clock.FromReal(at))
}

// accountedFrom is up to when a stretch is in the records, or when it began.
func (l *pendingUsage) accountedFrom(s *usageInterval) time.Time {
	return laterTime(laterTime(l.startOf(s), s.accountedUntil), laterTime(l.owner.createdAt, l.cursorFloor(s.clock)))
}

// startOf is when a stretch began. Where policy time was stepped within that very
// second it is after the step: nobody is to be charged for what he cannot have used.
func (l *pendingUsage) startOf(s *usageInterval) time.Time {
	from, by := l.toPolicyTime(s.from), l.toPolicyTime(s.startedBy)
	if by.Sub(from) > policytime.MaxScale*time.Second {
		return by
	}
	return from
}

// accountableUntil is up to when a stretch can be accounted for now. Where the pod may still
// be found running that is no later than what a cursor says.
func (l *pendingUsage) accountableUntil(s observedInterval) time.Time {
	switch {
	case s.to.IsZero():
		return l.runningUntil
	case s.podStopped:
		return l.toPolicyTime(s.to)
	default:
		return earlierTime(l.toPolicyTime(s.to), l.runningUntil)
	}
}

// hasEnded tells whether something ended that is not in the records.
func (l *pendingUsage) hasEnded() bool {
	for _, s := range l.intervals {
		if s.podStopped && s.user != "" && l.accountedFrom(s.usageInterval).Before(l.accountableUntil(s)) {
			return true
		}
	}
	return false
}

// isIdle tells whether nothing runs, and nothing is waited for.
func (l *pendingUsage) isIdle() bool {
	for _, s := range l.intervals {
		if s.to.IsZero() || l.accountedFrom(s.usageInterval).Before(l.accountableUntil(s)) {
			return false
		}
	}
	return true
}

// timeUntilWrite is how long it takes until something has to be written, or looked at again,
// in machine time; 0 for now.
func (l *pendingUsage) timeUntilWrite() time.Duration {
	if l.hasEnded() {
		return max(0, minWriteInterval-l.now.Sub(l.lastWrite))
	}
	wait := maxRequeueAfter
	if !l.isComplete {
		wait = minRequeueAfter
	}
	for _, s := range l.intervals {
		if s.user == "" || s.podStopped {
			continue
		}
		due := l.accountedFrom(s.usageInterval).Add(accountingInterval)
		if !due.After(l.accountableUntil(s)) {
			return max(0, min(wait, minRunningWriteInterval-l.now.Sub(l.lastWrite)))
		}
		wait = min(wait, max(minRequeueAfter, l.clock.RealUntil(due)+reportDelay))
	}
	return wait
}

const (
	// clockWaitTimeout is how long the clock of a workload that runs is waited for, in
	// machine time, before its use is put down to nobody.
	clockWaitTimeout = time.Minute
	// maxUserLength and longestPool are how long the names of a user and a node pool can
	// be in a record, in characters.
	maxUserLength, maxNodePoolLength = 1024, 53
)

// attribute finds out whose the stretches are of which that is not known yet. What
// runs waits until its workload is known, and a while for its clock; what has ended
// does not wait for long. What runs of one workload waits no longer than the first
// of it: its cursor is one, and would hide what is not in the records yet.
func (r *Reconciler) attribute(ctx context.Context, namespace string, l *pendingUsage) error {
	first := map[string]time.Time{} // since when a workload runs; zero where it is not waited for
	for _, s := range l.intervals {
		if s.clock == "" && s.user == "" {
			if name, known := r.ClockResolver.ClockOf(s.podIdentity(namespace)); known {
				s.clock = name.Name
			}
		}
		if s.clock == "" || !s.to.IsZero() {
			continue
		}
		since := laterTime(s.from, l.watchedSince)
		if s.user != "" {
			since = time.Time{}
		}
		if known, others := first[s.clock]; !others || since.Before(known) {
			first[s.clock] = since
		}
	}
	clocks := map[string]*v1alpha1.WorkloadClock{}
	for _, s := range l.intervals {
		if s.user != "" {
			continue
		}
		waited := l.now.Sub(first[s.clock]) > clockWaitTimeout
		if !s.to.IsZero() {
			waited = l.flush || l.now.Sub(s.to) > minWriteInterval
		}
		if s.clock == "" {
			l.isComplete = false
			if waited && !s.to.IsZero() {
				s.attributeTo(s.creator, "")
			}
			continue
		}
		found, looked := clocks[s.clock]
		if !looked {
			found = &v1alpha1.WorkloadClock{}
			if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.clock}, found); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading clock %s/%s: %w", namespace, s.clock, err)
			}
			clocks[s.clock] = found
		}
		switch {
		case found.Status.CreatedBy != "":
			s.attributeTo(found.Status.CreatedBy, found.Status.WorkloadType)
		case found.Status.RootUID != "" || waited:
			s.attributeTo(s.creator, found.Status.WorkloadType)
		default:
			l.isComplete = false
		}
	}
	return nil
}

// nodePoolOf is the node pool for which a pod was admitted.
func nodePoolOf(s *usageInterval) string {
	if s.pool == "" || len(s.pool) > maxNodePoolLength {
		return UnknownName
	}
	return s.pool
}

// attributeTo puts a stretch down to a user, as of the type that the pod is labeled,
// else of the workload's: a label may say anything.
func (s *usageInterval) attributeTo(user string, otherwise v1alpha1.WorkloadType) {
	if user == "" || utf8.RuneCountInString(user) > maxUserLength {
		user = UnknownName
	}
	s.user, s.workloadType = user, v1alpha1.WorkloadTrain
	for _, kind := range []v1alpha1.WorkloadType{otherwise, s.labeledType} {
		if slices.Contains(v1alpha1.WorkloadTypes, kind) {
			s.workloadType = kind
		}
	}
}
