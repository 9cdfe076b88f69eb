// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Sequence is the SEQUENCE of a Notice's appointment: how often the deadline of its
// subject changed, as its recipient was told, up to this Notice. It depends on the
// Notices before it alone, and so is the same at every attempt. What was sent says
// itself which it had, so that it goes on rising when older ones are taken away.
func Sequence(n *v1alpha1.Notice, all []v1alpha1.Notice) int {
	if n.Spec.Subject == nil {
		return 0
	}
	var told []*v1alpha1.Notice
	for i := range all {
		other := &all[i]
		if (other.Spec.Deadline != nil || withdraws(other)) && sameSubject(n, other) && addressOf(other) == addressOf(n) && order(other, n) <= 0 {
			told = append(told, other)
		}
	}
	slices.SortFunc(told, order)
	changes := 0
	for i, other := range told {
		if i > 0 && !other.Spec.Deadline.Equal(told[i-1].Spec.Deadline) {
			changes++
		}
		changes = max(changes, int(other.Status.Sequence))
	}
	return changes
}

// withdraws tells whether a Notice says that what it is about is not there any more, or
// has no end: that is a change of its deadline, too.
func withdraws(n *v1alpha1.Notice) bool {
	return n.Spec.Kind == v1alpha1.NoticeProjectDeleted || n.Spec.Kind == v1alpha1.NoticeProjectRenewed && n.Spec.Deadline == nil
}

func sameSubject(a, b *v1alpha1.Notice) bool {
	x, y := a.Spec.Subject, b.Spec.Subject
	return y != nil && x.Kind == y.Kind && x.Namespace == y.Namespace && x.Name == y.Name && x.UID == y.UID
}

// order is that in which Notices were recorded.
func order(a, b *v1alpha1.Notice) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		a.Spec.DueAt.Compare(b.Spec.DueAt.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// Cancelled tells whether a Notice takes an appointment out of its recipient's
// calendar: there was one, and what it was about is not there any more, or has no
// end.
func Cancelled(n *v1alpha1.Notice, all []v1alpha1.Notice) bool {
	if !withdraws(n) || n.Spec.Subject == nil {
		return false
	}
	return slices.ContainsFunc(all, func(other v1alpha1.Notice) bool {
		return other.Spec.Deadline != nil && sameSubject(n, &other) && addressOf(&other) == addressOf(n)
	})
}
