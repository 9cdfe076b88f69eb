// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package weekly

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

// Each summary is of the month in which its week began, and each month has one that
// gives the whole of it.
func TestMonthOf(t *testing.T) {
	for name, tc := range map[string]struct{ now, want, before, until string }{
		"within a month":                     {"2026-03-16 08:00", "2026-03", "2026-02", "2026-03-16 08:00"},
		"the week that ends a month":         {"2026-03-02 08:00", "2026-02", "2026-01", ""},
		"the week over two months":           {"2026-05-04 08:00", "2026-04", "2026-03", ""},
		"the week after that":                {"2026-05-11 08:00", "2026-05", "2026-04", "2026-05-11 08:00"},
		"the turn of the year":               {"2027-01-04 08:00", "2026-12", "2026-11", ""},
		"while the last hour is still added": {"2026-06-01 00:30", "2026-05", "2026-04", "2026-06-01 00:30"},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(t, tc.now)
			w, err := weekOf(v1alpha1.NoticeTerms{Digest: "30 0,8 * * 1", TimeZone: "Europe/Berlin"}, now)
			if tc.now[11:] == "08:00" {
				w, err = weekOf(v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			m := monthOf(w, now, now.Location())
			until := ""
			if !m.until.IsZero() {
				until = m.until.Format("2006-01-02 15:04")
			}
			if diff := cmp.Diff([]string{tc.want, tc.before, tc.until}, []string{m.name, m.before, until}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestHours(t *testing.T) {
	for milli, want := range map[int64]string{0: "0.0", 49: "0.0", 51: "0.1", 1000: "1.0", 1_234_540: "1234.5", 9_999_999_960: "10000000.0"} {
		if got := hours(milli); got != want {
			t.Errorf("%d: %s, want %s", milli, got, want)
		}
	}
}
