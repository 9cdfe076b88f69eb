// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
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

// stopLimiterStateTTL is how long the ConfigMap is cached, in machine time: thousands of
// workloads can end at once.
const stopLimiterStateTTL = time.Second

// StopLimiter is a circuit breaker on mass stops. If too many workloads would be stopped
// within an hour of policy time, it stops none until an administrator releases it: a mass
// stop is more likely a mistake in the limits than intended.
type StopLimiter struct {
	// Client reads WorkloadClocks from the cache and writes the ConfigMap.
	Client client.Client
	// Live reads the ConfigMap.
	Live client.Reader
	// MaxShare is the share of the running workloads, 0 to 1, that may be stopped within
	// the window. More stops than MaxShare and MaxCount engage the limiter.
	MaxShare float64
	// MaxCount is the number of workloads that may be stopped within the window.
	MaxCount int

	mu        sync.Mutex
	state     StopLimiterState
	readAt    time.Time
	lastCount stopCount
}

// Allow reports whether a workload may be stopped now.
func (l *StopLimiter) Allow(ctx context.Context, now time.Time) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refreshState(ctx); err != nil {
		return false, err
	}
	engaged := l.state.IsEngaged()
	if !engaged && !l.state.IsReleased(now) {
		if err := l.refreshCount(ctx, now); err != nil {
			return false, err
		}
		if l.exceedsLimit(l.lastCount.due, l.lastCount.running) {
			if err := l.engage(ctx, now, l.lastCount.due, l.lastCount.running); err != nil {
				return false, err
			}
			engaged = true
		}
	}
	stopLimiterEngaged.Set(0)
	if engaged {
		stopLimiterEngaged.Set(1)
	}
	return !engaged, nil
}

// refreshState reads the ConfigMap unless the cached state is fresh.
func (l *StopLimiter) refreshState(ctx context.Context) error {
	if now := policytime.MachineNow(); l.readAt.IsZero() || now.Before(l.readAt) || now.Sub(l.readAt) > stopLimiterStateTTL {
		object, err := l.readConfigMap(ctx)
		if err != nil {
			return err
		}
		l.state, l.readAt = ParseStopLimiterState(object), now
	}
	return nil
}

func (l *StopLimiter) readConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}
	if err := l.Live.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get the state of the stop limiter: %w", err)
	}
	return &object, nil
}

func (l *StopLimiter) exceedsLimit(due, running int) bool {
	return due > l.MaxCount && float64(due) > l.MaxShare*float64(running)
}

// stopCount is a count of stops.
type stopCount struct {
	// due is the number of workloads that end within the window or ended within the last
	// one. running is the number of workloads that ran.
	due, running int
	// allowed is the number of stops allowed since. Some of them can be missing in due.
	allowed int
	// countedAt is the time of the count in machine time, policyTime in policy time.
	countedAt, policyTime time.Time
}

// stopCountTTL is how long a count is cached, in either time, as long as the stops allowed
// since cannot exceed the limit. Counting reads all clocks.
const stopCountTTL = time.Second

// refreshCount counts the stops unless the cached count is fresh.
func (l *StopLimiter) refreshCount(ctx context.Context, now time.Time) error {
	last, at := &l.lastCount, policytime.MachineNow()
	if isFresh(at.Sub(last.countedAt)) && isFresh(now.Sub(last.policyTime)) && !l.exceedsLimit(last.due+last.allowed+1, last.running) {
		last.allowed++
		return nil
	}
	due, running, err := l.countStops(ctx, now)
	if err != nil {
		return err
	}
	l.lastCount = stopCount{due: due, running: running, countedAt: at, policyTime: now}
	return nil
}

func isFresh(d time.Duration) bool { return d >= 0 && d <= stopCountTTL }

// countStops counts in all clocks of the cache, without copies.
func (l *StopLimiter) countStops(ctx context.Context, now time.Time) (due, running int, err error) {
	var clocks v1alpha1.WorkloadClockList
	if err := l.Client.List(ctx, &clocks, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("list clocks to count stops: %w", err)
	}
	for i := range clocks.Items {
		s := &clocks.Items[i].Status
		ends := s.Deadline != nil && s.Deadline.At.Time.Before(now.Add(stopLimitWindow))
		ended := s.Stopped != nil && s.Stopped.At.After(now.Add(-stopLimitWindow))
		if ends || ended {
			due++
		}
		// An idle workload can run although its clock is paused.
		if ends || ended || s.RunningSince != nil {
			running++
		}
	}
	return due, running, nil
}

// engage writes to the ConfigMap that the limiter is engaged.
func (l *StopLimiter) engage(ctx context.Context, now time.Time, due, running int) error {
	ctrl.LoggerFrom(ctx).Error(nil, "Engaged stop limiter: no workload is stopped until an administrator releases it",
		"due", due, "running", running, "release", "sluice brake release --for 2h")
	l.readAt = time.Time{}
	object, err := l.readConfigMap(ctx)
	if err != nil {
		return err
	}
	missing := object.Name == ""
	object.ObjectMeta = metav1.ObjectMeta{
		Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName, ResourceVersion: object.ResourceVersion, UID: object.UID,
	}
	released, wasReleased := object.Data[StopLimiterReleasedUntil]
	object.Data = map[string]string{
		StopLimiterEngagedAt: now.UTC().Format(time.RFC3339), StopLimiterDue: strconv.Itoa(due), StopLimiterRunning: strconv.Itoa(running),
	}
	if wasReleased {
		object.Data[StopLimiterReleasedUntil] = released
	}
	if missing {
		err = l.Client.Create(ctx, object)
	} else {
		err = l.Client.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("engage the stop limiter: %w", err)
	}
	return nil
}

// StopLimiterConfigMapName is the name of the ConfigMap, in Sluice's namespace, with the
// state of the stop limiter.
const StopLimiterConfigMapName = "sluice-stop-limiter"

// The keys of that ConfigMap. Times are policy time, RFC 3339. An administrator writes
// releasedUntil; lifecycle writes the others.
const (
	StopLimiterEngagedAt     = "engagedAt"
	StopLimiterDue           = "stopsDue"
	StopLimiterRunning       = "runningWorkloads"
	StopLimiterReleasedUntil = "releasedUntil"
)

// StopLimiterState is the state of the stop limiter.
type StopLimiterState struct {
	// EngagedAt is when the limiter was last engaged; zero for never.
	EngagedAt time.Time
	// Due is the number of the Running workloads that would have been stopped within the window.
	Due int
	// Running is the number of workloads that ran at EngagedAt.
	Running int
	// ReleasedUntil is the end of the last release by an administrator; zero for never.
	ReleasedUntil time.Time
}

// ParseStopLimiterState reads the ConfigMap. A missing or malformed value is zero, so that
// the limiter counts again.
func ParseStopLimiterState(object *corev1.ConfigMap) StopLimiterState {
	return StopLimiterState{
		EngagedAt: parseTime(object.Data[StopLimiterEngagedAt]), ReleasedUntil: parseTime(object.Data[StopLimiterReleasedUntil]),
		Due: parseCount(object.Data[StopLimiterDue]), Running: parseCount(object.Data[StopLimiterRunning]),
	}
}

// IsEngaged reports whether the limiter was engaged after its last release.
func (s StopLimiterState) IsEngaged() bool {
	return !s.EngagedAt.IsZero() && !s.EngagedAt.Before(s.ReleasedUntil)
}

// IsReleased reports whether a release is in force at a policy time. Then nothing engages
// the limiter.
func (s StopLimiterState) IsReleased(now time.Time) bool { return now.Before(s.ReleasedUntil) }

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

func parseCount(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
