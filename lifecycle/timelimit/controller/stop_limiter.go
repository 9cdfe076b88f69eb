// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// stopLimitWindow is the policy time within which stops are counted.
const stopLimitWindow = time.Hour

// stopLimiterRequeue is the retry interval of deferred stops, in machine time.
const stopLimiterRequeue = 30 * time.Second

// stopLimiterStateTTL is the time for which the ConfigMap is cached, in machine time: thousands of
// workloads can end at once.
const stopLimiterStateTTL = time.Second

// StopLimiter is a circuit breaker on mass stops in a department. It counts the ends that a
// changed limit or a step of the controller's own brought forward. If too many of them are
// due within an hour of policy time, it defers all of them in the department until an
// administrator releases it: they are more likely a mistake than intended. It never defers
// another end.
type StopLimiter struct {
	// Client reads WorkloadClocks and Projects from the cache and writes the ConfigMap.
	Client client.Client
	// Live reads the ConfigMap.
	Live client.Reader
	// MaxShare is the share of the department's running workloads, 0 to 1, that may be
	// stopped within the window. More stops than MaxShare and MaxCount engage the limiter.
	MaxShare float64
	// MaxCount is the number of a department's workloads that may be stopped within the
	// window.
	MaxCount int

	mu     sync.Mutex
	state  *corev1.ConfigMap
	readAt time.Time
	counts stopCounts
}

// isBroughtForward reports whether a changed limit, changed terms or a step of the controller's own
// bring an end for this reason forward. An idle workload, one whose limit did not change, and one
// whose project is suspended by unchanged terms end when they always would have. An administrator
// approved the deletion of a project, or confirmed it by its name.
func isBroughtForward(project *v1alpha1.Project, s *v1alpha1.WorkloadClockStatus, reason v1alpha1.EndReason, now time.Time) bool {
	switch reason {
	case v1alpha1.EndIdle, v1alpha1.EndProjectDeleted:
		return false
	case v1alpha1.EndProjectSuspended:
		return IsSuspendedEarly(project, now)
	case v1alpha1.EndMaxRuntime:
		return s.Limit != nil && s.Limit.ShortenedFrom != nil
	}
	return true
}

// IsSuspendedEarly reports whether changed terms brought the suspension of a project forward, which is
// in force or comes within the window: without them it would come later than now.
func IsSuspendedEarly(project *v1alpha1.Project, now time.Time) bool {
	status := &project.Status
	if status.Expiry == nil || status.Expiry.ShortenedFrom == nil || !status.Expiry.ShortenedFrom.After(now) {
		return false
	}
	comes := status.Next != nil && status.Next.Phase == v1alpha1.ProjectSuspended && status.Next.At.Time.Before(now.Add(stopLimitWindow))
	return comes || project.StopsWorkloads() == v1alpha1.EndProjectSuspended
}

// Allow reports whether a workload of the department, whose end was brought forward, may be
// stopped now.
func (l *StopLimiter) Allow(ctx context.Context, department string, now time.Time) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refreshState(ctx); err != nil {
		return false, err
	}
	state := ParseStopLimiterState(l.state, department)
	engaged := state.IsEngaged()
	if !engaged && !state.IsReleased(now) {
		count, err := l.refreshCount(ctx, department, now)
		if err != nil {
			return false, err
		}
		if l.exceedsLimit(count.due, count.running) {
			if err := l.engage(ctx, department, now, count); err != nil {
				return false, err
			}
			engaged = true
		}
	}
	gauge := 0.0
	if engaged {
		gauge = 1
	}
	stopLimiterEngaged.WithLabelValues(department).Set(gauge)
	return !engaged, nil
}

// refreshState reads the ConfigMap unless the cached one is fresh.
func (l *StopLimiter) refreshState(ctx context.Context) error {
	now := policytime.MachineNow()
	if l.state != nil && !now.Before(l.readAt) && now.Sub(l.readAt) <= stopLimiterStateTTL {
		return nil
	}
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}
	if err := l.Live.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the state of the stop limiter: %w", err)
	}
	l.state, l.readAt = object, now
	return nil
}

func (l *StopLimiter) exceedsLimit(due, running int) bool {
	return due > l.MaxCount && float64(due) > l.MaxShare*float64(running)
}

// stopCounts are the counts of all departments.
type stopCounts struct {
	departments map[string]*stopCount
	// countedAt is the time of the count in machine time, policyTime in policy time.
	countedAt, policyTime time.Time
}

// stopCount is a count of stops in a department.
type stopCount struct {
	// due is the number of workloads whose end was brought forward and is within the window,
	// or was within the last one. running is the number of workloads that ran.
	due, running int
	// allowed is the number of stops allowed since. Some of them can be missing in due.
	allowed int
}

// stopCountTTL is the time for which a count is cached, in either time, as long as the stops allowed
// since cannot exceed the limit. Counting reads all clocks.
const stopCountTTL = time.Second

// refreshCount returns the count of a department. It counts again unless the cached count is
// fresh.
func (l *StopLimiter) refreshCount(ctx context.Context, department string, now time.Time) (stopCount, error) {
	at := policytime.MachineNow()
	fresh := isFresh(at.Sub(l.counts.countedAt)) && isFresh(now.Sub(l.counts.policyTime))
	if last := l.counts.departments[department]; last != nil && fresh && !l.exceedsLimit(last.due+last.allowed+1, last.running) {
		last.allowed++
		return *last, nil
	}
	departments, err := l.countStops(ctx, now)
	if err != nil {
		return stopCount{}, err
	}
	l.counts = stopCounts{departments, at, now}
	if count := departments[department]; count != nil {
		return *count, nil
	}
	return stopCount{}, nil
}

func isFresh(d time.Duration) bool { return d >= 0 && d <= stopCountTTL }

// countStops counts in all clocks of the cache, without copies.
func (l *StopLimiter) countStops(ctx context.Context, now time.Time) (map[string]*stopCount, error) {
	projects, err := l.projectsByNamespace(ctx)
	if err != nil {
		return nil, err
	}
	var clocks v1alpha1.WorkloadClockList
	if err := l.Client.List(ctx, &clocks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list clocks to count stops: %w", err)
	}
	counts := map[string]*stopCount{}
	for i := range clocks.Items {
		project, known := projects[clocks.Items[i].Namespace]
		if !known {
			continue
		}
		count := counts[project.Spec.Department]
		if count == nil {
			count = &stopCount{}
			counts[project.Spec.Department] = count
		}
		s := &clocks.Items[i].Status
		ends := s.Deadline != nil && s.Deadline.At.Time.Before(now.Add(stopLimitWindow)) && isBroughtForward(project, s, s.Deadline.Reason, now) ||
			s.RunningSince != nil && s.Stopped == nil && IsSuspendedEarly(project, now)
		ended := s.Stopped != nil && s.Stopped.At.After(now.Add(-stopLimitWindow)) && isBroughtForward(project, s, s.Stopped.Reason, now)
		if ends || ended {
			count.due++
		}
		if ends || ended || s.RunningSince != nil {
			count.running++
		}
	}
	return counts, nil
}

// projectsByNamespace returns the projects, without copies, by their namespaces.
func (l *StopLimiter) projectsByNamespace(ctx context.Context) (map[string]*v1alpha1.Project, error) {
	var projects v1alpha1.ProjectList
	if err := l.Client.List(ctx, &projects, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list projects to count stops: %w", err)
	}
	byNamespace := make(map[string]*v1alpha1.Project, len(projects.Items))
	for i := range projects.Items {
		if namespace := projects.Items[i].Status.Namespace; namespace != nil {
			byNamespace[namespace.Name] = &projects.Items[i]
		}
	}
	return byNamespace, nil
}

// engage writes to the ConfigMap that the limiter is engaged in a department.
func (l *StopLimiter) engage(ctx context.Context, department string, now time.Time, count stopCount) error {
	ctrl.LoggerFrom(ctx).Error(nil, "Engaged stop limiter: ends that were brought forward are deferred until an administrator releases it",
		"department", department, "due", count.due, "running", count.running, "release", "sluice brake release "+department+" --for 2h")
	l.readAt = time.Time{}
	if err := l.refreshState(ctx); err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName, ResourceVersion: l.state.ResourceVersion, UID: l.state.UID,
	}, Data: l.state.Data}
	state := ParseStopLimiterState(object, department)
	state.EngagedAt, state.Due, state.Running = now.UTC().Truncate(time.Second), count.due, count.running
	state.Store(object, department)
	var err error
	if l.state.Name == "" {
		err = l.Client.Create(ctx, object)
	} else {
		err = l.Client.Update(ctx, object)
	}
	l.state = nil
	if err != nil {
		return fmt.Errorf("engage the stop limiter: %w", err)
	}
	return nil
}
