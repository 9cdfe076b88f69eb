// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"cmp"
	"math"
	"slices"

	"sluice.dev/api/v1alpha1"
)

// arrange puts what ends soonest first: those whose time runs by their end; then
// those whose time stands still by what is left; then those without an end; last
// what was stopped, the latest first.
func arrange(rows []Row) {
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(urgency(a), urgency(b)),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func rank(r Row) int {
	switch {
	case r.State == v1alpha1.ClockStateStopped:
		return 3
	case r.Ends != nil:
		return 0
	case r.LeftSeconds != nil:
		return 1
	default:
		return 2
	}
}

// urgency orders rows of the same rank.
func urgency(r Row) int64 {
	switch {
	case r.State == v1alpha1.ClockStateStopped && r.Ends != nil:
		return -r.Ends.Unix()
	case r.Ends != nil:
		return r.Ends.Unix()
	case r.LeftSeconds != nil:
		return *r.LeftSeconds
	default:
		return math.MaxInt64
	}
}
