// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// reportDelay is how late the start of a pod may be reported without an error after a
	// crash, in machine time. Running pods are counted until this long ago.
	reportDelay = 10 * time.Second
	// minWriteInterval is the minimum time between two writes of a project, in machine time,
	// and minRunningWriteInterval that without ended pods.
	minWriteInterval        = 10 * time.Second
	minRunningWriteInterval = time.Minute
	// startTimeout is the time, in machine time, that running pods of a namespace without a write wait for the
	// workloads of the others. Lifecycle knows the workloads of 100,000 pods within two minutes after its start.
	startTimeout = 5 * time.Minute
	// accountingInterval is the longest time for which running pods are not counted, in
	// policy time.
	accountingInterval = time.Hour
	// maxRequeueAfter is the longest requeue delay, in machine time, because policy time can
	// be stepped.
	maxRequeueAfter = time.Minute
	// minRequeueAfter is the requeue delay while data is expected soon, in machine time.
	minRequeueAfter = time.Second
	// maxZoneDifference exceeds the largest difference between two time zones.
	maxZoneDifference = 27 * time.Hour
)

// pendingUsage is the usage in a namespace that no record includes, at one moment.
type pendingUsage struct {
	*namespaceUsage
	clock    policytime.Clock
	activity *activityTracker
	// now is machine time. runningUntil is until when running pods are counted, in policy
	// time.
	now, runningUntil time.Time
	intervals         []observedInterval
	// isComplete is true if the workloads of all running pods are known. flush is true if the
	// process exits and cannot wait.
	isComplete, flush bool
}

// computePending computes the pending usage of a namespace and its users.
func (r *Reconciler) computePending(ctx context.Context, namespace string, a *namespaceUsage, flush bool) (*pendingUsage, error) {
	_, all := r.tracker.snapshot(namespace)
	if !a.loaded {
		if err := r.loadRecords(ctx, a.recordState, all); err != nil {
			return nil, err
		}
	}
	if err := r.resolvePendingWrites(ctx, a.recordState); err != nil {
		return nil, err
	}
	l := &pendingUsage{namespaceUsage: a, clock: policytime.Snapshot(r.Clock), activity: &r.activity, now: policytime.MachineNow(), intervals: all, isComplete: true, flush: flush}
	l.runningUntil = l.toPolicyTime(l.now.Add(-reportDelay))
	if err := r.attribute(ctx, namespace, l); err != nil {
		return nil, err
	}
	r.tracker.dropEnded(a, func(s *usageInterval) bool { return !l.accountedFrom(s).Before(l.toPolicyTime(s.to.time())) })
	return l, nil
}

// toPolicyTime converts machine time to policy time in whole seconds.
func (l *pendingUsage) toPolicyTime(at time.Time) time.Time {
	return truncateToSecond(l.clock.FromReal(at))
}

// accountedFrom returns until when an interval is included in records, or its start.
func (l *pendingUsage) accountedFrom(s *usageInterval) time.Time {
	return laterTime(laterTime(l.startOf(s), s.accountedUntil.time()), laterTime(l.owner.createdAt, l.cursorFloor(s.clock())))
}

// startOf returns the start of an interval. If policy time was stepped within that second, the
// start is after the step: users are not charged for the step.
func (l *pendingUsage) startOf(s *usageInterval) time.Time {
	from, by := l.toPolicyTime(s.from.time()), l.toPolicyTime(s.startedBy.time())
	if by.Sub(from) > policytime.MaxScale*time.Second {
		return by
	}
	return from
}

// accountableUntil returns until when an interval can be counted now. If the pod may still be
// found running, it is limited by the cursors.
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

// hasEnded reports whether an ended pod has usage that no record includes.
func (l *pendingUsage) hasEnded() bool {
	return slices.ContainsFunc(l.intervals, func(s observedInterval) bool {
		return s.podStopped && s.user() != "" && l.accountedFrom(s.usageInterval).Before(l.accountableUntil(s))
	})
}

// isIdle reports whether no pod runs and no usage is pending.
func (l *pendingUsage) isIdle() bool {
	for _, s := range l.intervals {
		if s.to.IsZero() || l.accountedFrom(s.usageInterval).Before(l.accountableUntil(s)) {
			return false
		}
	}
	return true
}

// timeUntilWrite returns the time until the next write or check, in machine time. 0 means now.
func (l *pendingUsage) timeUntilWrite() time.Duration {
	if l.hasEnded() {
		return max(0, minWriteInterval-l.now.Sub(l.lastWrite))
	}
	wait := maxRequeueAfter
	if !l.isComplete {
		wait = minRequeueAfter
		if l.now.Sub(l.watchedSince) < startTimeout {
			return wait // one write has them all
		}
	}
	for _, s := range l.intervals {
		if s.user() == "" || s.podStopped {
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
	// clockWaitTimeout is the time for which a running workload waits for its clock, in machine time,
	// before its usage is attributed to UnknownName.
	clockWaitTimeout = time.Minute
	// maxUserLength is the length of the longest name of a user in a record, in characters.
	maxUserLength = 1024
)

// attribute finds the users of intervals without one. Running pods wait until their workload is
// known, and for clockWaitTimeout for its clock; ended pods wait less. All running pods of a
// workload wait only as long as the first one: they share a cursor, which would otherwise hide
// usage that no record includes.
func (r *Reconciler) attribute(ctx context.Context, namespace string, l *pendingUsage) error {
	first := map[string]time.Time{} // since when a workload runs; zero if it does not wait
	for _, s := range l.intervals {
		by := s.attribution.Value()
		if by.clock == "" && by.user == "" {
			if name, known := r.ClockResolver.ClockOf(s.podIdentity(namespace)); known {
				s.setClock(name.Name)
				by.clock = name.Name
			}
		}
		if by.clock == "" || !s.to.IsZero() {
			continue
		}
		since := laterTime(s.from.time(), l.watchedSince)
		if by.user != "" {
			since = time.Time{}
		}
		if known, seenBefore := first[by.clock]; !seenBefore || since.Before(known) {
			first[by.clock] = since
		}
	}
	clocks := map[string]*v1alpha1.WorkloadClock{}
	for _, s := range l.intervals {
		by := s.attribution.Value()
		if by.user != "" {
			continue
		}
		timedOut := l.now.Sub(first[by.clock]) > clockWaitTimeout
		if !s.to.IsZero() {
			timedOut = l.flush || l.now.Sub(s.to) > minWriteInterval
		}
		if by.clock == "" {
			l.isComplete = false
			if timedOut && !s.to.IsZero() {
				s.attributeTo(s.origin.Value().creator, "")
			}
			continue
		}
		clock, cached := clocks[by.clock]
		if !cached {
			clock = &v1alpha1.WorkloadClock{}
			if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: by.clock}, clock); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("get clock %s/%s: %w", namespace, by.clock, err)
			}
			clocks[by.clock] = clock
		}
		switch {
		case clock.Status.CreatedBy != "":
			s.attributeTo(clock.Status.CreatedBy, clock.Status.WorkloadType)
		case clock.Status.RootUID != "" || timedOut:
			s.attributeTo(s.origin.Value().creator, clock.Status.WorkloadType)
		default:
			l.isComplete = false
		}
	}
	return nil
}

// nodePoolOf returns the node pool for which a pod was admitted.
func nodePoolOf(s *usageInterval) string {
	pool := s.origin.Value().pool
	if pool == "" || len(pool) > v1alpha1.MaxNodePoolName {
		return UnknownName
	}
	return pool
}

// attributeTo sets the user of an interval, and its type: the pod's label if it is valid, else
// the workload's type.
func (s *usageInterval) attributeTo(user string, workloadType v1alpha1.WorkloadType) {
	if user == "" || utf8.RuneCountInString(user) > maxUserLength {
		user = UnknownName
	}
	by := intervalAttribution{s.clock(), user, v1alpha1.WorkloadTrain}
	for _, kind := range []v1alpha1.WorkloadType{workloadType, s.origin.Value().labeledType} {
		if slices.Contains(v1alpha1.WorkloadTypes, kind) {
			by.workloadType = kind
		}
	}
	s.attribution = unique.Make(by)
}
