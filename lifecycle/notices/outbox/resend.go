// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// resendAsked is when another sending was asked for that there was not yet. What
// cannot be read asks for nothing.
func resendAsked(n *v1alpha1.Notice) (time.Time, bool) {
	text, ok := n.Annotations[v1alpha1.AnnotationResend]
	if !ok || !ended(n) {
		return time.Time{}, false // what waits is sent in any case
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, false
	}
	at = at.Truncate(time.Second) // as exact as a claim is
	if n.Status.ClaimedAt != nil && !n.Status.ClaimedAt.Time.Before(at) {
		return time.Time{}, false
	}
	return at, true
}
