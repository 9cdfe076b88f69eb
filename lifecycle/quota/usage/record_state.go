// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// recordState is the known state of a project's records. reconcileMu guards it.
type recordState struct {
	reconcileMu sync.Mutex
	// owner is the project of the records.
	owner *recordOwner
	// watchedSince is since when the namespace is observed, and lastWrite when a record was
	// last written, both in machine time.
	watchedSince, lastWrite time.Time
	// loaded is true once the records with possible cursors were read.
	loaded bool
	// cursorFloors are the cursors of another process by clock, and latestFloor the latest of
	// them. latestFloor applies to clocks without a cursor: each write includes all running
	// workloads, so such a workload started later or had another name.
	cursorFloors map[string]time.Time
	latestFloor  time.Time
	// resourceVersions are the last observed versions of records, by name.
	resourceVersions map[string]string
	// pendingWrites are writes with an unknown result, by record name.
	pendingWrites map[string][]*recordWrite
	// monthsWithCursors are the months whose record has cursors.
	monthsWithCursors map[month]bool
}

func newRecordState() *recordState {
	b := &recordState{watchedSince: policytime.MachineNow()}
	b.reset()
	return b
}

// reset removes all state of the owner.
func (b *recordState) reset() {
	b.owner, b.loaded, b.latestFloor = nil, false, time.Time{}
	b.cursorFloors, b.resourceVersions = map[string]time.Time{}, map[string]string{}
	b.pendingWrites, b.monthsWithCursors = map[string][]*recordWrite{}, map[month]bool{}
}

// recordWrite is a write of a record and the state after it succeeds.
type recordWrite struct {
	status         v1alpha1.UsageRecordStatus
	accountedUntil map[*usageInterval]time.Time
	sumsByType     map[v1alpha1.WorkloadType]amounts
}

// cursorFloor returns until when another process counted the usage of a clock, or zero. The name
// is empty for an unknown clock.
func (b *recordState) cursorFloor(clock string) time.Time {
	if at, own := b.cursorFloors[clock]; own {
		return at
	}
	return b.latestFloor
}

// observeRecord records a record that was read and reports whether it contains an unknown write:
// one of this process whose response was lost, or one of another process.
func (b *recordState) observeRecord(record *v1alpha1.UsageRecord, m month) bool {
	b.monthsWithCursors[m] = len(record.Status.Accounted) > 0
	if version, known := b.resourceVersions[record.Name]; known && version == record.ResourceVersion {
		return false
	}
	for _, a := range b.pendingWrites[record.Name] {
		if equality.Semantic.DeepEqual(a.status, record.Status) {
			b.confirmWrite(record, a)
			return true
		}
	}
	b.resourceVersions[record.Name] = record.ResourceVersion
	delete(b.pendingWrites, record.Name)
	for _, cursor := range record.Status.Accounted {
		b.cursorFloors[cursor.Clock] = laterTime(b.cursorFloors[cursor.Clock], cursor.Until.UTC())
		b.latestFloor = laterTime(b.latestFloor, cursor.Until.UTC())
	}
	return true
}

// confirmWrite records a successful write.
func (b *recordState) confirmWrite(record *v1alpha1.UsageRecord, a *recordWrite) {
	b.resourceVersions[record.Name] = record.ResourceVersion
	delete(b.pendingWrites, record.Name)
	for s, until := range a.accountedUntil {
		s.accountedUntil = max(s.accountedUntil, instantOf(until))
	}
	recordGPUSeconds(b.owner, a.sumsByType)
}

// errRecordChanged means that a record changed after the usage to add was computed.
var errRecordChanged = errors.New("usage record changed")

// loadRecords reads the records that may have cursors: those of all months since the oldest
// running pod started, in any time zone.
func (r *Reconciler) loadRecords(ctx context.Context, b *recordState, all []observedInterval) error {
	now := r.Clock.Now()
	oldest := now
	for _, s := range all {
		oldest = earlierTime(oldest, r.Clock.FromReal(s.from.time()))
	}
	oldest = laterTime(laterTime(oldest, b.owner.createdAt), now.AddDate(0, -retentionMonths, 0))
	last := monthOf(now.Add(maxZoneDifference), b.owner.zone)
	for m := monthOf(oldest.Add(-maxZoneDifference), b.owner.zone); !last.before(m); m = m.addMonths(1) {
		if _, _, err := r.readRecord(ctx, b, m); err != nil {
			return err
		}
	}
	b.loaded = true
	return nil
}

// resolvePendingWrites finds out whether writes without a response succeeded.
func (r *Reconciler) resolvePendingWrites(ctx context.Context, b *recordState) error {
	for m := range b.monthsWithCursors {
		if len(b.pendingWrites[b.owner.recordName(m)]) == 0 {
			continue
		}
		if _, _, err := r.readRecord(ctx, b, m); err != nil {
			return err
		}
	}
	return nil
}

// readRecord returns the record of a month, or nil, and whether it contains an unknown write.
func (r *Reconciler) readRecord(ctx context.Context, b *recordState, m month) (*v1alpha1.UsageRecord, bool, error) {
	name := b.owner.recordName(m)
	record := &v1alpha1.UsageRecord{}
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, record)
	switch {
	case apierrors.IsNotFound(err):
		delete(b.pendingWrites, name)
		delete(b.resourceVersions, name)
		delete(b.monthsWithCursors, m)
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("get usage record %s: %w", name, err)
	}
	return record, b.observeRecord(record, m), nil
}

// getOrCreateRecord returns the record of a month. It returns errRecordChanged if the record
// contains an unknown write.
func (r *Reconciler) getOrCreateRecord(ctx context.Context, b *recordState, m month) (*v1alpha1.UsageRecord, error) {
	record, changed, err := r.readRecord(ctx, b, m)
	switch {
	case err != nil:
		return nil, err
	case changed:
		return nil, errRecordChanged
	case record != nil:
		return record, nil
	}
	record = &v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: b.owner.recordName(m)},
		Spec:       v1alpha1.UsageRecordSpec{Project: b.owner.project, ProjectUID: b.owner.uid, Month: m.String()},
	}
	if err := r.Client.Create(ctx, record); err != nil {
		return nil, fmt.Errorf("create usage record %s: %w", record.Name, err)
	}
	b.resourceVersions[record.Name] = record.ResourceVersion
	return record, nil
}

// writeRecord updates the status of a record if the record did not change.
func (r *Reconciler) writeRecord(ctx context.Context, b *recordState, m month, record *v1alpha1.UsageRecord, a *recordWrite) error {
	next := record.DeepCopy()
	next.Status = a.status
	b.pendingWrites[record.Name] = append(b.pendingWrites[record.Name], a)
	b.monthsWithCursors[m] = b.monthsWithCursors[m] || len(a.status.Accounted) > 0
	b.lastWrite = policytime.MachineNow()
	if err := r.Client.Status().Update(ctx, next); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
			b.pendingWrites[record.Name] = b.pendingWrites[record.Name][:len(b.pendingWrites[record.Name])-1] // the API server rejected it
		}
		return fmt.Errorf("update usage record %s: %w", record.Name, err)
	}
	b.monthsWithCursors[m] = len(a.status.Accounted) > 0
	b.confirmWrite(next, a)
	return nil
}
