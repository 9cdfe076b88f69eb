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
	noticemail "sluice.dev/lifecycle/notification/mail"
)

// InputCarriedNotices is the input with the names of the Notices in a digest, separated by commas.
// It is part of the immutable spec, so a crash between sending the digest and writing the status
// of its Notices loses nothing.
const InputCarriedNotices = "notices"

// CarriedNotices returns the names of the Notices in a digest.
func CarriedNotices(digest *v1alpha1.Notice) []string {
	list := digest.Spec.Inputs[InputCarriedNotices]
	if digest.Spec.Kind != v1alpha1.NoticeDigest || list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// carriesNotice reports whether the digest contains n.
func carriesNotice(digest, n *v1alpha1.Notice) bool {
	return recipientAddress(digest) == recipientAddress(n) && slices.Contains(CarriedNotices(digest), n.Name)
}

// newDigest returns the digest of at least one Notice. All name the same digest and recipient. Its
// day is the one on which the first of them is due.
func newDigest(members []*v1alpha1.Notice) *v1alpha1.Notice {
	slices.SortFunc(members, compareRecorded)
	first := slices.MinFunc(members, func(a, b *v1alpha1.Notice) int { return a.Spec.DueAt.Compare(b.Spec.DueAt.Time) })
	zone, err := time.LoadLocation(first.Spec.Recipient.TimeZone)
	if err != nil {
		zone = time.UTC // as in the mail
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

// Sequence returns the iCalendar SEQUENCE of a Notice's appointment: the number of changes of its
// subject's deadline in the Notices to this recipient up to this one. It depends on earlier Notices
// only, so it is the same at each attempt. The status of sent Notices holds it, so it keeps rising
// after older ones are deleted.
func Sequence(n *v1alpha1.Notice, all []v1alpha1.Notice) int {
	if n.Spec.Subject == nil {
		return 0
	}
	var earlier []*v1alpha1.Notice
	for i := range all {
		other := &all[i]
		hasAppointment := other.Spec.Deadline != nil || withdrawsDeadline(other)
		if hasAppointment && haveSameSubject(n, other) && recipientAddress(other) == recipientAddress(n) && compareRecorded(other, n) <= 0 {
			earlier = append(earlier, other)
		}
	}
	slices.SortFunc(earlier, compareRecorded)
	changes := 0
	for i, other := range earlier {
		if i > 0 && !other.Spec.Deadline.Equal(earlier[i-1].Spec.Deadline) {
			changes++
		}
		changes = max(changes, int(other.Status.Sequence))
	}
	return changes
}

// withdrawsDeadline reports whether a Notice says that its subject was deleted, will not be deleted, or
// no longer has a deadline.
func withdrawsDeadline(n *v1alpha1.Notice) bool {
	switch n.Spec.Kind {
	case v1alpha1.NoticeProjectDeleted:
		return true
	case v1alpha1.NoticeProjectRenewed:
		return n.Spec.Deadline == nil
	case v1alpha1.NoticeProjectDeletion:
		return n.Spec.Deadline == nil && n.Spec.Inputs[noticemail.InputCause] == noticemail.CauseDeletionDismissed
	default:
		return false
	}
}

func haveSameSubject(a, b *v1alpha1.Notice) bool {
	x, y := a.Spec.Subject, b.Spec.Subject
	return y != nil && x.Kind == y.Kind && x.Namespace == y.Namespace && x.Name == y.Name && x.UID == y.UID
}

// compareRecorded orders Notices as they were recorded.
func compareRecorded(a, b *v1alpha1.Notice) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		a.Spec.DueAt.Compare(b.Spec.DueAt.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// IsCancellation reports whether a Notice cancels an earlier appointment: its subject was deleted
// or no longer has a deadline.
func IsCancellation(n *v1alpha1.Notice, all []v1alpha1.Notice) bool {
	if !withdrawsDeadline(n) || n.Spec.Subject == nil {
		return false
	}
	return slices.ContainsFunc(all, func(other v1alpha1.Notice) bool {
		return other.Spec.Deadline != nil && haveSameSubject(n, &other) && recipientAddress(&other) == recipientAddress(n)
	})
}
