// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

func newTestFormatter(t *testing.T, zone string, language v1alpha1.Language, now time.Time) timeFormatter {
	t.Helper()
	at, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return timeFormatter{language: language, zone: at, now: now}
}

func mustParseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at
}

func TestFormatTime(t *testing.T) {
	now := mustParseTime("2026-03-27T12:00:00Z")
	for name, test := range map[string]struct {
		zone     string
		language v1alpha1.Language
		at       string
		endsDay  bool
		want     LocalizedTime
	}{
		"before summer begins": {"Europe/Berlin", v1alpha1.LanguageGerman, "2026-03-29T00:59:59Z", false, LocalizedTime{
			Date: "Sonntag, 29. März 2026", Day: "29.03.2026", Time: "01:59 Uhr MEZ", At: "am Sonntag, dem 29. März 2026, um 01:59 Uhr MEZ",
			Local: "Sonntag, 29. März 2026, 01:59 Uhr MEZ", Brief: "So., 29.3., 01:59 MEZ", In: "in 37 Stunden",
		}},
		"as summer begins": {"Europe/Berlin", v1alpha1.LanguageGerman, "2026-03-29T01:00:00Z", false, LocalizedTime{
			Date: "Sonntag, 29. März 2026", Day: "29.03.2026", Time: "03:00 Uhr MESZ", At: "am Sonntag, dem 29. März 2026, um 03:00 Uhr MESZ",
			Local: "Sonntag, 29. März 2026, 03:00 Uhr MESZ", Brief: "So., 29.3., 03:00 MESZ", In: "in 37 Stunden",
		}},
		"the first 02:30 in October": {"Europe/Berlin", v1alpha1.LanguageEnglish, "2026-10-25T00:30:00Z", false, LocalizedTime{
			Date: "Sunday, 25 October 2026", Day: "25 Oct 2026", Time: "02:30 CEST", At: "on Sunday, 25 October 2026, at 02:30 CEST",
			Local: "Sunday, 25 October 2026, 02:30 CEST", Brief: "Sun 25 Oct, 02:30 CEST", In: "in 212 days",
		}},
		"the second": {"Europe/Berlin", v1alpha1.LanguageEnglish, "2026-10-25T01:30:00Z", false, LocalizedTime{
			Date: "Sunday, 25 October 2026", Day: "25 Oct 2026", Time: "02:30 CET", At: "on Sunday, 25 October 2026, at 02:30 CET",
			Local: "Sunday, 25 October 2026, 02:30 CET", Brief: "Sun 25 Oct, 02:30 CET", In: "in 212 days",
		}},
		"a project's last day, which has 25 hours": {"Europe/Berlin", v1alpha1.LanguageEnglish, "2026-10-25T23:00:00Z", true, LocalizedTime{
			Date: "Sunday, 25 October 2026", Day: "25 Oct 2026", Time: "24:00 CET", At: "on Sunday, 25 October 2026, at 24:00 CET",
			Local: "Sunday, 25 October 2026, 24:00 CET", Brief: "Sun 25 Oct, 24:00 CET", In: "in 212 days",
		}},
		"a year's last day": {"Europe/Berlin", v1alpha1.LanguageGerman, "2026-12-31T23:00:00Z", true, LocalizedTime{
			Date: "Donnerstag, 31. Dezember 2026", Day: "31.12.2026", Time: "24:00 Uhr MEZ",
			At:    "am Donnerstag, dem 31. Dezember 2026, um 24:00 Uhr MEZ",
			Local: "Donnerstag, 31. Dezember 2026, 24:00 Uhr MEZ", Brief: "Do., 31.12., 24:00 MEZ", In: "in 279 Tagen",
		}},
		"another year": {"Europe/Berlin", v1alpha1.LanguageGerman, "2027-01-01T11:00:00Z", false, LocalizedTime{
			Date: "Freitag, 1. Januar 2027", Day: "01.01.2027", Time: "12:00 Uhr MEZ", At: "am Freitag, dem 1. Januar 2027, um 12:00 Uhr MEZ",
			Local: "Freitag, 1. Januar 2027, 12:00 Uhr MEZ", Brief: "01.01.2027, 12:00 MEZ", In: "in 280 Tagen",
		}},
		"a zone without a name": {"America/Sao_Paulo", v1alpha1.LanguageEnglish, "2026-03-27T12:30:00Z", false, LocalizedTime{
			Date: "Friday, 27 March 2026", Day: "27 Mar 2026", Time: "09:30 UTC-03", At: "on Friday, 27 March 2026, at 09:30 UTC-03",
			Local: "Friday, 27 March 2026, 09:30 UTC-03", Brief: "Fri 27 Mar, 09:30 UTC-03", In: "in 30 minutes",
		}},
		"past": {"UTC", v1alpha1.LanguageEnglish, "2026-03-27T12:00:00Z", false, LocalizedTime{
			Date: "Friday, 27 March 2026", Day: "27 Mar 2026", Time: "12:00 UTC", At: "on Friday, 27 March 2026, at 12:00 UTC",
			Local: "Friday, 27 March 2026, 12:00 UTC", Brief: "Fri 27 Mar, 12:00 UTC",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newTestFormatter(t, test.zone, test.language, now).formatTime(mustParseTime(test.at), test.endsDay)
			test.want.Ahead = test.want.In != ""
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFormatRounded(t *testing.T) {
	now := mustParseTime("2026-03-27T12:00:00Z")
	german, english := newTestFormatter(t, "UTC", v1alpha1.LanguageGerman, now), newTestFormatter(t, "UTC", v1alpha1.LanguageEnglish, now)
	for text, want := range map[string][2]string{
		"30s":       {"in weniger als einer Minute", "in less than a minute"},
		"61s":       {"in 1 Minute", "in 1 minute"},
		"29m57s":    {"in 30 Minuten", "in 30 minutes"},
		"1h":        {"in 1 Stunde", "in 1 hour"},
		"1h20m":     {"in 1 Stunde 20 Minuten", "in 1 hour 20 minutes"},
		"3h59m50s":  {"in 4 Stunden", "in 4 hours"},
		"23h59m57s": {"in 24 Stunden", "in 24 hours"},
		"47h":       {"in 47 Stunden", "in 47 hours"},
		"48h":       {"in 2 Tagen", "in 2 days"},
		"720h":      {"in 30 Tagen", "in 30 days"},
		"0s":        {"", ""}, "-1h": {"", ""},
	} {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{german.timeUntil(now.Add(d)), english.timeUntil(now.Add(d))}; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestFormatExact(t *testing.T) {
	german, english := timeFormatter{language: v1alpha1.LanguageGerman}, timeFormatter{language: v1alpha1.LanguageEnglish}
	for d, want := range map[time.Duration][3]string{
		48 * time.Hour:                {"48 Stunden", "48 Stunden", "48 hours"},
		240 * time.Hour:               {"10 Tage", "10 Tagen", "10 days"},
		36*time.Hour + 5*time.Minute:  {"36 Stunden 5 Minuten", "36 Stunden 5 Minuten", "36 hours 5 minutes"},
		73 * time.Hour:                {"3 Tage 1 Stunde", "3 Tagen 1 Stunde", "3 days 1 hour"},
		time.Second:                   {"1 Sekunde", "1 Sekunde", "1 second"},
		0:                             {"0 Sekunden", "0 Sekunden", "0 seconds"},
		90*time.Second + 1:            {"1 Minute 30 Sekunden", "1 Minute 30 Sekunden", "1 minute 30 seconds"},
		72 * time.Hour:                {"3 Tage", "3 Tagen", "3 days"},
		25 * time.Hour:                {"25 Stunden", "25 Stunden", "25 hours"},
		24*30*time.Hour + time.Minute: {"30 Tage 1 Minute", "30 Tagen 1 Minute", "30 days 1 minute"},
	} {
		got := [3]string{german.formatExact(d).Text, german.formatExact(d).Dative, english.formatExact(d).Text}
		if got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestReferenceTime: durations count from when the Notice was recorded, or from when it was due if
// policy time differs from machine time.
func TestReferenceTime(t *testing.T) {
	for name, test := range map[string]struct{ due, recorded, deadline, want string }{
		"at once":      {"2026-11-22T11:14:00Z", "2026-11-22T11:14:03Z", "2026-11-22T15:14:00Z", "in 4 hours"},
		"late":         {"2026-11-22T11:14:00Z", "2026-11-22T13:14:00Z", "2026-11-22T15:14:00Z", "in 2 hours"},
		"time stepped": {"2027-11-22T11:14:00Z", "2026-11-22T11:14:00Z", "2027-11-22T15:14:00Z", "in 4 hours"},
		"time behind":  {"2025-11-22T11:14:00Z", "2026-11-22T11:14:00Z", "2025-11-22T15:14:00Z", "in 4 hours"},
	} {
		t.Run(name, func(t *testing.T) {
			n := Examples()[1].Notice
			n.Spec.DueAt.Time, n.CreationTimestamp.Time, n.Spec.Deadline.Time = mustParseTime(
				test.due,
			), mustParseTime(
				test.recorded,
			), mustParseTime(
				test.deadline,
			)
			if p := newTemplateData(n, newTimeFormatter(n)); p.Deadline.In != test.want {
				t.Errorf("%q, want %q", p.Deadline.In, test.want)
			}
		})
	}
}
