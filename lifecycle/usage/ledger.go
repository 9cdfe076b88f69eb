// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"time"

	"sluice.dev/api/clock"
)

const (
	// reportDelay is how late a running pod may be reported without harm after a
	// crash, in machine time: what runs is accounted for up to so long ago.
	reportDelay = 10 * time.Second
	// writeSpacing is how long at least lies between two writes of a project, in
	// machine time; runningSpacing is that where nothing has ended.
	writeSpacing   = 10 * time.Second
	runningSpacing = time.Minute
	// accountEvery is how long what runs is not accounted for at most, in policy
	// time.
	accountEvery = time.Hour
	// longestSleep is how long a namespace is left alone at most, in machine time:
	// policy time may step.
	longestSleep = time.Minute
	// soon is when to look again for what will be known any moment, in machine time.
	soon = time.Second
	// anyZone is more than the time of two places on earth differs.
	anyZone = 27 * time.Hour
)

// ledger is what was used in a namespace and is not in the records, reckoned at one
// moment.
type ledger struct {
	*account
	clock clock.Clock
	// now is machine time. through is up to when what runs is accounted for, in
	// policy time.
	now, through time.Time
	all          []seen
	// complete is whether the workloads of all pods that run are known. pressed is
	// whether nothing can be waited for.
	complete, pressed bool
}

// reckon reckons up a namespace's use, and whose it is.
func (r *Reconciler) reckon(ctx context.Context, namespace string, a *account, pressed bool) (*ledger, error) {
	_, all := r.meter.look(namespace)
	if !a.loaded {
		if err := r.load(ctx, a.book, all); err != nil {
			return nil, err
		}
	}
	if err := r.settle(ctx, a.book); err != nil {
		return nil, err
	}
	l := &ledger{account: a, clock: r.Clock, now: clock.MachineNow(), all: all, complete: true, pressed: pressed}
	l.through = whole(r.Clock.FromReal(l.now.Add(-reportDelay)))
	if err := r.attribute(ctx, namespace, l); err != nil {
		return nil, err
	}
	r.meter.forget(a, func(s *stretch) bool { return !l.from(s).Before(l.policy(s.to)) })
	return l, nil
}

// policy is an instant of machine time as one of policy time, in whole seconds.
func (l *ledger) policy(at time.Time) time.Time { return whole(l.clock.FromReal(at)) }

// from is up to when a stretch is in the records, or when it began.
func (l *ledger) from(s *stretch) time.Time {
	return later(later(l.began(s), s.done), later(l.owner.since, l.floor(s.clock)))
}

// began is when a stretch began. Where policy time was stepped within that very
// second it is after the step: nobody is to be charged for what he cannot have used.
func (l *ledger) began(s *stretch) time.Time {
	from, by := l.policy(s.from), l.policy(s.by)
	if by.Sub(from) > clock.MaxScale*time.Second {
		return by
	}
	return from
}

// until is up to when a stretch can be accounted for now. Where the pod may still
// be found running that is no later than what a cursor says.
func (l *ledger) until(s seen) time.Time {
	switch {
	case s.to.IsZero():
		return l.through
	case s.gone:
		return l.policy(s.to)
	default:
		return earlier(l.policy(s.to), l.through)
	}
}

// ended tells whether something ended that is not in the records.
func (l *ledger) ended() bool {
	for _, s := range l.all {
		if s.gone && s.user != "" && l.from(s.stretch).Before(l.until(s)) {
			return true
		}
	}
	return false
}

// idle tells whether nothing runs, and nothing is waited for.
func (l *ledger) idle() bool {
	for _, s := range l.all {
		if s.to.IsZero() || l.from(s.stretch).Before(l.until(s)) {
			return false
		}
	}
	return true
}

// due is how long it takes until something has to be written, or looked at again,
// in machine time; 0 for now.
func (l *ledger) due() time.Duration {
	if l.ended() {
		return max(0, writeSpacing-l.now.Sub(l.wrote))
	}
	wait := longestSleep
	if !l.complete {
		wait = soon
	}
	for _, s := range l.all {
		if s.user == "" || s.gone {
			continue
		}
		due := l.from(s.stretch).Add(accountEvery)
		if !due.After(l.until(s)) {
			return max(0, min(wait, runningSpacing-l.now.Sub(l.wrote)))
		}
		wait = min(wait, max(soon, l.clock.RealUntil(due)+reportDelay))
	}
	return wait
}
