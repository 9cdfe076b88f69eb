// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// errMoved says that a record has changed since what is to be added was reckoned.
var errMoved = errors.New("the usage record is another than before")

// load reads the records that may say what another process accounted for: those
// of all months since the first of what runs now began, in any time zone.
func (r *Reconciler) load(ctx context.Context, b *book, all []seen) error {
	now := r.Clock.Now()
	oldest := now
	for _, s := range all {
		oldest = earlier(oldest, r.Clock.FromReal(s.from))
	}
	oldest = later(later(oldest, b.owner.since), now.AddDate(0, -keptMonths, 0))
	last := monthOf(now.Add(anyZone), b.owner.zone)
	for m := monthOf(oldest.Add(-anyZone), b.owner.zone); !last.before(m); m = m.add(1) {
		if _, _, err := r.read(ctx, b, m); err != nil {
			return err
		}
	}
	b.loaded = true
	return nil
}

// settle finds out what became of the writes whose answer was lost.
func (r *Reconciler) settle(ctx context.Context, b *book) error {
	for m := range b.marked {
		if len(b.attempts[b.owner.record(m)]) == 0 {
			continue
		}
		if _, _, err := r.read(ctx, b, m); err != nil {
			return err
		}
	}
	return nil
}

// read is the record of a month as it is now, nil where there is none, and whether
// anything in it is new here.
func (r *Reconciler) read(ctx context.Context, b *book, m month) (*v1alpha1.UsageRecord, bool, error) {
	name := b.owner.record(m)
	record := &v1alpha1.UsageRecord{}
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, record)
	switch {
	case apierrors.IsNotFound(err):
		delete(b.attempts, name)
		delete(b.versions, name)
		delete(b.marked, m)
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading usage record %s: %w", name, err)
	}
	return record, b.adopt(record, m), nil
}

// open is the record of a month, a new one if need be. The error is errMoved where
// what it says is new here.
func (r *Reconciler) open(ctx context.Context, b *book, m month) (*v1alpha1.UsageRecord, error) {
	record, news, err := r.read(ctx, b, m)
	switch {
	case err != nil:
		return nil, err
	case news:
		return nil, errMoved
	case record != nil:
		return record, nil
	}
	record = &v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: b.owner.record(m)},
		Spec:       v1alpha1.UsageRecordSpec{Project: b.owner.project, ProjectUID: b.owner.uid, Month: m.String()},
	}
	if err := r.Client.Create(ctx, record); err != nil {
		return nil, fmt.Errorf("making usage record %s: %w", record.Name, err)
	}
	b.versions[record.Name] = record.ResourceVersion
	return record, nil
}

// write writes a record's status, if nobody was quicker.
func (r *Reconciler) write(ctx context.Context, b *book, m month, record *v1alpha1.UsageRecord, a *attempt) error {
	next := record.DeepCopy()
	next.Status = a.status
	b.attempts[record.Name] = append(b.attempts[record.Name], a)
	b.marked[m] = b.marked[m] || len(a.status.Accounted) > 0
	b.wrote = clock.MachineNow()
	if err := r.Client.Status().Update(ctx, next); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
			b.attempts[record.Name] = b.attempts[record.Name][:len(b.attempts[record.Name])-1] // it was not done
		}
		return fmt.Errorf("writing usage record %s: %w", record.Name, err)
	}
	b.marked[m] = len(a.status.Accounted) > 0
	b.settle(next, a)
	return nil
}
