// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// FromSecond is the policy time of a real instant that was cut down to its second,
// as the API server's timestamps are. Where policy time was stepped within that
// second the instant is taken to lie after the step: nothing lasted for a step that
// may have begun with it.
func FromSecond(c Clock, t time.Time) time.Time {
	of, ok := c.(interface{ Timeline() Timeline })
	if !ok {
		return c.FromReal(t)
	}
	l := of.Timeline()
	at := l.At(t)
	for i, s := range l.Segments {
		if !s.Real.After(t) || s.Real.After(t.Add(time.Second)) {
			continue
		}
		if before := (Timeline{Segments: l.Segments[:i]}).At(s.Real); s.Policy.After(before) {
			at = s.Policy.Add(t.Sub(s.Real))
		}
	}
	return at.UTC()
}
