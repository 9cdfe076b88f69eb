// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// sendBatchDuration is for how long mails are begun before all Notices are looked at again. A look
// at thousands takes longer than a mail does, and what becomes urgent meanwhile waits
// no longer than this.
const sendBatchDuration = 2 * time.Second

// sendQueue is what is to be sent in a turn, the most urgent first. Several take from it.
type sendQueue struct {
	rates    Rates
	limiter  *rate.Limiter
	deadline time.Time

	mu      sync.Mutex
	pending []*v1alpha1.Notice
	// sentToday is how many each address got today.
	sentToday map[string]int
	// requeueAfter is when to go on, 0 for when something changes.
	requeueAfter time.Duration
}

// newSendQueue is the turn's. What was sent, while that is still to be written, is not in it.
func (s *Sender) newSendQueue(now Instant, p *plan, all []v1alpha1.Notice) *sendQueue {
	q := &sendQueue{rates: s.Rates, limiter: s.limiter, deadline: now.Machine.Add(sendBatchDuration), sentToday: map[string]int{}}
	if s.Rates.PerRecipientPerDay > 0 {
		q.sentToday = countSentSince(all, s.Clock.FromReal(now.Machine.Add(-recipientRateWindow)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range p.toSend {
		if _, was := s.unwrittenStatuses[n.UID]; !was {
			q.pending = append(q.pending, n)
		}
	}
	return q
}

// next is the next one that the rates allow; nil where the turn is over.
func (q *sendQueue) next() *v1alpha1.Notice {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; len(q.pending) > 0; q.pending = q.pending[1:] {
		n, now := q.pending[0], policytime.MachineNow()
		to := recipientAddress(n)
		if q.rates.PerRecipientPerDay > 0 && q.sentToday[to] >= q.rates.PerRecipientPerDay {
			q.requeueAfter = shortestDelay(q.requeueAfter, recipientRateRecheck)
			continue
		}
		if !now.Before(q.deadline) {
			q.requeueAfter = minRequeueAfter
			q.pending = nil
			return nil
		}
		reserved := q.limiter.ReserveN(now, 1)
		if wait := reserved.DelayFrom(now); wait > 0 {
			reserved.CancelAt(now)
			q.requeueAfter = shortestDelay(q.requeueAfter, wait)
			q.pending = nil
			return nil
		}
		q.pending = q.pending[1:]
		q.sentToday[to]++
		return n
	}
	return nil
}

// stop ends the turn: what is left is looked at anew.
func (q *sendQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) > 0 {
		q.pending, q.requeueAfter = nil, minRequeueAfter
	}
}

// shortestDelay is the shorter of two waits, of which the first may be none.
func shortestDelay(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// recipientRateWindow is over how much machine time a recipient's mails are counted.
const recipientRateWindow = 24 * time.Hour

// recipientRateRecheck is how soon it is looked again whether a recipient's day has room.
const recipientRateRecheck = 10 * time.Minute

// Rates bound how much mail there is, in machine time. What is more waits; nothing is
// lost.
type Rates struct {
	// PerMinute is how many mails are sent in a minute in all; 0 for any number.
	PerMinute int
	// PerRecipientPerDay is how many one address is sent within 24 hours; 0 for any
	// number.
	PerRecipientPerDay int
}

// newLimiter bounds the whole. After a pause a minute's worth may come at once.
func (r Rates) newLimiter() *rate.Limiter {
	if r.PerMinute <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(float64(r.PerMinute)/60), max(1, r.PerMinute/4))
}

// countSentSince counts the mails that each address was sent since an instant of policy
// time, from the Notices themselves: no restart forgets them. What a digest carried
// was one mail.
func countSentSince(notices []v1alpha1.Notice, since time.Time) map[string]int {
	count, seen := map[string]int{}, map[string]bool{}
	for i := range notices {
		n := &notices[i]
		if n.Status.SentAt == nil || !n.Status.SentAt.After(since) || seen[n.Status.MessageID] {
			continue
		}
		seen[n.Status.MessageID] = true
		count[recipientAddress(n)]++
	}
	return count
}
