// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// history is a project whose owners' mail is sent at digests, with pauses and times without lifecycle.
type history struct {
	terms  Terms
	record Record
	now    time.Time
	// sent are the warnings that were sent, by deadline and lead, and recorded those that were to be.
	sent     map[WarningKey]time.Time
	recorded map[WarningKey]bool
	paused   bool
	renewed  bool
	held     bool
	// pausedUntil is the end of a pause of Sluice.
	pausedUntil time.Time
	// requested is the time of a request of a renewal without a decision.
	requested time.Time
	// failure is a decision that differs when it is decided again.
	failure string
}

func newHistory(zone *time.Location, validity string, action v1alpha1.ExpiryAction) *history {
	h := &history{
		now:  time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		sent: map[WarningKey]time.Time{}, recorded: map[WarningKey]bool{},
	}
	h.terms = Terms{
		Validity: period.MustParsePeriod(validity), Anchor: h.now, AtExpiry: action, SuspendAfter: 14 * day, DeleteAfter: 30 * day, Zone: zone,
		Leads:    []time.Duration{30 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour},
		Calendar: NewCalendar(holidays("2026-08-20", "2026-09-03", "2026-12-19", "2027-01-06"), zone),
		LastDigest: func(t time.Time) (time.Time, bool) {
			local := t.In(zone)
			run := time.Date(local.Year(), local.Month(), local.Day(), 8, 0, 0, 0, zone)
			if run.After(t) {
				run = run.AddDate(0, 0, -1)
			}
			return run, true
		},
	}
	return h
}

func (h *history) observation() Observation {
	o := Observation{
		MailPaused: h.paused, Renewed: h.renewed, Held: h.held, PausedUntil: h.pausedUntil,
		Owners:   func(key WarningKey) Delivery { return Delivery{SentAt: h.sent[key], Missing: !h.recorded[key]} },
		Contacts: func(WarningKey) Delivery { return Delivery{Failed: true} },
	}
	if !h.requested.After(h.now) {
		o.RequestedAt = h.requested
	}
	return o
}

// decide decides, and delivers the warnings unless mail is paused or lost. It returns the phase before.
func (h *history) decide(lost bool) (Decision, v1alpha1.ProjectPhase) {
	before, observed := h.record.Phase, h.observation()
	d := Decide(h.now, h.record, h.terms, observed)
	observed.Renewed, h.renewed = false, false
	if again := Decide(h.now, d.Record, h.terms, observed); again.Record != d.Record && h.failure == "" {
		h.failure = fmt.Sprintf("at %s: decided %+v, then %+v", h.now, d.Record, again.Record)
	}
	h.record = d.Record
	for _, w := range d.Warnings {
		key := w.WarningKey
		h.recorded[key] = true
		if h.sent[key].IsZero() && !w.Superseded && !h.paused && !lost {
			h.sent[key] = h.now
		}
	}
	return d, before
}

// A project whose mail is delivered expires on the day on which its validity ends, after all warnings.
func TestProjectExpiresOnTime(t *testing.T) {
	h := newHistory(berlin(t), "P6M", v1alpha1.ExpiryExpire)
	want := time.Date(2026, 9, 4, 0, 0, 0, 0, berlin(t)) // 2 September is in the holidays
	var leads []time.Duration
	for range 1000 {
		d, _ := h.decide(false)
		for _, w := range d.Warnings {
			if !w.Superseded && h.sent[w.WarningKey].Equal(h.now) {
				leads = append(leads, w.Lead)
			}
		}
		if h.record.Phase == v1alpha1.ProjectExpired {
			break
		}
		h.now = d.Next
	}
	if !h.now.Equal(want) || len(leads) != 3 {
		t.Errorf("expired at %s after warnings %v, want %s after 3", h.now, leads, want)
	}
}

// No history expires a project without its full notice, moves a deadline to an earlier time, or warns twice of one.
func TestNoExpiryWithoutFullNotice(t *testing.T) {
	zone := berlin(t)
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(zone, rapid.SampledFrom([]string{"P2W", "P1M", "P6M", "P1Y"}).Draw(t, "validity"),
			rapid.SampledFrom([]v1alpha1.ExpiryAction{v1alpha1.ExpiryExpire, v1alpha1.ExpiryConfirm}).Draw(t, "at expiry"))
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			former := h.record
			switch rapid.SampledFrom([]string{"next", "next", "next", "hours", "weeks", "pause", "resume", "renew", "sluice pause", "sluice resume"}).Draw(t, "step") {
			case "sluice pause":
				h.pausedUntil = h.now.Add(time.Duration(rapid.IntRange(1, 24).Draw(t, "hours of the pause")) * time.Hour)
			case "sluice resume":
				if h.now.Before(h.pausedUntil) {
					h.pausedUntil = h.now
				}
			case "pause":
				h.paused = true
			case "resume":
				h.paused = false
			case "weeks":
				h.now = h.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "days")) * 24 * time.Hour)
			case "hours":
				h.now = h.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour)
			case "renew":
				h.renewed = h.record.Phase.IsRenewable()
			}
			renewed := h.renewed
			d, before := h.decide(rapid.IntRange(0, 4).Draw(t, "lost") == 0)
			if renewed && (h.record.Periods <= former.Periods || !h.record.Deadline.After(h.now)) {
				t.Fatalf("at %s: renewed from %+v to %+v", h.now, former, h.record)
			}
			if !renewed && former.Periods == h.record.Periods && former.Step == h.record.Step && !h.record.Deadline.IsZero() && h.record.Deadline.Before(former.Deadline) {
				t.Fatalf("at %s: the deadline moved from %s to %s", h.now, former.Deadline, h.record.Deadline)
			}
			if s := h.terms.stepAfter(&former); h.record.Phase == s.phase && before != s.phase {
				h.requireFullNotice(t, former, s)
				if h.now.Before(h.pausedUntil) {
					t.Fatalf("at %s: became %s in a pause until %s", h.now, s.phase, h.pausedUntil)
				}
			}
			if h.failure != "" {
				t.Fatal(h.failure)
			}
			if !d.Next.IsZero() && rapid.Bool().Draw(t, "to the next") {
				h.now = d.Next
			}
		}
	})
}

// requireFullNotice fails if a step was taken without its full notice.
func (h *history) requireFullNotice(t *rapid.T, former Record, s step) {
	d := decider{Decision: Decision{Record: former}}
	var first, last time.Time
	for key, sent := range h.sent {
		if key.Periods != d.key(0).Periods || key.Step != s.phase {
			continue
		}
		if first.IsZero() || sent.Before(first) {
			first = sent
		}
		if key.Lead == s.shortest() && sent.After(last) {
			last = sent
		}
	}
	c := h.terms.Calendar
	if first.IsZero() || last.IsZero() || c.After(first, s.longest()).After(h.now) || c.After(last, s.shortest()).After(h.now) {
		t.Fatalf("%s at %s: first warned %s, last %s, leads %v", s.phase, h.now, first, last, s.leads)
	}
	if h.now.Before(former.Deadline) {
		t.Fatalf("%s at %s, before %s", s.phase, h.now, former.Deadline)
	}
}
