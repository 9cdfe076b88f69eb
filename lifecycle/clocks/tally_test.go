// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"testing"
	"time"
)

// What was counted a moment ago is good only for as many stops as could not have
// been too many, however quickly they follow one another.
func TestTheBrakeIsNotOutrun(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	c := newCluster(t)
	c.ending(10, 0, now)
	c.r.Brake.Number, c.r.Brake.Share = 5, 0.3
	permits := 0
	for ; permits < 20; permits++ {
		permitted, err := c.r.Brake.Permits(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if !permitted {
			break
		}
		if permits == 0 { // since then, all of them end within the hour
			clocks := c.clocks()
			for i := range clocks {
				clocks[i].Status.Deadline.At.Time = now.Add(time.Minute)
				if err := c.client.Status().Update(t.Context(), &clocks[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if permits > 6 {
		t.Errorf("%d stops were permitted, want 6 at most", permits)
	}
}
