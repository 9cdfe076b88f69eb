// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// InputCarriedNotices are the names of the Notices that a digest carries, separated by
// commas. It is the digest's spec, and so never changes: after a crash between the
// digest's sending and its Notices' status it is still known which were in it.
const InputCarriedNotices = "carries"

// CarriedNotices are the names of the Notices that a digest carries.
func CarriedNotices(digest *v1alpha1.Notice) []string {
	list := digest.Spec.Inputs[InputCarriedNotices]
	if digest.Spec.Kind != v1alpha1.NoticeDigest || list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// carriesNotice tells whether the digest has n in it.
func carriesNotice(digest, n *v1alpha1.Notice) bool {
	return recipientAddress(digest) == recipientAddress(n) && slices.Contains(CarriedNotices(digest), n.Name)
}

// newDigest is the digest that carries the Notices, which name it, are to one
// recipient, and of which there is at least one. Its day is that on which the first
// of them was due.
func newDigest(members []*v1alpha1.Notice) *v1alpha1.Notice {
	slices.SortFunc(members, compareRecorded)
	first := slices.MinFunc(members, func(a, b *v1alpha1.Notice) int { return a.Spec.DueAt.Compare(b.Spec.DueAt.Time) })
	zone, err := time.LoadLocation(first.Spec.Recipient.TimeZone)
	if err != nil {
		zone = time.UTC // as the mail will say, too
	}
	day := period.DateOf(first.Spec.DueAt.Time, zone)
	names := make([]string, 0, len(members))
	for _, n := range members {
		names = append(names, n.Name)
	}
	return &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: first.Spec.Digest},
		Spec: v1alpha1.NoticeSpec{
			Recipient: first.Spec.Recipient, Kind: v1alpha1.NoticeDigest, DueAt: first.Spec.DueAt, Date: &day,
			Inputs: map[string]string{InputCarriedNotices: strings.Join(names, ",")},
		},
	}
}

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
		if (other.Spec.Deadline != nil || withdrawsDeadline(other)) && haveSameSubject(n, other) && recipientAddress(other) == recipientAddress(n) && compareRecorded(other, n) <= 0 {
			told = append(told, other)
		}
	}
	slices.SortFunc(told, compareRecorded)
	changes := 0
	for i, other := range told {
		if i > 0 && !other.Spec.Deadline.Equal(told[i-1].Spec.Deadline) {
			changes++
		}
		changes = max(changes, int(other.Status.Sequence))
	}
	return changes
}

// withdrawsDeadline tells whether a Notice says that what it is about is not there any more, or
// has no end: that is a change of its deadline, too.
func withdrawsDeadline(n *v1alpha1.Notice) bool {
	return n.Spec.Kind == v1alpha1.NoticeProjectDeleted || n.Spec.Kind == v1alpha1.NoticeProjectRenewed && n.Spec.Deadline == nil
}

func haveSameSubject(a, b *v1alpha1.Notice) bool {
	x, y := a.Spec.Subject, b.Spec.Subject
	return y != nil && x.Kind == y.Kind && x.Namespace == y.Namespace && x.Name == y.Name && x.UID == y.UID
}

// compareRecorded is that in which Notices were recorded.
func compareRecorded(a, b *v1alpha1.Notice) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		a.Spec.DueAt.Compare(b.Spec.DueAt.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// IsCancellation tells whether a Notice takes an appointment out of its recipient's
// calendar: there was one, and what it was about is not there any more, or has no
// end.
func IsCancellation(n *v1alpha1.Notice, all []v1alpha1.Notice) bool {
	if !withdrawsDeadline(n) || n.Spec.Subject == nil {
		return false
	}
	return slices.ContainsFunc(all, func(other v1alpha1.Notice) bool {
		return other.Spec.Deadline != nil && haveSameSubject(n, &other) && recipientAddress(&other) == recipientAddress(n)
	})
}
