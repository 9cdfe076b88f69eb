// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"time"

	"golang.org/x/time/rate"

	"sluice.dev/api/v1alpha1"
)

// day is over how much machine time a recipient's mails are counted.
const day = 24 * time.Hour

// dayLook is how soon it is looked again whether a recipient's day has room.
const dayLook = 10 * time.Minute

// Rates bound how much mail there is, in machine time. What is more waits; nothing is
// lost.
type Rates struct {
	// PerMinute is how many mails are sent in a minute in all; 0 for any number.
	PerMinute int
	// PerRecipientPerDay is how many one address is sent within 24 hours; 0 for any
	// number.
	PerRecipientPerDay int
}

// limiter bounds the whole. After a pause a minute's worth may come at once.
func (r Rates) limiter() *rate.Limiter {
	if r.PerMinute <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(float64(r.PerMinute)/60), max(1, r.PerMinute/4))
}

// received counts the mails that each address was sent since an instant of policy
// time, from the Notices themselves: no restart forgets them. What a digest carried
// was one mail.
func received(notices []v1alpha1.Notice, since time.Time) map[string]int {
	count, seen := map[string]int{}, map[string]bool{}
	for i := range notices {
		n := &notices[i]
		if n.Status.SentAt == nil || !n.Status.SentAt.After(since) || seen[n.Status.MessageID] {
			continue
		}
		seen[n.Status.MessageID] = true
		count[addressOf(n)]++
	}
	return count
}
