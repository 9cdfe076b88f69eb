// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"testing"
	"time"

	"sluice.dev/api/workloadkind"
)

// The delay doubles from five minutes to an hour, and the record survives in its annotation.
func TestPutBackDelays(t *testing.T) {
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	record := workloadkind.PutBack{}
	for times, minutes := range []int{5, 10, 20, 40, 60, 60, 60} {
		want := time.Duration(minutes) * time.Minute
		record = record.Next(now)
		if got := record.Until.Sub(now); got != want || record.Times != times+1 {
			t.Errorf("put back %d times: for %s, want %s", record.Times, got, want)
		}
		if got := workloadkind.ParsePutBack(record.String()); got != record {
			t.Errorf("parsed %v, want %v", got, record)
		}
	}
}

func TestParsePutBack(t *testing.T) {
	for value, want := range map[string]workloadkind.PutBack{
		"": {}, "x": {}, "2": {Times: 2}, "2 tomorrow": {Times: 2},
		"2 2026-10-24T12:00:00Z": {Times: 2, Until: time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)},
	} {
		if got := workloadkind.ParsePutBack(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
