// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// pausedUntil returns the end of the present or the last pause of Sluice in machine time, in which
// evictions are announced. It is zero if there was none.
func (a *Announcer) pausedUntil(ctx context.Context, now time.Time) (time.Time, error) {
	policyNow := a.Clock.Now()
	until, err := inventory.PausedUntil(ctx, a.Client, policyNow)
	switch {
	case err != nil || until.IsZero():
		return time.Time{}, err
	case policyNow.Before(until):
		return now.Add(a.Clock.RealUntil(until)), nil
	}
	// Where policy time runs faster, the pause ended later than this. Evictions that it held were moved before.
	return now.Add(-policyNow.Sub(until)), nil
}

// earlyEndTolerance is the time above the notice from which an eviction counts as held by a pause
// that ended early.
const earlyEndTolerance = time.Minute

// deadlineWithPause returns the time of an announced eviction. One that falls in a pause is moved to
// the notice after it, and back if the pause ends early. A pause that ended longer ago than one lasts held
// none of the present evictions. All times are machine time.
func deadlineWithPause(at, now, pausedUntil time.Time, notice time.Duration) time.Time {
	switch {
	case pausedUntil.IsZero():
	case at.Before(pausedUntil):
		return deadlineAfter(policytime.Later(pausedUntil, now), notice)
	case !now.Before(pausedUntil) && now.Sub(pausedUntil) < v1alpha1.MaxPause && at.After(now.Add(notice+earlyEndTolerance)):
		return deadlineAfter(now, notice)
	}
	return at
}

// move announces an eviction for another time. Notices of the former time that are not sent yet are
// superseded.
func (a *Announcer) move(ctx context.Context, announcement Announcement, at, pausedUntil time.Time) error {
	var err error
	for range maxAttempts {
		if err = a.moveOnce(ctx, &announcement, at, pausedUntil); !apierrors.IsConflict(err) {
			break
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("move the eviction of pod %s: %w", announcement.Pod, err)
	}
	return nil
}

func (a *Announcer) moveOnce(ctx context.Context, announcement *Announcement, at, pausedUntil time.Time) error {
	var pod corev1.Pod
	if err := a.Live.Get(ctx, announcement.Pod, &pod); err != nil {
		return err
	}
	known, ok := Parse(&pod)
	if !ok || !known.same(announcement) ||
		deadlineWithPause(known.At, a.machineNow(), pausedUntil, a.Periods.Notice).Equal(known.At) {
		return nil // it was moved already
	}
	project, department, err := inventory.TenantForNamespace(ctx, a.Client, pod.Namespace)
	if err != nil || project == nil {
		return err
	}
	if err := a.supersedeNotices(ctx, &pod, known); err != nil {
		return err
	}
	known.At = at
	if err := a.patchPod(ctx, &pod, known.annotations()); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Moved eviction", "namespace", pod.Namespace, "pod", pod.Name, "reason", known.Reason, "at", at)
	a.Events.Eventf(known.reference(), nil, corev1.EventTypeWarning, string(known.Reason), "Announce",
		"Because of a pause of Sluice, this pod will be evicted at %s", at.UTC().Format(time.RFC3339))
	return a.recordNotices(ctx, &known.Announcement, &pod, at, project, department)
}
