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

// sendSome sends what is to be sent, the most urgent first, for the length of a turn.
// It returns when to go on, 0 for when something changes.
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
	most := abreast
	if s.failures > 0 {
		most = 1 // whether the server is back is tried with one
	}
	q := s.queue(now, p, all)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  error
	)
	for range most {
		group.Go(func() {
			for n := q.next(); n != nil && ctx.Err() == nil; n = q.next() {
				goOn, err := s.send(ctx, n, p, all)
				if !goOn {
					q.end()
				}
				if err != nil { // the API server's: the others may have more luck, each once
					mu.Lock()
					defer mu.Unlock()
					errs = errors.Join(errs, err)
					return
				}
			}
		})
	}
	group.Wait()
	return q.again, errs
}
