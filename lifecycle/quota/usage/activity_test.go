// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

var activityStart = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newSample returns a sample of the pod u. A negative last use is an unknown one.
func newSample(sampled, lastActive time.Duration) *v1alpha1.GPUNode {
	use := v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: "u"}}
	if lastActive >= 0 {
		use.LastActive = &metav1.Time{Time: activityStart.Add(lastActive)}
	}
	return &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{
		SampledAt: &metav1.Time{Time: activityStart.Add(sampled)}, Pods: []v1alpha1.PodUsage{use},
	}}
}

func sameTime(at time.Time) time.Time { return at }

// Used and idle is only what the agents measured. Guards invariant 11.
func TestActivity(t *testing.T) {
	const second, minute = time.Second, time.Minute
	for name, tc := range map[string]struct {
		samples      [][2]time.Duration // sampled, last active
		from, to     time.Duration
		active, idle time.Duration
	}{
		"no agent":                   {nil, 0, minute, 0, 0},
		"active":                     {[][2]time.Duration{{0, 0}, {30 * second, 30 * second}, {minute, minute}}, 0, minute, minute, 0},
		"idle":                       {[][2]time.Duration{{0, 0}, {minute, 0}, {2 * minute, 0}}, 0, 2 * minute, 0, 2 * minute},
		"active, then idle":          {[][2]time.Duration{{0, 0}, {minute, 40 * second}, {2 * minute, 40 * second}}, 0, 2 * minute, 40 * second, 80 * second},
		"idle, then active":          {[][2]time.Duration{{0, 0}, {minute, 0}, {2 * minute, 2 * minute}}, 0, 2 * minute, minute, minute},
		"unknown":                    {[][2]time.Duration{{0, -1}, {minute, -1}}, 0, minute, 0, 0},
		"unknown, then known":        {[][2]time.Duration{{0, -1}, {minute, minute}, {2 * minute, 2 * minute}}, 0, 2 * minute, minute, 0},
		"before the first sample":    {[][2]time.Duration{{minute, minute}, {2 * minute, 2 * minute}}, 0, 2 * minute, minute, 0},
		"since the last sample":      {[][2]time.Duration{{0, 0}, {minute, minute}}, 0, 2 * minute, 2 * minute, 0},
		"since an idle sample":       {[][2]time.Duration{{0, 0}, {minute, 0}}, 0, 2 * minute, 0, 2 * minute},
		"long since the last sample": {[][2]time.Duration{{0, 0}, {minute, minute}}, 0, 10 * minute, 4 * minute, 0},
		"a gap between samples":      {[][2]time.Duration{{0, 0}, {5 * minute, 5 * minute}, {6 * minute, 6 * minute}}, 0, 6 * minute, minute, 0},
		"a part":                     {[][2]time.Duration{{0, 0}, {minute, minute}, {2 * minute, minute}}, 30 * second, 90 * second, 30 * second, 30 * second},
		"a clock that was set back":  {[][2]time.Duration{{0, 0}, {minute, minute}, {30 * second, 30 * second}}, 0, minute, minute, 0},
	} {
		var tracker activityTracker
		for _, sample := range tc.samples {
			tracker.handleGPUNode(t.Context(), newSample(sample[0], sample[1]))
		}
		active, idle := tracker.during("u", activityStart.Add(tc.from), activityStart.Add(tc.to), sameTime)
		if active != tc.active || idle != tc.idle {
			t.Errorf("%s: active %s, idle %s; want %s, %s", name, active, idle, tc.active, tc.idle)
		}
	}
}

// In any history no part of a time counts twice: what is used and what is idle never exceed it, and
// adjacent parts add up to the whole.
func TestActivityProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tracker activityTracker
		at, last := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(0, 700).Draw(t, "samples") {
			at += time.Duration(rapid.IntRange(1, 240).Draw(t, "seconds")) * time.Second
			if rapid.Bool().Draw(t, "active") {
				last = at
			}
			use := last
			if rapid.IntRange(0, 9).Draw(t, "known") == 0 {
				use = -1
			}
			tracker.handleGPUNode(t.Context(), newSample(at, use))
		}
		whole := rapid.Int64Range(1, int64(at/time.Second)+600).Draw(t, "to")
		part := rapid.Int64Range(0, whole).Draw(t, "part")
		sum := func(from, to int64) (active, idle time.Duration) {
			active, idle = tracker.during("u", activityStart.Add(time.Duration(from)*time.Second),
				activityStart.Add(time.Duration(to)*time.Second), sameTime)
			if length := time.Duration(to-from) * time.Second; active < 0 || idle < 0 || active+idle > length {
				t.Fatalf("of %s it was active for %s, and idle for %s", length, active, idle)
			}
			return active, idle
		}
		active, idle := sum(0, whole)
		a1, u1 := sum(0, part)
		a2, u2 := sum(part, whole)
		if a1+a2 != active || u1+u2 != idle {
			t.Fatalf("parts of %s and %s, %s and %s idle; the whole has %s and %s", a1, a2, u1, u2, active, idle)
		}
		if p := tracker.pods["u"]; p != nil && len(p.spans) > maxSpans {
			t.Fatalf("%d spans", len(p.spans))
		}
	})
}
