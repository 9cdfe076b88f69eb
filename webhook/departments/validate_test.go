// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // as in the binary

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func department(zone, digest string) *v1alpha1.Department {
	return &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: zone, Digest: digest}}}
}

func TestValidate(t *testing.T) {
	const zone, digest = "spec.notices.timeZone", "spec.notices.digest"
	tests := map[string]struct {
		zone, digest string
		wrong        []string // what the one error says
		warns        string
	}{
		"nothing said":              {},
		"usual":                     {zone: "Europe/Berlin", digest: "0 8 * * *"},
		"weekdays":                  {zone: "UTC", digest: "30 7 * * 1-5"},
		"no such zone":              {zone: "Europe/Magdeburg", wrong: []string{zone, "Europe/Magdeburg", "Europe/Berlin"}},
		"the machine's zone":        {zone: "Local", wrong: []string{zone, "Local"}},
		"a path as a zone":          {zone: "../../etc/passwd", wrong: []string{zone, "etc/passwd"}},
		"six fields":                {digest: "0 0 8 * * *", wrong: []string{digest, "0 0 8 * * *", "five cron fields"}},
		"four fields":               {digest: "8 * * *", wrong: []string{digest, "five cron fields"}},
		"hour 25":                   {digest: "0 25 * * *", wrong: []string{digest, "25"}},
		"month 13":                  {digest: "0 8 * 13 *", wrong: []string{digest, "13"}},
		"a name":                    {digest: "@daily", wrong: []string{digest, "@daily"}},
		"with a zone of its own":    {digest: "CRON_TZ=Asia/Tokyo 0 8 * * *", wrong: []string{digest, "the zone is timeZone's"}},
		"a day that never comes":    {digest: "0 8 30 2 *", wrong: []string{digest, "never be sent"}},
		"when clocks change":        {digest: "30 2 * * *", warns: "02:00 and 03:00"},
		"at any hour, so at 2 too":  {digest: "0 * * * *", warns: "02:00 and 03:00"},
		"three is safe, and ranges": {digest: "0 3-6 * * *"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := Validate(nil, department(tc.zone, tc.digest), access.OverAll, World{}, now)
			if len(tc.wrong) == 0 {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs)
				}
			} else if len(errs) != 1 {
				t.Fatalf("errors = %v, want one", errs)
			}
			for _, want := range tc.wrong {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("error %q does not say %q", errs[0], want)
				}
			}
			if got := strings.Join(warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings = %q, want %q", got, tc.warns)
			}
		})
	}
}

func FuzzValidate(f *testing.F) {
	f.Add("Europe/Berlin", "0 8 * * *")
	f.Add("", "*/0 * * * *")
	f.Add("\x00", "TZ= ")
	f.Fuzz(func(_ *testing.T, zone, digest string) {
		Validate(nil, department(zone, digest), access.OverAll, World{}, now) // must neither panic nor hang
	})
}
