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

// stopLimitWindow is over how much policy time the workloads that end are counted.
const stopLimitWindow = time.Hour

// stopLimiterRequeue is how often what the brake holds is looked at, in machine time.
const stopLimiterRequeue = 30 * time.Second

// stopLimiterStateTTL is how long, in machine time, what its ConfigMap says is remembered:
// thousands of workloads may ask at once.
const stopLimiterStateTTL = time.Second

// StopLimiter keeps workloads from being stopped where very many would be within an
// hour of policy time: that is a mistake in somebody's limits far more often than
// it is meant. It stays engaged until an administrator releases it.
type StopLimiter struct {
	// Client reads WorkloadClocks from the cache and writes the ConfigMap.
	Client client.Client
	// Live reads the ConfigMap.
	Live client.Reader
	// MaxShare is the share of the running workloads, 0 to 1, and Number how many, that
	// may be stopped within the hour: what is more than both engages the brake.
	MaxShare float64
	// MaxCount: see Share.
	MaxCount int

	mu        sync.Mutex
	state     StopLimiterState
	readAt    time.Time
	lastCount stopCount
}

// Allow tells whether a workload may be stopped now.
func (b *StopLimiter) Allow(ctx context.Context, now time.Time) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refreshState(ctx); err != nil {
		return false, err
	}
	engaged := b.state.IsEngaged()
	if !engaged && !b.state.IsReleased(now) {
		if err := b.refreshCount(ctx, now); err != nil {
			return false, err
		}
		if b.exceedsLimit(b.lastCount.due, b.lastCount.running) {
			if err := b.engage(ctx, now, b.lastCount.due, b.lastCount.running); err != nil {
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

// refreshState reads what the ConfigMap says, unless that was done just now.
func (b *StopLimiter) refreshState(ctx context.Context) error {
	if now := policytime.MachineNow(); b.readAt.IsZero() || now.Before(b.readAt) || now.Sub(b.readAt) > stopLimiterStateTTL {
		object, err := b.readConfigMap(ctx)
		if err != nil {
			return err
		}
		b.state, b.readAt = ParseStopLimiterState(object), now
	}
	return nil
}

func (b *StopLimiter) readConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}
	if err := b.Live.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the brake: %w", err)
	}
	return &object, nil
}

func (b *StopLimiter) exceedsLimit(due, running int) bool {
	return due > b.MaxCount && float64(due) > b.MaxShare*float64(running)
}

// stopCount is what was counted last.
type stopCount struct {
	// due is how many workloads end within the hour, those of the last hour included,
	// and running how many ran.
	due, running int
	// allowed is how many were permitted since, of which some may not be in due.
	allowed int
	// countedAt is when that was, in machine time, and now in policy time.
	countedAt, policyTime time.Time
}

// stopCountTTL is how long what was counted is good, in either time, if what was
// permitted since cannot have made it too many: it is asked for at each of
// thousands of stops.
const stopCountTTL = time.Second

// refreshCount counts the workloads that end, unless that was done just now.
func (b *StopLimiter) refreshCount(ctx context.Context, now time.Time) error {
	t, at := &b.lastCount, policytime.MachineNow()
	if isFresh(at.Sub(t.countedAt)) && isFresh(now.Sub(t.policyTime)) && !b.exceedsLimit(t.due+t.allowed+1, t.running) {
		t.allowed++
		return nil
	}
	due, running, err := b.countStops(ctx, now)
	if err != nil {
		return err
	}
	b.lastCount = stopCount{due: due, running: running, countedAt: at, policyTime: now}
	return nil
}

func isFresh(d time.Duration) bool { return d >= 0 && d <= stopCountTTL }

// countStops looks at all clocks, and only at the cache's own objects.
func (b *StopLimiter) countStops(ctx context.Context, now time.Time) (due, running int, err error) {
	var clocks v1alpha1.WorkloadClockList
	if err := b.Client.List(ctx, &clocks, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("counting the workloads that end: %w", err)
	}
	for i := range clocks.Items {
		s := &clocks.Items[i].Status
		ends := s.Deadline != nil && s.Deadline.At.Time.Before(now.Add(stopLimitWindow))
		ended := s.Stopped != nil && s.Stopped.At.After(now.Add(-stopLimitWindow))
		if ends || ended {
			due++
		}
		// The time of one that is only idle may stand still, although it runs.
		if ends || ended || s.RunningSince != nil {
			running++
		}
	}
	return due, running, nil
}

// engage records that nothing is stopped until somebody decides.
func (b *StopLimiter) engage(ctx context.Context, now time.Time, due, running int) error {
	ctrl.LoggerFrom(ctx).Error(nil, "the brake is engaged: no workload is stopped until an administrator releases it",
		"due", due, "running", running, "release", "sluice brake release --for 2h")
	b.readAt = time.Time{}
	object, err := b.readConfigMap(ctx)
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
		err = b.Client.Create(ctx, object)
	} else {
		err = b.Client.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("recording that the brake is engaged: %w", err)
	}
	return nil
}

// StopLimiterConfigMapName is the name of the ConfigMap, in Sluice's own namespace, that says
// whether the brake is engaged.
const StopLimiterConfigMapName = "sluice-brake"

// The keys of that ConfigMap. Times are policy time, RFC 3339. An administrator
// releases the brake by writing until when; lifecycle writes the others.
const (
	StopLimiterEngagedAt     = "engagedAt"
	StopLimiterDue           = "due"
	StopLimiterRunning       = "running"
	StopLimiterReleasedUntil = "releasedUntil"
)

// StopLimiterState is what that ConfigMap says.
type StopLimiterState struct {
	// EngagedAt is when the brake was engaged last; zero for never.
	EngagedAt time.Time
	// Due is how many of the Running workloads were to be stopped within the hour.
	Due int
	// Running is how many ran then.
	Running int
	// ReleasedUntil is until when an administrator released it last; zero for never.
	ReleasedUntil time.Time
}

// ParseStopLimiterState reads the ConfigMap. What is not there, or cannot be read, is zero:
// then it is counted anew whether the brake is to be engaged.
func ParseStopLimiterState(object *corev1.ConfigMap) StopLimiterState {
	return StopLimiterState{
		EngagedAt: parseTime(object.Data[StopLimiterEngagedAt]), ReleasedUntil: parseTime(object.Data[StopLimiterReleasedUntil]),
		Due: parseCount(object.Data[StopLimiterDue]), Running: parseCount(object.Data[StopLimiterRunning]),
	}
}

// IsEngaged tells whether the brake was engaged since it was last released.
func (s StopLimiterState) IsEngaged() bool {
	return !s.EngagedAt.IsZero() && !s.EngagedAt.Before(s.ReleasedUntil)
}

// IsReleased tells whether the brake is released at an instant of policy time: then
// nothing engages it.
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
