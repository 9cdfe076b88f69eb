// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// FromSecond is the policy time of a real instant that was cut down to its second,
// as the API server's timestamps are. Where policy time was stepped within that
// second the instant lies after the step: nothing is taken to have lasted for the
// step that may have begun with it.
func FromSecond(c Clock, t time.Time) time.Time {
	from, by := c.FromReal(t), c.FromReal(t.Add(time.Second))
	// As much as passes in a second without a step.
	pace := min(from.Sub(c.FromReal(t.Add(-time.Second))), c.FromReal(t.Add(2*time.Second)).Sub(by))
	if by.Sub(from) > pace+time.Millisecond {
		return by.Add(-pace)
	}
	return from
}
