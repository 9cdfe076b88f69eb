// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// brakeWindow is over how much policy time the workloads that end are counted.
const brakeWindow = time.Hour

// brakeLook is how often what the brake holds is looked at, in machine time.
const brakeLook = 30 * time.Second

// brakeFresh is how long, in machine time, what its ConfigMap says is remembered:
// thousands of workloads may ask at once.
const brakeFresh = time.Second

// Brake keeps workloads from being stopped where very many would be within an
// hour of policy time: that is a mistake in somebody's limits far more often than
// it is meant. It stays engaged until an administrator releases it.
type Brake struct {
	// Client reads WorkloadClocks from the cache and writes the ConfigMap.
	Client client.Client
	// Live reads the ConfigMap.
	Live client.Reader
	// Share is the share of the running workloads, 0 to 1, and Number how many, that
	// may be stopped within the hour: what is more than both engages the brake.
	Share float64
	// Number: see Share.
	Number int

	mu     sync.Mutex
	state  BrakeState
	readAt time.Time
	last   tally
}

// Permits tells whether a workload may be stopped now.
func (b *Brake) Permits(ctx context.Context, now time.Time) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.look(ctx); err != nil {
		return false, err
	}
	engaged := b.state.Engaged()
	if !engaged && !b.state.Released(now) {
		if err := b.count(ctx, now); err != nil {
			return false, err
		}
		if b.tooMany(b.last.due, b.last.running) {
			if err := b.engage(ctx, now, b.last.due, b.last.running); err != nil {
				return false, err
			}
			engaged = true
		}
	}
	brakeEngaged.Set(0)
	if engaged {
		brakeEngaged.Set(1)
	}
	return !engaged, nil
}

// look reads what the ConfigMap says, unless that was done just now.
func (b *Brake) look(ctx context.Context) error {
	if now := clock.MachineNow(); b.readAt.IsZero() || now.Before(b.readAt) || now.Sub(b.readAt) > brakeFresh {
		object, err := b.read(ctx)
		if err != nil {
			return err
		}
		b.state, b.readAt = BrakeStateOf(object), now
	}
	return nil
}

func (b *Brake) read(ctx context.Context) (*corev1.ConfigMap, error) {
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: BrakeName}
	if err := b.Live.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the brake: %w", err)
	}
	return &object, nil
}

func (b *Brake) tooMany(due, running int) bool {
	return due > b.Number && float64(due) > b.Share*float64(running)
}

// tally is what was counted last.
type tally struct {
	// due is how many workloads end within the hour, those of the last hour included,
	// and running how many ran.
	due, running int
	// permitted is how many were permitted since, of which some may not be in due.
	permitted int
	// at is when that was, in machine time, and now in policy time.
	at, now time.Time
}

// tallyFresh is how long what was counted is good, in either time, if what was
// permitted since cannot have made it too many: it is asked for at each of
// thousands of stops.
const tallyFresh = time.Second

// count counts the workloads that end, unless that was done just now.
func (b *Brake) count(ctx context.Context, now time.Time) error {
	t, at := &b.last, clock.MachineNow()
	if within(at.Sub(t.at)) && within(now.Sub(t.now)) && !b.tooMany(t.due+t.permitted+1, t.running) {
		t.permitted++
		return nil
	}
	due, running, err := b.ending(ctx, now)
	if err != nil {
		return err
	}
	b.last = tally{due: due, running: running, at: at, now: now}
	return nil
}

func within(d time.Duration) bool { return d >= 0 && d <= tallyFresh }

// ending looks at all clocks, and only at the cache's own objects.
func (b *Brake) ending(ctx context.Context, now time.Time) (due, running int, err error) {
	var clocks v1alpha1.WorkloadClockList
	if err := b.Client.List(ctx, &clocks, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("counting the workloads that end: %w", err)
	}
	for i := range clocks.Items {
		s := &clocks.Items[i].Status
		ends := s.Deadline != nil && s.Deadline.At.Time.Before(now.Add(brakeWindow))
		ended := s.Stopped != nil && s.Stopped.At.After(now.Add(-brakeWindow))
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
func (b *Brake) engage(ctx context.Context, now time.Time, due, running int) error {
	ctrl.LoggerFrom(ctx).Error(nil, "the brake is engaged: no workload is stopped until an administrator releases it",
		"due", due, "running", running, "release", "sluice brake release --for 2h")
	b.readAt = time.Time{}
	object, err := b.read(ctx)
	if err != nil {
		return err
	}
	missing := object.Name == ""
	object.ObjectMeta = metav1.ObjectMeta{
		Namespace: v1alpha1.SystemNamespace, Name: BrakeName, ResourceVersion: object.ResourceVersion, UID: object.UID,
	}
	released, wasReleased := object.Data[BrakeReleasedUntil]
	object.Data = map[string]string{
		BrakeEngagedAt: now.UTC().Format(time.RFC3339), BrakeDue: strconv.Itoa(due), BrakeRunning: strconv.Itoa(running),
	}
	if wasReleased {
		object.Data[BrakeReleasedUntil] = released
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
