// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// pause sets the pause of the cluster from now on.
func (f *fixture) pause(length time.Duration) {
	f.Helper()
	var parameters v1alpha1.AdmissionParameters
	if err := f.client.Get(context.Background(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		f.Fatal(err)
	}
	parameters.Status.Pause = &v1alpha1.Pause{Since: metav1.NewTime(f.now), Until: metav1.NewTime(f.now.Add(length)), By: "root", Reason: "x"}
	if err := f.client.Update(context.Background(), &parameters); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) announcedAt(name string) time.Time {
	f.Helper()
	if pod := f.getPod(name); pod != nil {
		if p, ok := Parse(pod); ok {
			return p.At
		}
	}
	f.Errorf("pod %s is not announced", name)
	return time.Time{}
}

// A pause moves an announced eviction to the notice after it, and one that ends early brings it forward to the notice from
// then. Announced in a pause, the eviction comes the notice after it. Each time is announced at least the notice before.
func TestPauseMovesEvictions(t *testing.T) {
	tests := map[string]struct {
		live func(f *fixture)
		want time.Duration
	}{
		"without a pause": {func(f *fixture) { f.pass(3 * time.Hour) }, 5 * time.Minute},
		"a pause":         {func(f *fixture) { f.pass(time.Minute); f.pause(time.Hour); f.pass(3 * time.Hour) }, 66 * time.Minute},
		"a pause that ends early": {func(f *fixture) {
			f.pass(time.Minute)
			f.pause(time.Hour)
			f.pass(9 * time.Minute)
			f.resume()
			f.pass(3 * time.Hour)
		}, 15 * time.Minute},
		"prolonged": {func(f *fixture) {
			f.pass(time.Minute)
			f.pause(time.Hour)
			f.pass(50 * time.Minute)
			f.pause(time.Hour)
			f.pass(3 * time.Hour)
		}, 116 * time.Minute},
		"lifecycle away meanwhile": {func(f *fixture) {
			f.pass(time.Minute)
			f.pause(time.Hour)
			f.now = f.now.Add(2 * time.Hour)
			f.restart()
			f.pass(3 * time.Hour)
		}, 126 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newPod("a", "dgx-1"), &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}})
			var evicted time.Time
			f.onEviction = func(pod *corev1.Pod, _ bool) {
				evicted = f.now
				if at := f.announcedAt(pod.Name); at.After(f.now) {
					t.Errorf("evicted at %s, announced for %s", f.now, at)
				}
			}
			f.reconcile()
			if err := f.r.Announcer.Announce(t.Context(), preempted("a")); err != nil {
				t.Fatal(err)
			}
			tc.live(f)
			if got := evicted.Sub(testTime); evicted.IsZero() || got < tc.want || got > tc.want+evictionWindow {
				t.Errorf("evicted after %s, want %s", got, tc.want)
			}
			warned := false
			for _, n := range f.notices() {
				warned = warned || n.Spec.Deadline.Time.Equal(testTime.Add(tc.want)) || !n.Spec.Deadline.After(evicted)
			}
			if !warned {
				t.Error("no Notice has the time of the eviction, or an earlier one")
			}
		})
	}
	t.Run("announced in a pause", func(t *testing.T) {
		f := newFixture(t, newPod("a", "dgx-1"), &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}})
		f.pause(time.Hour)
		if err := f.r.Announcer.Announce(t.Context(), preempted("a")); err != nil {
			t.Fatal(err)
		}
		if at := f.announcedAt("a"); at.Sub(testTime) != 65*time.Minute {
			t.Errorf("announced for %s, want the notice after the pause", at)
		}
	})
}

// resume ends the pause now.
func (f *fixture) resume() {
	f.Helper()
	var parameters v1alpha1.AdmissionParameters
	if err := f.client.Get(context.Background(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		f.Fatal(err)
	}
	parameters.Status.Pause.Until = metav1.NewTime(f.now)
	if err := f.client.Update(context.Background(), &parameters); err != nil {
		f.Fatal(err)
	}
}

// A pause of another day does not bring evictions forward that a longer notice announced before lifecycle's configuration
// changed.
func TestFormerPauseKeepsAnnouncedTimes(t *testing.T) {
	const notice = 5 * time.Minute
	at := testTime.Add(30 * time.Minute)
	for name, tc := range map[string]struct{ pausedUntil, want time.Time }{
		"none":              {time.Time{}, at},
		"ended just now":    {testTime.Add(-time.Second), deadlineAfter(testTime, notice)},
		"ended 2 days ago":  {testTime.Add(-48 * time.Hour), at},
		"ended a month ago": {testTime.Add(-720 * time.Hour), at},
	} {
		if got := deadlineWithPause(at, testTime, tc.pausedUntil, notice); !got.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
