// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

func day(date string, requested, used, idle int64) v1alpha1.ClockGPUDay {
	return v1alpha1.ClockGPUDay{Date: date, GPUMilliSeconds: requested, UsedGPUMilliSeconds: used, IdleGPUMilliSeconds: idle}
}

func TestAddToDays(t *testing.T) {
	const hour = 3600 * 1000
	now := time.Date(2026, 11, 24, 1, 0, 0, 0, time.UTC)
	overnight := GPUHold{Milli: 1000, From: now.Add(-2 * time.Hour), To: now}.SplitByDay()
	overnight[0].Active, overnight[1].Idle = time.Hour, 30*time.Minute
	for name, tc := range map[string]struct {
		days []v1alpha1.ClockGPUDay
		uses []GPUHold
		want []v1alpha1.ClockGPUDay
	}{
		"nothing":                {nil, nil, nil},
		"no time":                {nil, []GPUHold{{Milli: 1000, From: now, To: now}}, nil},
		"no GPU":                 {nil, []GPUHold{{From: now.Add(-time.Hour), To: now}}, nil},
		"over midnight":          {nil, overnight, []v1alpha1.ClockGPUDay{day("2026-11-23", hour, hour, 0), day("2026-11-24", hour, 0, hour/2)}},
		"to a day":               {[]v1alpha1.ClockGPUDay{day("2026-11-23", 5, 3, 1)}, overnight[:1], []v1alpha1.ClockGPUDay{day("2026-11-23", hour+5, hour+3, 1)}},
		"days that are too old":  {[]v1alpha1.ClockGPUDay{day("2026-10-24", 1, 0, 0), day("2026-10-25", 2, 0, 0)}, nil, []v1alpha1.ClockGPUDay{day("2026-10-25", 2, 0, 0)}},
		"a date that is no date": {[]v1alpha1.ClockGPUDay{day("", 1, 0, 0)}, nil, nil},
		"a sum that is too large": {
			[]v1alpha1.ClockGPUDay{day("2026-11-23", math.MaxInt64-1, 0, 0)},
			overnight[:1],
			[]v1alpha1.ClockGPUDay{day("2026-11-23", math.MaxInt64, hour, 0)},
		},
	} {
		if diff := cmp.Diff(tc.want, AddToDays(tc.days, tc.uses, now)); diff != "" {
			t.Errorf("%s: the days differ (-want +got)\n%s", name, diff)
		}
	}
}

// The days add up to the whole, in any partition, and are bounded.
func TestAddToDaysProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at := start.Add(time.Duration(rapid.IntRange(0, 86400).Draw(t, "start")) * time.Second)
		var days []v1alpha1.ClockGPUDay
		var within, whole int64
		for range rapid.IntRange(1, 12).Draw(t, "uses") {
			use := GPUHold{Milli: workload.Milli(rapid.IntRange(0, 16000).Draw(t, "milli")), From: at}
			at = at.Add(time.Duration(rapid.IntRange(0, 20*86400).Draw(t, "seconds")) * time.Second)
			use.To = at
			whole += GPUMilliSeconds(use.Milli, use.To.Sub(use.From))
			days = AddToDays(days, use.SplitByDay(), at)
		}
		for i, d := range days {
			within += d.GPUMilliSeconds
			if i > 0 && days[i-1].Date >= d.Date || d.Date < OldestClockDay(at).Format(time.DateOnly) || d.UsedGPUMilliSeconds+d.IdleGPUMilliSeconds > d.GPUMilliSeconds {
				t.Fatalf("day %d of %v", i, days)
			}
		}
		if len(days) > v1alpha1.MaxClockGPUDays || within > whole || at.Sub(start) < 30*24*time.Hour && within != whole {
			t.Fatalf("%d days with %d of %d", len(days), within, whole)
		}
	})
}

// The GPU time of a clock stays with the clock that counted it: a workload that continues another clock has
// only its own. Else the same hours would count twice.
func TestInheritedClocksHaveNoGPUTime(t *testing.T) {
	usage := func(date string) *v1alpha1.ClockGPUUsage {
		memory := int64(1)
		return &v1alpha1.ClockGPUUsage{Days: []v1alpha1.ClockGPUDay{day(date, 1, 0, 0)}, MemoryMiB: &memory}
	}
	gpus := resource.MustParse("1")
	from := &v1alpha1.WorkloadClock{Status: v1alpha1.WorkloadClockStatus{CreatedBy: "anna", GPUs: &gpus, GPUUsage: usage("2026-11-23")}}
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	if s := InheritStatus(from, "anna", now); s.GPUUsage != nil || s.GPUs != nil {
		t.Errorf("a new workload inherits %+v and %s", s.GPUUsage, s.GPUs)
	}
	own := &v1alpha1.WorkloadClockStatus{CreatedBy: "anna", GPUUsage: usage("2026-11-24")}
	if s := ContinueStatus(own, from, now); s.GPUUsage == nil || s.GPUUsage.Days[0].Date != "2026-11-24" || s.GPUs != nil {
		t.Errorf("a workload that continues has %+v and %s", s.GPUUsage, s.GPUs)
	}
	if s := FormerStatus(&from.Status, now); s.GPUUsage == nil || len(s.GPUUsage.Days) != 1 || s.GPUUsage.MemoryMiB != nil || s.GPUs != nil {
		t.Errorf("a former clock has %+v and %s", s.GPUUsage, s.GPUs)
	}
	if from.Status.GPUUsage.MemoryMiB == nil || from.Status.GPUs == nil {
		t.Error("the clock itself changed")
	}
}
