// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// reportingWeek is a past week with the due time of its summary.
type reportingWeek struct {
	// from and to bound the week; to is exclusive, Monday's midnight.
	from, to time.Time
	// dueAt is when the summary is due, firstDay the first day of the week.
	dueAt    time.Time
	firstDay period.Date
	// nextDueAt is when the next summary is due.
	nextDueAt time.Time
	// zone is the department's time zone.
	zone *time.Location
}

// defaultDueHour is the hour of the summary for departments without a digest.
const defaultDueHour = 8

// reportingWeekOf returns the last week whose summary is due at t.
func reportingWeekOf(terms v1alpha1.NoticeTerms, t time.Time) (reportingWeek, error) {
	zone, err := time.LoadLocation(terms.TimeZone)
	if err != nil {
		return reportingWeek{}, err
	}
	digests, err := ParseDigestSchedule(terms)
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

// dueInWeek returns the first digest of the week that starts on a Monday, or that Monday at
// defaultDueHour.
func dueInWeek(digests *DigestSchedule, on period.Date, zone *time.Location) time.Time {
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

// addDays returns the date days later. It adds to noon, which exists on every day in every zone.
func addDays(d period.Date, days int, zone *time.Location) period.Date {
	return period.DateOf(d.Start(zone).Add(12*time.Hour).AddDate(0, 0, days), zone)
}

// monthLayout is the layout of a UsageRecord's month.
const monthLayout = "2006-01"

// monthSettleDelay is the time after its end from which a month's records are final, since they are updated
// hourly.
const monthSettleDelay = 2 * time.Hour

// reportingMonth is the month of a summary's GPU hours. UsageRecords are monthly and do not show the
// use of a week.
type reportingMonth struct {
	// name and previous name the month and the one before.
	name, previous string
	// countedUntil is up to when hours are counted; zero for a whole month.
	countedUntil time.Time
}

// reportingMonthOf returns the month in which the week began, so each month has one summary that
// covers the whole month.
func reportingMonthOf(w reportingWeek, now time.Time, zone *time.Location) reportingMonth {
	year, of, _ := w.from.In(zone).Date()
	first := time.Date(year, of, 1, 0, 0, 0, 0, zone)
	m := reportingMonth{name: first.Format(monthLayout), previous: first.AddDate(0, -1, 0).Format(monthLayout)}
	if now.Before(first.AddDate(0, 1, 0).Add(monthSettleDelay)) {
		m.countedUntil = now
	}
	return m
}

// gpuMilliHours returns the use of a project in a month, in thousandths of a GPU hour; 0 without a
// record. Records are not cached.
func (r *WeeklySummaryReconciler) gpuMilliHours(ctx context.Context, project, month string) (milli int64, err error) {
	var record v1alpha1.UsageRecord
	name := project + "-" + month
	if err := r.Notices.Live.Get(ctx, client.ObjectKey{Name: name}, &record); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("get usage record %s: %w", name, err)
	}
	return record.Status.GPUMilliHours, nil
}

// formatHours formats thousandths of a GPU hour as hours, rounded to a tenth.
func formatHours(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', 1, 64)
}

// toInputs returns the inputs of the month.
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
