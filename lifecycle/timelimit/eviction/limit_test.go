// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// newDueFixture returns a fixture with announced pods of one node, whose deadline and first window have passed.
func newDueFixture(t *testing.T, count int) *fixture {
	t.Helper()
	var pods []client.Object
	for i := range count {
		pods = append(pods, newPod(fmt.Sprintf("p%d", i), "n"))
	}
	f := newFixture(t, pods...)
	f.reconcile()
	for i := range count {
		if err := f.r.Announcer.Announce(t.Context(), preempted(fmt.Sprintf("p%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	f.now = f.now.Add(6 * time.Minute)
	return f
}

func TestLimitWithSlowAPIServer(t *testing.T) {
	f := newDueFixture(t, 4)
	slow := 70 * time.Second
	f.r.Checks = map[v1alpha1.EndReason]Check{v1alpha1.EndPreempted: func(context.Context, Announcement) (string, error) {
		f.now, slow = f.now.Add(slow), 0 // the first answer is slow
		return "", nil
	}}
	f.evictAll(4)
}

// An answer that is lost says nothing about the eviction, so that it counts.
func TestLimitWithLostAnswers(t *testing.T) {
	f := newDueFixture(t, 4)
	f.lostAnswers = true
	f.evictAll(4)
}

// evictAll reconciles until all pods are evicted, and guards the limit of their node.
func (f *fixture) evictAll(count int) {
	var times []time.Time
	f.onEviction = func(*corev1.Pod, bool) { times = append(times, f.now) }
	for range 30 {
		f.now = f.now.Add(f.reconcile())
	}
	if len(times) != count {
		f.Errorf("%d pods were evicted, want %d", len(times), count)
	}
	for i := 2; i < len(times); i++ {
		if between := times[i].Sub(times[i-2]); between < evictionWindow {
			f.Errorf("three evictions within %s", between)
		}
	}
}
