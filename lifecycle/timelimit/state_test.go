// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// Protects invariant 11: a workload of several pods is not shown as Finished between them, and a
// deleted one is not shown as Finished.
func TestStateOfEndedWorkload(t *testing.T) {
	now := time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC)
	limits := timelimit.EffectiveLimits{Limits: v1alpha1.Limits{ResetAfter: period.MustParseDuration("1h")}}
	ended := v1alpha1.WorkloadClockStatus{AccumulatedSeconds: 60, PausedSince: &metav1.Time{Time: now}, CompletedAt: &metav1.Time{Time: now}}
	tests := map[string]struct {
		observed timelimit.Observation
		want     v1alpha1.ClockState
	}{
		"without pods":               {timelimit.Observation{}, v1alpha1.ClockStateFinished},
		"with a pod without a node":  {timelimit.Observation{HasPods: true}, v1alpha1.ClockStatePaused},
		"with a pod that starts":     {timelimit.Observation{HasPods: true, StartingSince: now}, v1alpha1.ClockStatePaused},
		"with a pod that runs":       {timelimit.Observation{HasPods: true, Running: true, RunningSince: now}, v1alpha1.ClockStateRunning},
		"deleted after it completed": {timelimit.Observation{Missing: true}, v1alpha1.ClockStateDeleted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := timelimit.Decide(now, ended, tc.observed, limits).Status.State; got != tc.want {
				t.Errorf("state %s, want %s", got, tc.want)
			}
		})
	}
}
