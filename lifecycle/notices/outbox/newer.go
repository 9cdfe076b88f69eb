// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// about is what Notices have in common of which a later one says all that an earlier
// one would have said. Only what warns, a lead ahead, is of that kind.
type about struct {
	kind, recipient string
	subject         v1alpha1.ObjectReference
}

func aboutOf(n *v1alpha1.Notice) (about, bool) {
	if n.Spec.Lead == nil || n.Spec.Subject == nil {
		return about{}, false
	}
	return about{kind: string(n.Spec.Kind), recipient: addressOf(n), subject: *n.Spec.Subject}, true
}

// addressOf is the recipient's address as it is compared: nobody has two that differ
// in case alone.
func addressOf(n *v1alpha1.Notice) string {
	return strings.ToLower(string(n.Spec.Recipient.Email))
}

// Newer are the Notices, by name, in whose place a more urgent one is sent, or was:
// of those of one subject, kind and recipient all that are due but the latest. One
// that failed says nothing in another's place.
func Newer(now time.Time, notices []v1alpha1.Notice) map[string]bool {
	latest := map[about]*v1alpha1.Notice{}
	each(now, notices, func(key about, n *v1alpha1.Notice) {
		if was := latest[key]; was == nil || before(was, n) {
			latest[key] = n
		}
	})
	newer := map[string]bool{}
	each(now, notices, func(key about, n *v1alpha1.Notice) {
		if !ended(n) && before(n, latest[key]) {
			newer[n.Name] = true
		}
	})
	return newer
}

// each calls with all warnings that are due, and not set aside.
func each(now time.Time, notices []v1alpha1.Notice, with func(about, *v1alpha1.Notice)) {
	for i := range notices {
		n := &notices[i]
		key, ok := aboutOf(n)
		aside := n.Status.Phase == v1alpha1.NoticeSuperseded || n.Status.Phase == v1alpha1.NoticeFailed
		if ok && !aside && !n.Spec.DueAt.After(now) {
			with(key, n)
		}
	}
}

// before tells whether a was due before b; of two that were due at once the one with
// the longer lead.
func before(a, b *v1alpha1.Notice) bool {
	if !a.Spec.DueAt.Equal(&b.Spec.DueAt) {
		return a.Spec.DueAt.Before(&b.Spec.DueAt)
	}
	return a.Spec.Lead.Length() > b.Spec.Lead.Length()
}
