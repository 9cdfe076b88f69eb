// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// reportingWeek is one that ended, and when it is told of.
type reportingWeek struct {
	// from and to bound it; to is Monday's midnight, and not in it.
	from, to time.Time
	// dueAt is when it is told of, and day its first day.
	dueAt    time.Time
	firstDay period.Date
	// nextDueAt is when the week after is told of.
	nextDueAt time.Time
	// zone is the department's.
	zone *time.Location
}

// defaultDueHour is when the week is told of by a department without a digest, as hours after
// midnight.
const defaultDueHour = 8

// reportingWeekOf is the last week at t that is to be told of already.
func reportingWeekOf(terms v1alpha1.NoticeTerms, t time.Time) (reportingWeek, error) {
	zone, err := time.LoadLocation(terms.TimeZone)
	if err != nil {
		return reportingWeek{}, err
	}
	digests, err := notification.ParseDigestSchedule(terms)
	if err != nil {
		return reportingWeek{}, err
	}
	start := t.In(zone)
	for start.Weekday() != time.Monday {
		start = start.AddDate(0, 0, -1)
	}
	this := period.DateOf(start, zone)
	due := dueInWeek(digests, this, zone)
	if t.Before(due) {
		return reportingWeek{
			from: addDays(this, -14, zone).Start(zone), to: addDays(this, -7, zone).Start(zone), firstDay: addDays(this, -14, zone),
			dueAt: dueInWeek(digests, addDays(this, -7, zone), zone), nextDueAt: due, zone: zone,
		}, nil
	}
	return reportingWeek{
		from: addDays(this, -7, zone).Start(zone), to: this.Start(zone), firstDay: addDays(this, -7, zone),
		dueAt: due, nextDueAt: dueInWeek(digests, addDays(this, 7, zone), zone), zone: zone,
	}, nil
}

// dueInWeek is the first digest of the week that begins on a Monday, or its eight o'clock.
func dueInWeek(digests *notification.DigestSchedule, on period.Date, zone *time.Location) time.Time {
	if digests != nil {
		for n := range 7 {
			if run, ok := digests.RunOn(addDays(on, n, zone)); ok {
				return run
			}
		}
	}
	midnight := on.Start(zone)
	return time.Date(midnight.Year(), midnight.Month(), midnight.Day(), defaultDueHour, 0, 0, 0, zone)
}

// addDays is the date so many days later. Noon is on that day in every zone.
func addDays(d period.Date, days int, zone *time.Location) period.Date {
	return period.DateOf(d.Start(zone).Add(12*time.Hour).AddDate(0, 0, days), zone)
}

// monthLayout is how a UsageRecord's month is written.
const monthLayout = "2006-01"

// monthSettleDelay is how long after its end a month's records are final: what runs is added to
// them every hour.
const monthSettleDelay = 2 * time.Hour

// reportingMonth is the one that a summary gives the GPU hours of. Records are kept by months,
// and how much of one was used in a week cannot be told from them.
type reportingMonth struct {
	// name is the month's, and before that of the month before.
	name, previous string
	// countedUntil is up to when it is counted; zero where the month is over.
	countedUntil time.Time
}

// reportingMonthOf is the month in which the week began: so each has one summary that gives the
// whole of it.
func reportingMonthOf(w reportingWeek, now time.Time, zone *time.Location) reportingMonth {
	year, of, _ := w.from.In(zone).Date()
	first := time.Date(year, of, 1, 0, 0, 0, 0, zone)
	m := reportingMonth{name: first.Format(monthLayout), previous: first.AddDate(0, -1, 0).Format(monthLayout)}
	if now.Before(first.AddDate(0, 1, 0).Add(monthSettleDelay)) {
		m.countedUntil = now
	}
	return m
}

// gpuMilliHours is how much a project used in a month, in thousandths of a GPU hour; 0 where
// there is no record. Records are not cached.
func (r *WeeklySummaryReconciler) gpuMilliHours(ctx context.Context, project, month string) (milli int64, err error) {
	var record v1alpha1.UsageRecord
	name := project + "-" + month
	if err := r.Notices.Live.Get(ctx, client.ObjectKey{Name: name}, &record); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading usage record %s: %w", name, err)
	}
	return record.Status.GPUMilliHours, nil
}

// formatHours are thousandths of a GPU hour as a summary has them, rounded to a tenth.
func formatHours(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', 1, 64)
}

// toInputs are what a summary says of the month, and of the sums of its projects.
func (m reportingMonth) toInputs(now, before int64) map[string]string {
	inputs := map[string]string{mail.InputMonth: m.name, mail.InputGPUHours: formatHours(now)}
	if before > 0 {
		inputs[mail.InputGPUHoursBefore] = formatHours(before)
	}
	if !m.countedUntil.IsZero() {
		inputs[mail.InputMonthUntil] = m.countedUntil.UTC().Format(time.RFC3339)
	}
	return inputs
}
