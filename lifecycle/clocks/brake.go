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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// BrakeName is the name of the ConfigMap, in Sluice's own namespace, that says
// whether the brake is engaged.
const BrakeName = "sluice-brake"

// The keys of that ConfigMap. Times are policy time, RFC 3339. An administrator
// releases the brake by writing until when; lifecycle writes the others.
const (
	BrakeEngagedAt     = "engagedAt"
	BrakeDue           = "due"
	BrakeRunning       = "running"
	BrakeReleasedUntil = "releasedUntil"
)

// brakeWindow is over how much policy time the workloads that end are counted.
const brakeWindow = time.Hour

// brakeLook is how often what the brake holds is looked at, in machine time.
const brakeLook = 30 * time.Second

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

	mu sync.Mutex
}

// Permits tells whether a workload may be stopped now.
func (b *Brake) Permits(ctx context.Context, now time.Time) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var state corev1.ConfigMap
	err := b.Live.Get(ctx, b.key(), &state)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the brake: %w", err)
	}
	if released, err := time.Parse(time.RFC3339, state.Data[BrakeReleasedUntil]); err == nil {
		if now.Before(released) {
			brakeEngaged.Set(0)
			return true, nil
		}
	}
	due, running, err := b.count(ctx, now)
	if err != nil {
		return false, err
	}
	if !b.tooMany(due, running) && !engaged(&state) {
		brakeEngaged.Set(0)
		return true, nil
	}
	brakeEngaged.Set(1)
	if engaged(&state) {
		return false, nil
	}
	return false, b.engage(ctx, &state, now, due, running)
}

// engaged tells whether the brake was engaged since it was last released.
func engaged(state *corev1.ConfigMap) bool {
	at, err := time.Parse(time.RFC3339, state.Data[BrakeEngagedAt])
	if err != nil {
		return false
	}
	released, err := time.Parse(time.RFC3339, state.Data[BrakeReleasedUntil])
	return err != nil || at.After(released)
}

func (b *Brake) tooMany(due, running int) bool {
	return due > b.Number && float64(due) > b.Share*float64(running)
}

// count is how many workloads end within the hour, those of the last hour
// included, and how many ran.
func (b *Brake) count(ctx context.Context, now time.Time) (due, running int, err error) {
	var clocks v1alpha1.WorkloadClockList
	if err := b.Client.List(ctx, &clocks); err != nil {
		return 0, 0, fmt.Errorf("counting the workloads that end: %w", err)
	}
	for i := range clocks.Items {
		s := &clocks.Items[i].Status
		ends := s.Deadline != nil && s.Deadline.At.Time.Before(now.Add(brakeWindow))
		ended := s.Stopped != nil && s.Stopped.At.After(now.Add(-brakeWindow))
		if ends || ended {
			due++
		}
		if s.RunningSince != nil || ended {
			running++
		}
	}
	return due, running, nil
}

// engage records that nothing is stopped until somebody decides.
func (b *Brake) engage(ctx context.Context, state *corev1.ConfigMap, now time.Time, due, running int) error {
	ctrl.LoggerFrom(ctx).Error(nil, "the brake is engaged: no workload is stopped until an administrator releases it",
		"due", due, "running", running, "release", "sluice brake release --for 2h")
	missing := state.Name == ""
	state.ObjectMeta = metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: BrakeName, ResourceVersion: state.ResourceVersion}
	released := state.Data[BrakeReleasedUntil]
	state.Data = map[string]string{
		BrakeEngagedAt: now.UTC().Format(time.RFC3339), BrakeDue: strconv.Itoa(due), BrakeRunning: strconv.Itoa(running),
	}
	if released != "" {
		state.Data[BrakeReleasedUntil] = released
	}
	var err error
	if missing {
		err = b.Client.Create(ctx, state)
	} else {
		err = b.Client.Update(ctx, state)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("recording that the brake is engaged: %w", err)
	}
	return nil
}

func (b *Brake) key() client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: BrakeName}
}
