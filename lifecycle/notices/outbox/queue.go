// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// turn is for how long mails are begun before all Notices are looked at again. A look
// at thousands takes longer than a mail does, and what becomes urgent meanwhile waits
// no longer than this.
const turn = 2 * time.Second

// queue is what is to be sent in a turn, the most urgent first. Several take from it.
type queue struct {
	rates   Rates
	limiter *rate.Limiter
	until   time.Time

	mu   sync.Mutex
	left []*v1alpha1.Notice
	// count is how many each address got today.
	count map[string]int
	// again is when to go on, 0 for when something changes.
	again time.Duration
}

// queue is the turn's. What was sent, while that is still to be written, is not in it.
func (s *Sender) queue(now Moment, p *plan, all []v1alpha1.Notice) *queue {
	q := &queue{rates: s.Rates, limiter: s.limiter, until: now.Machine.Add(turn), count: map[string]int{}}
	if s.Rates.PerRecipientPerDay > 0 {
		q.count = received(all, s.Clock.FromReal(now.Machine.Add(-day)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range p.send {
		if _, was := s.unwritten[n.UID]; !was {
			q.left = append(q.left, n)
		}
	}
	return q
}

// next is the next one that the rates allow; nil where the turn is over.
func (q *queue) next() *v1alpha1.Notice {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; len(q.left) > 0; q.left = q.left[1:] {
		n, now := q.left[0], clock.MachineNow()
		to := addressOf(n)
		if q.rates.PerRecipientPerDay > 0 && q.count[to] >= q.rates.PerRecipientPerDay {
			q.again = soonest(q.again, dayLook)
			continue
		}
		if !now.Before(q.until) {
			q.again = shortest
			q.left = nil
			return nil
		}
		reserved := q.limiter.ReserveN(now, 1)
		if wait := reserved.DelayFrom(now); wait > 0 {
			reserved.CancelAt(now)
			q.again = soonest(q.again, wait)
			q.left = nil
			return nil
		}
		q.left = q.left[1:]
		q.count[to]++
		return n
	}
	return nil
}

// end ends the turn: what is left is looked at anew.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) > 0 {
		q.left, q.again = nil, shortest
	}
}

// soonest is the shorter of two waits, of which the first may be none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
