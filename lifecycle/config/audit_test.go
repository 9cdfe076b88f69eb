// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/api/config"
)

func TestAuditSchedule(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for text, want := range map[string]time.Time{
		"":                                    at("2026-07-02T03:00:00Z"),
		`audit: {schedule: "30 1 * * 1"}`:     at("2026-07-06T01:30:00Z"),
		"audit: {timeZone: Europe/Berlin}":    at("2026-07-02T01:00:00Z"),
		`audit: {schedule: "*/15 * * * *"}`:   at("2026-07-01T12:15:00Z"),
		`audit: {disabled: true, schedule: }`: at("2026-07-02T03:00:00Z"),
	} {
		var c Config
		if err := config.Parse([]byte(configHeader+text), &c); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if next, err := c.Audit.Next(at("2026-07-01T12:00:00Z")); err != nil || !next.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", text, next, err, want)
		}
	}
}

func TestAuditIsInvalid(t *testing.T) {
	for text, field := range map[string]string{
		`{schedule: "hourly"}`:                                     "audit.schedule",
		`{schedule: "@daily"}`:                                     "audit.schedule",
		`{schedule: "0 3 30 2 *"}`:                                 "audit.schedule",
		`{schedule: "0 0 3 * * *"}`:                                "audit.schedule",
		`{timeZone: Europe/Atlan}`:                                 "audit.timeZone",
		`{policyChangeDelay: 1s}`:                                  "audit.policyChangeDelay",
		`{policyChangeDelay: -5m}`:                                 "audit.policyChangeDelay",
		`{policyChangeDelay: 25h}`:                                 "audit.policyChangeDelay",
		`{schedule: "` + strings.Repeat("0,", 200) + `0 3 * * *"}`: "audit.schedule",
	} {
		var c Config
		if err := config.Parse([]byte(configHeader+"audit: "+text), &c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want %s in it", text, err, field)
		}
	}
}

func FuzzAuditSchedule(f *testing.F) {
	for _, seed := range []string{"0 3 * * *", "*/15 * * * *", "0 3 30 2 *", "CRON_TZ=UTC 0 3 * * *", "TZ=x", "@daily", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schedule string) {
		a := Audit{Schedule: schedule}
		a.setDefaults()
		start := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		if next, err := a.Next(start); err == nil && !next.IsZero() && !next.After(start) {
			t.Errorf("%q: %s is not after %s", schedule, next, start)
		}
	})
}
