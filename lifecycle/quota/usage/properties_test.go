// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

var zones = []string{
	"Europe/Berlin", "America/New_York", "UTC", "Pacific/Kiritimati", "Pacific/Apia", "America/Havana", "Africa/Cairo", "Asia/Amman", "America/Asuncion",
}

func drawZone(t *rapid.T) *time.Location {
	zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func drawInstant(t *rapid.T, label string) time.Time {
	return time.Unix(rapid.Int64Range(parseTime("1990-01-01T00:00:00Z").Unix(), parseTime("2040-01-01T00:00:00Z").Unix()).Draw(t, label), 0).UTC()
}

// Each instant is in one month, months follow one another, and each is about as
// long as a month.
func TestMonthsCoverTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, at := drawZone(t), drawInstant(t, "at")
		m := monthOf(at, zone)
		if at.Before(m.start(zone)) || !at.Before(m.end(zone)) {
			t.Fatalf("%v is not in %s: %v to %v", at, m, m.start(zone), m.end(zone))
		}
		if monthOf(m.start(zone), zone) != m || monthOf(m.end(zone), zone) != m.addMonths(1) || monthOf(m.end(zone).Add(-time.Second), zone) != m {
			t.Fatalf("%s does not end where the next begins", m)
		}
		if days := m.end(zone).Sub(m.start(zone)).Hours() / 24; days < 26.9 || days > 31.1 {
			t.Fatalf("%s has %v days", m, days)
		}
	})
}

func TestMonthEnds(t *testing.T) {
	tests := map[string]struct{ zone, month, begin, end string }{
		"winter time begins":       {"Europe/Berlin", "2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		"summer time begins":       {"Europe/Berlin", "2026-03", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		"a year ends":              {"UTC", "2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		"leap year":                {"UTC", "2028-02", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		"no midnight at its head":  {"Asia/Amman", "2022-04", "2022-03-31T21:00:00Z", "2022-04-30T21:00:00Z"},
		"no midnight on the first": {"America/Havana", "2001-04", "2001-04-01T05:00:00Z", "2001-05-01T04:00:00Z"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			m := monthOf(parseTime(tc.begin), zone)
			got := []string{m.String(), m.start(zone).Format(time.RFC3339), m.end(zone).Format(time.RFC3339)}
			if diff := cmp.Diff([]string{tc.month, tc.begin, tc.end}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func drawUse(t *rapid.T) Use {
	from := drawInstant(t, "from")
	return Use{
		User: rapid.SampledFrom([]string{"anna", "ben", UnknownName}).Draw(t, "user"), Type: rapid.SampledFrom(v1alpha1.WorkloadTypes).Draw(t, "type"),
		NodePool: rapid.SampledFrom([]string{"dgx", "dgx-mig"}).Draw(t, "pool"), Milli: workload.Milli(rapid.IntRange(0, 16000).Draw(t, "milli")),
		From: from, To: from.Add(time.Duration(rapid.IntRange(-10, 100*24*3600).Draw(t, "seconds")) * time.Second),
	}
}

// The sums are the same if a use is split, by months or at random times, and if its parts are added
// in any order.
func TestSplitUsesSumToWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := drawZone(t)
		uses := rapid.SliceOfN(rapid.Custom(drawUse), 0, 6).Draw(t, "uses")
		whole := AddToStatus(v1alpha1.UsageRecordStatus{}, Addition{Uses: uses})
		var parts []Use
		for _, use := range uses {
			for length := use.To.Sub(use.From); length > 0; length = use.To.Sub(use.From) {
				part := use
				part.To = use.From.Add(time.Duration(rapid.Int64Range(1, int64(length/time.Second)).Draw(t, "split")) * time.Second)
				for m, inMonth := range part.splitByMonth(zone) {
					if inMonth.From.Before(m.start(zone)) || inMonth.To.After(m.end(zone)) || !inMonth.From.Before(inMonth.To) {
						t.Fatalf("%v to %v is not in %s", inMonth.From, inMonth.To, m)
					}
					parts = append(parts, inMonth)
				}
				use.From = part.To
			}
		}
		var added v1alpha1.UsageRecordStatus
		for _, part := range rapid.Permutation(parts).Draw(t, "order") {
			added = AddToStatus(added, Addition{Uses: []Use{part}})
		}
		if len(parts) == 0 {
			added = AddToStatus(added, Addition{})
		}
		if diff := cmp.Diff(whole.Entries, added.Entries); diff != "" {
			t.Fatal(diff)
		}
		if whole.GPUMilliHours != added.GPUMilliHours {
			t.Fatalf("%d milli-hours in one, %d in parts", whole.GPUMilliHours, added.GPUMilliHours)
		}
	})
}

func TestSumsSaturate(t *testing.T) {
	use := Use{User: "anna", Type: "train", NodePool: "dgx", Milli: math.MaxInt64, From: parseTime("2026-10-01T00:00:00Z"), To: parseTime("2026-10-02T00:00:00Z")}
	status := AddToStatus(AddToStatus(v1alpha1.UsageRecordStatus{}, Addition{Uses: []Use{use}}), Addition{Uses: []Use{use}})
	if got := status.Entries[0].GPUMilliSeconds; got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
}

// Entries beyond the maximum of a record are combined, and no usage is lost.
func TestExcessEntriesMerged(t *testing.T) {
	tests := map[string]struct {
		users, pools, length int
		keepsPools           bool
	}{
		"users":            {6000, 1, 8, true},
		"long names":       {2000, 2, 1000, true},
		"users and pools":  {100, 60, 8, true},
		"more pools still": {2, 5000, 8, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var status v1alpha1.UsageRecordStatus
			var sum int64
			byPool := map[string]int64{}
			from := parseTime("2026-10-01T00:00:00Z")
			var uses []Use
			for user := range tc.users {
				for pool := range tc.pools {
					seconds := 1 + int64(user*31+pool)%977
					use := Use{
						User: fmt.Sprintf("%0*d", tc.length, user), NodePool: fmt.Sprint("pool-", pool), Type: v1alpha1.WorkloadTypes[user%3],
						Milli: 1000, From: from, To: from.Add(time.Duration(seconds) * time.Second),
					}
					uses = append(uses, use)
					sum += use.MilliSeconds()
					byPool[use.NodePool] += use.MilliSeconds()
				}
			}
			for half := range slices.Chunk(uses, len(uses)/2) {
				status = AddToStatus(status, Addition{Uses: half})
			}
			got, gotByPool := int64(0), map[string]int64{}
			bytes := 0
			for _, e := range status.Entries {
				got += e.GPUMilliSeconds
				gotByPool[e.NodePool] += e.GPUMilliSeconds
				bytes += entryKey{e.User, e.WorkloadType, e.NodePool}.estimatedBytes()
			}
			if got != sum || len(status.Entries) > maxEntries || bytes > maxEntryBytes {
				t.Errorf("%d of %d in %d entries of %d bytes", got, sum, len(status.Entries), bytes)
			}
			if len(status.Entries) < 300 {
				t.Errorf("only %d entries are left", len(status.Entries))
			}
			if tc.keepsPools && !maps.Equal(gotByPool, byPool) {
				t.Error("the sums by pool are not kept")
			}
		})
	}
}

func TestExcessCursorsMerged(t *testing.T) {
	cursors := map[string]time.Time{}
	last := parseTime("2026-10-05T12:00:00Z")
	for i := range 6000 {
		cursors[fmt.Sprintf("job-%06d", i)] = last.Add(time.Duration(i-6000) * time.Second)
	}
	list := boundedCursors(cursors)
	if len(list) > maxCursors || list[0].Clock != OthersName || !list[0].Until.Time.Equal(last.Add(-time.Second)) {
		t.Errorf("%d cursors, the first is %v", len(list), list[0])
	}
	if again := boundedCursors(map[string]time.Time{"a": last, OthersName: last.Add(time.Hour)}); len(again) != 2 || !again[0].Until.Time.Equal(last.Add(time.Hour)) {
		t.Errorf("again: %v", again)
	}
}
