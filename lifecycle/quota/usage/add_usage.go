// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// monthlyUse is the part of an interval in one month.
type monthlyUse struct {
	Use
	interval *usageInterval
}

// addUsage writes pending usage to the records, month by month. If it fails between two months,
// the rest is added later.
func (r *Reconciler) addUsage(ctx context.Context, l *pendingUsage) error {
	months := l.usesByMonth()
	sortedMonths := slices.SortedFunc(maps.Keys(months), func(a, b month) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	if err := r.observeUnreadRecords(ctx, l.recordState, sortedMonths); err != nil {
		return err
	}
	for _, m := range sortedMonths {
		record, err := r.getOrCreateRecord(ctx, l.recordState, m)
		if err != nil {
			return err
		}
		cursors := l.nextCursors(record, m)
		if err := r.writeRecord(ctx, l.recordState, m, record, l.newWrite(record, months[m], cursors)); err != nil {
			return err
		}
		if err := r.clearOldCursors(ctx, l, m); err != nil {
			return err
		}
	}
	return nil
}

// observeUnreadRecords reads the records of several months before any of them is written. A
// change in any of them then restarts the computation once, not once for each record.
func (r *Reconciler) observeUnreadRecords(ctx context.Context, b *recordState, months []month) error {
	if len(months) < 2 {
		return nil
	}
	anyChanged := false
	for _, m := range months {
		if b.resourceVersions[b.owner.recordName(m)] != "" {
			continue
		}
		_, changed, err := r.readRecord(ctx, b, m)
		if err != nil {
			return err
		}
		anyChanged = anyChanged || changed
	}
	if anyChanged {
		return errRecordChanged
	}
	return nil
}

// usesByMonth returns the usage to add to each month.
func (l *pendingUsage) usesByMonth() map[month][]monthlyUse {
	months := map[month][]monthlyUse{}
	for _, s := range l.intervals {
		by := s.attribution.Value()
		if by.user == "" {
			continue
		}
		use := Use{
			User: by.user, Type: by.workloadType, NodePool: nodePoolOf(s.usageInterval), Milli: s.charge(),
			From: l.accountedFrom(s.usageInterval), To: l.accountableUntil(s),
		}
		for m, use := range use.splitByMonth(l.owner.zone) {
			use.Active, use.Idle = l.activity.during(s.pod, use.From, use.To, l.clock.FromReal)
			months[m] = append(months[m], monthlyUse{use, s.usageInterval})
		}
	}
	return months
}

// newWrite returns the next status of a record.
func (l *pendingUsage) newWrite(record *v1alpha1.UsageRecord, parts []monthlyUse, cursors map[string]time.Time) *recordWrite {
	a := &recordWrite{accountedUntil: map[*usageInterval]time.Time{}, sumsByType: map[v1alpha1.WorkloadType]amounts{}}
	addition := Addition{Department: l.owner.department, At: l.toPolicyTime(l.now), Cursors: cursors}
	for _, p := range parts {
		addition.Uses = append(addition.Uses, p.Use)
		a.accountedUntil[p.interval] = p.To
		sum, part := a.sumsByType[p.Type], p.amounts()
		a.sumsByType[p.Type] = amounts{
			requested: timelimit.AddMilliSeconds(sum.requested, part.requested),
			used:      timelimit.AddMilliSeconds(sum.used, part.used),
			idle:      timelimit.AddMilliSeconds(sum.idle, part.idle),
		}
	}
	a.status = AddToStatus(record.Status, addition)
	return a
}

// nextCursors returns until when each running workload is included once this month is written.
// Cursors never move back. While some workloads are unknown, no cursor is removed.
func (l *pendingUsage) nextCursors(record *v1alpha1.UsageRecord, m month) map[string]time.Time {
	was, next := map[string]time.Time{}, map[string]time.Time{}
	for _, cursor := range record.Status.Accounted {
		was[cursor.Clock] = cursor.Until.UTC()
	}
	until := earlierTime(l.runningUntil, m.end(l.owner.zone))
	unknown := map[string]time.Time{}
	for _, s := range l.intervals {
		by := s.attribution.Value()
		switch from := l.accountedFrom(s.usageInterval); {
		case !s.to.IsZero() || by.clock == "" || !l.startOf(s.usageInterval).Before(until):
		case by.user != "":
			next[by.clock] = laterTime(until, laterTime(was[by.clock], l.cursorFloor(by.clock)))
		case unknown[by.clock].IsZero() || from.Before(unknown[by.clock]):
			unknown[by.clock] = from
		}
	}
	for name, from := range unknown { // no record includes it
		if next[name].IsZero() {
			next[name] = laterTime(from, was[name])
		}
	}
	if !l.isComplete {
		for name, at := range was {
			next[name] = laterTime(next[name], at)
		}
	}
	return next
}

// clearOldCursors removes the cursors of other months if those of this month are complete.
func (r *Reconciler) clearOldCursors(ctx context.Context, l *pendingUsage, latest month) error {
	if !l.isComplete || !l.runningUntil.Before(latest.end(l.owner.zone)) {
		return nil
	}
	for m, has := range maps.Clone(l.monthsWithCursors) {
		if m == latest || !has {
			continue
		}
		record, changed, err := r.readRecord(ctx, l.recordState, m)
		switch {
		case err != nil:
			return err
		case changed:
			return errRecordChanged
		case record == nil:
			continue
		}
		status := *record.Status.DeepCopy()
		status.Accounted = nil
		if err := r.writeRecord(ctx, l.recordState, m, record, &recordWrite{status: status}); err != nil {
			return err
		}
	}
	return nil
}

var gpuSecondsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_usage_gpu_seconds_total",
	Help: "GPU usage added to UsageRecords, in GPU seconds of policy time, by department, project, type of workload and use: Used, Idle " +
		"or Unmeasured.",
}, []string{"department", "project", "type", "use"})

func init() { metrics.Registry.MustRegister(gpuSecondsTotal) } //nolint:gochecknoinits // registers with controller-runtime

// The values of the label use.
const (
	useUsed       = "Used"
	useIdle       = "Idle"
	useUnmeasured = "Unmeasured"
)

// startGPUSeconds creates the series of a project's workloads with the value 0, so that a query of the increase counts the
// first write too.
func (l *pendingUsage) startGPUSeconds() {
	if l.series != l.owner.project {
		l.forgetGPUSeconds()
		l.series = l.owner.project
	}
	for _, s := range l.intervals {
		for _, use := range []string{useUsed, useIdle, useUnmeasured} {
			gpuSecondsTotal.WithLabelValues(l.owner.department, l.owner.project, string(s.attribution.Value().workloadType), use)
		}
	}
}

// forgetGPUSeconds removes the series of a namespace without usage.
func (a *namespaceUsage) forgetGPUSeconds() {
	if a.series != "" {
		gpuSecondsTotal.DeletePartialMatch(prometheus.Labels{"project": a.series})
		a.series = ""
	}
}

// recordGPUSeconds adds sums in thousandths of GPU seconds to the counter.
func recordGPUSeconds(owner *recordOwner, sums map[v1alpha1.WorkloadType]amounts) {
	for kind, sum := range sums {
		for use, milliSeconds := range map[string]int64{
			useUsed: sum.used, useIdle: sum.idle, useUnmeasured: max(0, sum.requested-sum.used-sum.idle),
		} {
			gpuSecondsTotal.WithLabelValues(owner.department, owner.project, string(kind), use).Add(float64(milliSeconds) / 1000)
		}
	}
}
