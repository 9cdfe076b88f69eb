// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// DigestName returns the name of a recipient's digest of a day. All controllers share the one
// digest of the day.
func DigestName(email v1alpha1.EmailAddress, day period.Date) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(email))))
	return fmt.Sprintf("digest-%s-%s", day, hex.EncodeToString(sum[:10]))
}

// digestScheduleParser parses cron's five fields.
var digestScheduleParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// maxDaysWithoutDigest bounds the time between two runs: 29 February may be eight years away.
const maxDaysWithoutDigest = 8*366 + 1

// DigestSchedule is the schedule of a department's digests. There is at most one digest a day:
// the first run of the day. A day that lacks the hour has none.
type DigestSchedule struct {
	schedule cron.Schedule
	zone     *time.Location
}

// ParseDigestSchedule parses a department's terms. It returns nil if they have no digest.
func ParseDigestSchedule(terms v1alpha1.NoticeTerms) (*DigestSchedule, error) {
	if terms.Digest == "" {
		return nil, nil
	}
	schedule, err := digestScheduleParser.Parse(terms.Digest)
	if err != nil {
		return nil, fmt.Errorf("spec.notices.digest: %q: %w", terms.Digest, err)
	}
	zone, err := time.LoadLocation(terms.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("spec.notices.timeZone: %q: %w", terms.TimeZone, err)
	}
	return &DigestSchedule{schedule: schedule, zone: zone}, nil
}

// RunOn returns the time of a day's digest, if there is one.
func (d *DigestSchedule) RunOn(day period.Date) (time.Time, bool) {
	run := d.schedule.Next(day.Start(d.zone).Add(-time.Second))
	return run, !run.IsZero() && period.DateOf(run, d.zone).Equal(day)
}

// LastRun returns the last digest at or before t, and its day. It is not found if the schedule
// never runs.
func (d *DigestSchedule) LastRun(t time.Time) (run time.Time, day period.Date, found bool) {
	if d.schedule.Next(t).IsZero() {
		return time.Time{}, period.Date{}, false // such as 30 February
	}
	year, month, today := t.In(d.zone).Date()
	dayBefore := func(days int) period.Date {
		return period.DateOf(time.Date(year, month, today-days, 0, 0, 0, 0, time.UTC), time.UTC)
	}
	// The first run since a day is not later if the day is earlier.
	days := sort.Search(maxDaysWithoutDigest, func(days int) bool {
		first := d.schedule.Next(dayBefore(days).Start(d.zone).Add(-time.Second))
		return !first.IsZero() && !first.After(t)
	})
	day = dayBefore(days)
	if run, found = d.RunOn(day); !found {
		return time.Time{}, period.Date{}, false
	}
	return run, day, true
}
