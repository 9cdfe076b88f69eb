// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// InputCarries are the names of the Notices that a digest carries, separated by
// commas. It is the digest's spec, and so never changes: after a crash between the
// digest's sending and its Notices' status it is still known which were in it.
const InputCarries = "carries"

// Carried are the names of the Notices that a digest carries.
func Carried(digest *v1alpha1.Notice) []string {
	list := digest.Spec.Inputs[InputCarries]
	if digest.Spec.Kind != v1alpha1.NoticeDigest || list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// carries tells whether the digest has n in it.
func carries(digest, n *v1alpha1.Notice) bool {
	return addressOf(digest) == addressOf(n) && slices.Contains(Carried(digest), n.Name)
}

// digestOf is the digest that carries the Notices, which name it, are to one
// recipient, and of which there is at least one. Its day is that on which the first
// of them was due.
func digestOf(members []*v1alpha1.Notice) *v1alpha1.Notice {
	slices.SortFunc(members, order)
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
			Inputs: map[string]string{InputCarries: strings.Join(names, ",")},
		},
	}
}
