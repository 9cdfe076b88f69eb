// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

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

// digestForm is cron's five fields, as departments write them.
var digestForm = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// longestPause is for how long a schedule may have nothing: 29 February comes once
// in eight years at worst.
const longestPause = 8*366 + 1

// Digests is when a department's digests are. There is one a day at most: where its
// schedule has several, or an hour comes twice, the first; on a day that lacks the
// hour there is none.
type Digests struct {
	schedule cron.Schedule
	zone     *time.Location
}

// DigestsOf reads a department's terms. It is nil where they have no digest.
func DigestsOf(terms v1alpha1.NoticeTerms) (*Digests, error) {
	if terms.Digest == "" {
		return nil, nil
	}
	schedule, err := digestForm.Parse(terms.Digest)
	if err != nil {
		return nil, fmt.Errorf("spec.notices.digest: %q: %w", terms.Digest, err)
	}
	zone, err := time.LoadLocation(terms.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("spec.notices.timeZone: %q: %w", terms.TimeZone, err)
	}
	return &Digests{schedule: schedule, zone: zone}, nil
}

// On is the digest of a day, if there is one.
func (d *Digests) On(day period.Date) (time.Time, bool) {
	run := d.schedule.Next(day.Start(d.zone).Add(-time.Second))
	return run, !run.IsZero() && period.DateOf(run, d.zone).Equal(day)
}

// Last is the last digest at or before t, and its day: when what must be said by t is
// due. It is not found where the schedule never has one.
func (d *Digests) Last(t time.Time) (run time.Time, day period.Date, found bool) {
	day = period.DateOf(t, d.zone)
	for range longestPause {
		run, ok := d.On(day)
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
