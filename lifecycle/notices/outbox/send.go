// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice.dev/api/v1alpha1"
)

// sendSome sends the most urgent of what is to be sent, as many as go abreast. It
// returns when to go on, 0 for when something changes.
func (s *Sender) sendSome(ctx context.Context, now Moment, p *plan, all []v1alpha1.Notice) (time.Duration, error) {
	if len(p.send) == 0 {
		return 0, nil
	}
	if wait := s.down.Sub(now.Machine); wait > 0 {
		return wait, nil
	}
	state, err := s.look(ctx, now)
	if err != nil {
		return 0, err
	}
	if state.Paused {
		return pausedLook, nil
	}
	chosen, again := s.choose(now, p, all)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  error
	)
	for _, n := range chosen {
		group.Go(func() {
			if err := s.send(ctx, n, p, all); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = errors.Join(errs, err)
			}
		})
	}
	group.Wait()
	return again, errs
}

// choose takes from what is to be sent, in its order, what the rates allow.
func (s *Sender) choose(now Moment, p *plan, all []v1alpha1.Notice) (chosen []*v1alpha1.Notice, again time.Duration) {
	most := abreast
	if s.failures > 0 {
		most = 1 // whether the server is back is tried with one
	}
	count := map[string]int{}
	if s.Rates.PerRecipientPerDay > 0 {
		count = received(all, s.Clock.FromReal(now.Machine.Add(-day)))
	}
	for _, n := range p.send {
		if _, was := s.unwritten[n.UID]; was {
			continue // it was sent; that is still to be written
		}
		if to := addressOf(n); s.Rates.PerRecipientPerDay > 0 {
			if count[to] >= s.Rates.PerRecipientPerDay {
				again = soonest(again, dayLook)
				continue
			}
			count[to]++
		}
		if len(chosen) == most {
			return chosen, shortest
		}
		reserved := s.limiter.ReserveN(now.Machine, 1)
		if wait := reserved.DelayFrom(now.Machine); wait > 0 {
			reserved.CancelAt(now.Machine)
			return chosen, soonest(again, wait)
		}
		chosen = append(chosen, n)
	}
	return chosen, again
}

// soonest is the shorter of two waits, of which the first may be none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
