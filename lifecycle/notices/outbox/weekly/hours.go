// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package weekly

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/message"
)

// monthForm is how a UsageRecord's month is written.
const monthForm = "2006-01"

// settled is how long after its end a month's records are final: what runs is added to
// them every hour.
const settled = 2 * time.Hour

// month is the one that a summary gives the GPU hours of. Records are kept by months,
// and how much of one was used in a week cannot be told from them.
type month struct {
	// name is the month's, and before that of the month before.
	name, before string
	// until is up to when it is counted; zero where the month is over.
	until time.Time
}

// monthOf is the month in which the week began: so each has one summary that gives the
// whole of it.
func monthOf(w week, now time.Time, zone *time.Location) month {
	year, of, _ := w.from.In(zone).Date()
	first := time.Date(year, of, 1, 0, 0, 0, 0, zone)
	m := month{name: first.Format(monthForm), before: first.AddDate(0, -1, 0).Format(monthForm)}
	if now.Before(first.AddDate(0, 1, 0).Add(settled)) {
		m.until = now
	}
	return m
}

// used is how much a project used in a month, in thousandths of a GPU hour; 0 where
// there is no record. Records are not cached.
func (r *Reconciler) used(ctx context.Context, project, month string) (milli int64, err error) {
	var record v1alpha1.UsageRecord
	name := project + "-" + month
	if err := r.Notices.Live.Get(ctx, client.ObjectKey{Name: name}, &record); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading usage record %s: %w", name, err)
	}
	return record.Status.GPUMilliHours, nil
}

// hours are thousandths of a GPU hour as a summary has them, rounded to a tenth.
func hours(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', 1, 64)
}

// inputs are what a summary says of the month, and of the sums of its projects.
func (m month) inputs(now, before int64) map[string]string {
	inputs := map[string]string{message.InputMonth: m.name, message.InputGPUHours: hours(now)}
	if before > 0 {
		inputs[message.InputGPUHoursBefore] = hours(before)
	}
	if !m.until.IsZero() {
		inputs[message.InputMonthUntil] = m.until.UTC().Format(time.RFC3339)
	}
	return inputs
}
