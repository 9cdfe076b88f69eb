// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
)

// A step that falls in a pause of Sluice comes its shortest lead, a day, after the pause; another one on time.
func TestPauseHoldsSteps(t *testing.T) {
	onTime := time.Date(2026, 9, 4, 0, 0, 0, 0, berlin(t))
	for name, tc := range map[string]struct {
		since, length, early time.Duration // before onTime
		want                 time.Time
	}{
		"before it":       {since: 30 * time.Hour, length: 24 * time.Hour, want: onTime},
		"across it":       {since: 12 * time.Hour, length: 24 * time.Hour, want: time.Date(2026, 9, 6, 0, 0, 0, 0, berlin(t))},
		"ended before it": {since: 12 * time.Hour, length: 24 * time.Hour, early: 11 * time.Hour, want: time.Date(2026, 9, 6, 0, 0, 0, 0, berlin(t))},
		"just before it":  {since: time.Minute, length: time.Hour, want: time.Date(2026, 9, 6, 0, 0, 0, 0, berlin(t))},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(berlin(t), "P6M", v1alpha1.ExpiryExpire)
			begin, end := onTime.Add(-tc.since), onTime.Add(-tc.since+tc.length)
			for range 1000 {
				if tc.length > 0 && h.pausedUntil.IsZero() && !h.now.Before(begin) {
					h.pausedUntil = end
				}
				if resumed := onTime.Add(-tc.early); tc.early > 0 && !h.now.Before(resumed) && h.pausedUntil.Equal(end) {
					h.pausedUntil = resumed
				}
				d, _ := h.decide(false)
				if h.now.Before(h.pausedUntil) && h.record.Phase == v1alpha1.ProjectExpired {
					t.Fatalf("expired at %s in the pause", h.now)
				}
				if h.record.Phase == v1alpha1.ProjectExpired {
					break
				}
				next := d.Next
				for _, at := range []time.Time{begin, onTime.Add(-tc.early)} { // the writes of the pause
					if tc.length > 0 && at.After(h.now) && at.Before(next) {
						next = at
					}
				}
				h.now = next
			}
			if !h.now.Equal(tc.want) {
				t.Errorf("expired at %s, want %s", h.now, tc.want)
			}
		})
	}
}
