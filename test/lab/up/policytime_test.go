// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/policytime"
)

func TestValidateScale(t *testing.T) {
	for scale, ok := range map[float64]bool{
		1: true, 1.5: true, 3600: true,
		0: false, 0.5: false, -60: false, 3600.5: false, math.Inf(1): false,
	} {
		if err := ValidateScale(scale); (err == nil) != ok {
			t.Errorf("ValidateScale(%v) = %v", scale, err)
		} else if err != nil && !strings.Contains(err.Error(), "from 1 to 3600") {
			t.Errorf("%q lacks the allowed range", err)
		}
	}
	if ValidateScale(math.NaN()) == nil {
		t.Error("NaN is accepted")
	}
}

func TestPolicyTimeSummary(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 4, 5, 0, time.UTC)
	for want, p := range map[string]PolicyTime{
		"2026-11-21 15:04:05 UTC":                                                    {Now: at, Scale: 1},
		"2026-11-21 15:04:05 UTC, 30d ahead of real time":                            {Now: at, Scale: 1, AheadSeconds: 30 * 86400},
		"2026-11-21 15:04:05 UTC, running 60 times as fast":                          {Now: at, Scale: 60},
		"2026-11-21 15:04:05 UTC, 36h ahead of real time, running 1.5 times as fast": {Now: at, Scale: 1.5, AheadSeconds: 36 * 3600},
	} {
		if got := p.Summary(time.UTC); got != want {
			t.Errorf("Summary = %q, want %q", got, want)
		}
	}
}

func TestPolicyTimeOf(t *testing.T) {
	file, err := policytime.OpenFile(filepath.Join(t.TempDir(), policytime.FileName), nil)
	if err != nil {
		t.Fatal(err)
	}
	if now := PolicyTimeOf(file); now.AheadSeconds != 0 || now.Scale != 1 {
		t.Errorf("without a file policy time is %+v, want real time", now)
	}
	if err := errors.Join(file.SetScale(2), file.Advance(time.Hour)); err != nil {
		t.Fatal(err)
	}
	now := PolicyTimeOf(file)
	if now.AheadSeconds < 3600 || now.AheadSeconds > 3630 || now.Scale != 2 {
		t.Errorf("policy time is %+v, want an hour ahead and twice as fast", now)
	}
}

func TestOpenClockWithoutCluster(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenClock(dir)
	if !errors.Is(err, ErrNoCluster) {
		t.Fatalf("err = %v, want ErrNoCluster", err)
	}
	for _, want := range []string{dir, "--dir", "its own policy time"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestOptionsConflictWithTimeScale(t *testing.T) {
	fast := Report{Dir: "/srv/c", Server: "https://127.0.0.1:1", PolicyTime: &PolicyTime{Scale: 60}}
	slow := Report{Dir: "/srv/c", Server: "https://127.0.0.1:1"}
	for _, tc := range []struct {
		report Report
		scale  float64
		want   string
	}{
		{slow, 0, ""},
		{slow, 1, ""},
		{fast, 0, ""},
		{fast, 60, ""},
		{slow, 60, "time scale 60"},
		{fast, 1, "time scale 1"},
	} {
		got, instead := Options{NodesUnset: true, Detach: true, TimeScale: tc.scale}.conflictWith(tc.report)
		if (got == "") != (tc.want == "") || instead.command != tc.want {
			t.Errorf("conflictWith(%v) with --time-scale %v = %q, %q; want %q", tc.report.PolicyTime, tc.scale, got, instead.command, tc.want)
		}
	}
}
