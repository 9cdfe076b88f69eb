// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"maps"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// part is what a stretch adds to one month.
type part struct {
	Use
	of *stretch
}

// add adds to the records what a ledger has, month by month from the first on: were
// it to end between two, the rest would be added later.
func (r *Reconciler) add(ctx context.Context, l *ledger) error {
	months := l.parts()
	inOrder := slices.SortedFunc(maps.Keys(months), func(a, b month) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	if err := r.meet(ctx, l.book, inOrder); err != nil {
		return err
	}
	for _, m := range inOrder {
		record, err := r.open(ctx, l.book, m)
		if err != nil {
			return err
		}
		cursors := l.cursors(record, m)
		if err := r.write(ctx, l.book, m, record, l.attempt(record, months[m], cursors)); err != nil {
			return err
		}
		if err := r.unmark(ctx, l, m); err != nil {
			return err
		}
	}
	return nil
}

// meet reads the records of several months that were never read, before any of them
// is written: what they say is new here once, not once for each.
func (r *Reconciler) meet(ctx context.Context, b *book, months []month) error {
	if len(months) < 2 {
		return nil
	}
	moved := false
	for _, m := range months {
		if b.versions[b.owner.record(m)] != "" {
			continue
		}
		_, news, err := r.read(ctx, b, m)
		if err != nil {
			return err
		}
		moved = moved || news
	}
	if moved {
		return errMoved
	}
	return nil
}

// parts are what there is to add to each month.
func (l *ledger) parts() map[month][]part {
	months := map[month][]part{}
	for _, s := range l.all {
		if s.user == "" {
			continue
		}
		use := Use{User: s.user, Type: s.as, NodePool: poolOf(s.stretch), Milli: s.milli, From: l.from(s.stretch), To: l.until(s)}
		for m, use := range use.cut(l.owner.zone) {
			months[m] = append(months[m], part{use, s.stretch})
		}
	}
	return months
}

// attempt is a record's next status.
func (l *ledger) attempt(record *v1alpha1.UsageRecord, parts []part, cursors map[string]time.Time) *attempt {
	a := &attempt{done: map[*stretch]time.Time{}, sums: map[v1alpha1.WorkloadType]int64{}}
	addition := Addition{Department: l.owner.department, At: l.policy(l.now), Cursors: cursors}
	for _, p := range parts {
		addition.Uses = append(addition.Uses, p.Use)
		a.done[p.of] = p.To
		a.sums[p.Type] = plus(a.sums[p.Type], p.MilliSeconds())
	}
	a.status = Account(record.Status, addition)
	return a
}

// cursors say up to when each workload that runs is in the records once this month
// is written. No cursor goes back, and while it is not known what runs none goes.
func (l *ledger) cursors(record *v1alpha1.UsageRecord, m month) map[string]time.Time {
	was, next := map[string]time.Time{}, map[string]time.Time{}
	for _, cursor := range record.Status.Accounted {
		was[cursor.Clock] = cursor.Until.UTC()
	}
	until := earlier(l.through, m.end(l.owner.zone))
	waiting := map[string]time.Time{}
	for _, s := range l.all {
		switch from := l.from(s.stretch); {
		case !s.to.IsZero() || s.clock == "" || !l.began(s.stretch).Before(until):
		case s.user != "":
			next[s.clock] = later(until, later(was[s.clock], l.floor(s.clock)))
		case waiting[s.clock].IsZero() || from.Before(waiting[s.clock]):
			waiting[s.clock] = from
		}
	}
	for name, from := range waiting { // nothing of it is in a record
		if next[name].IsZero() {
			next[name] = later(from, was[name])
		}
	}
	if !l.complete {
		for name, at := range was {
			next[name] = later(next[name], at)
		}
	}
	return next
}

// unmark takes away the cursors of other months, where those of this one say it
// all.
func (r *Reconciler) unmark(ctx context.Context, l *ledger, latest month) error {
	if !l.complete || !l.through.Before(latest.end(l.owner.zone)) {
		return nil
	}
	for m, has := range maps.Clone(l.marked) {
		if m == latest || !has {
			continue
		}
		record, news, err := r.read(ctx, l.book, m)
		switch {
		case err != nil:
			return err
		case news:
			return errMoved
		case record == nil:
			continue
		}
		status := *record.Status.DeepCopy()
		status.Accounted = nil
		if err := r.write(ctx, l.book, m, record, &attempt{status: status}); err != nil {
			return err
		}
	}
	return nil
}
