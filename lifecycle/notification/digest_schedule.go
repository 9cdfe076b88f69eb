// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// DigestName is the name of the Notice that carries what one recipient is told on a
// day: one a day, whoever has something to say.
func DigestName(email v1alpha1.EmailAddress, day period.Date) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(email))))
	return fmt.Sprintf("digest-%s-%s", day, hex.EncodeToString(sum[:10]))
}

// digestScheduleParser is cron's five fields, as departments write them.
var digestScheduleParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// maxDaysWithoutDigest is for how long a schedule may have nothing: 29 February comes once
// in eight years at worst.
const maxDaysWithoutDigest = 8*366 + 1

// DigestSchedule is when a department's digests are. There is one a day at most: where its
// schedule has several, or an hour comes twice, the first; on a day that lacks the
// hour there is none.
type DigestSchedule struct {
	schedule cron.Schedule
	zone     *time.Location
}

// ParseDigestSchedule reads a department's terms. It is nil where they have no digest.
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

// RunOn is the digest of a day, if there is one.
func (d *DigestSchedule) RunOn(day period.Date) (time.Time, bool) {
	run := d.schedule.Next(day.Start(d.zone).Add(-time.Second))
	return run, !run.IsZero() && period.DateOf(run, d.zone).Equal(day)
}

// LastRun is the last digest at or before t, and its day: when what must be said by t is
// due. It is not found where the schedule never has one.
func (d *DigestSchedule) LastRun(t time.Time) (run time.Time, day period.Date, found bool) {
	day = period.DateOf(t, d.zone)
	for range maxDaysWithoutDigest {
		run, ok := d.RunOn(day)
		switch {
		case ok && !run.After(t):
			return run, day, true
		case run.IsZero():
			return time.Time{}, period.Date{}, false // such as 30 February
		}
		day = period.DateOf(day.Start(d.zone).Add(-time.Hour), d.zone)
	}
	return time.Time{}, period.Date{}, false
}
