// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// sendBatchDuration bounds a batch of mails. A pass over thousands of Notices takes longer than a
// mail; a Notice that becomes urgent meanwhile waits no longer than this.
const sendBatchDuration = 2 * time.Second

// sendQueue holds the Notices of one batch, the most urgent first. Workers share it.
type sendQueue struct {
	rates    Rates
	limiter  *rate.Limiter
	deadline time.Time

	mu      sync.Mutex
	pending []*v1alpha1.Notice
	// sentToday counts the mails of each address within recipientRateWindow.
	sentToday map[string]int
	// requeueAfter is the time until the next batch, 0 for none.
	requeueAfter time.Duration
}

// newSendQueue returns the queue of a batch, without Notices whose outcome is not written yet.
func (s *Sender) newSendQueue(ctx context.Context, now Instant, p *plan) (*sendQueue, error) {
	q := &sendQueue{rates: s.Rates, limiter: s.limiter, deadline: now.Machine.Add(sendBatchDuration), sentToday: map[string]int{}}
	if s.Rates.PerRecipientPerDay > 0 {
		var err error
		if q.sentToday, err = s.sentSince(ctx, s.Clock.FromReal(now.Machine.Add(-recipientRateWindow)), now.Policy); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range p.toSend {
		if _, unwritten := s.unwrittenStatuses[n.UID]; !unwritten {
			q.pending = append(q.pending, n)
		}
	}
	return q, nil
}

// next returns the next Notice that the rates allow; nil at the end of the batch.
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

// stop ends the batch; the next pass decides on the rest.
func (q *sendQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) > 0 {
		q.pending, q.requeueAfter = nil, minRequeueAfter
	}
}

// shortestDelay returns the shorter delay; a zero first delay means none.
func shortestDelay(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// recipientRateWindow is the period of PerRecipientPerDay, in machine time.
const recipientRateWindow = 24 * time.Hour

// recipientRateRecheck is the delay before a recipient's limit is checked again.
const recipientRateRecheck = 10 * time.Minute

// Rates limits the mails, in machine time. Notices beyond a limit wait.
type Rates struct {
	// PerMinute limits all mails in a minute; 0 for no limit.
	PerMinute int
	// PerRecipientPerDay limits the mails to one address within 24 hours; 0 for no limit.
	PerRecipientPerDay int
}

// newLimiter returns the limiter of all mails, with bursts of a quarter of PerMinute.
func (r Rates) newLimiter() *rate.Limiter {
	if r.PerMinute <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(float64(r.PerMinute)/60), max(1, r.PerMinute/4))
}
