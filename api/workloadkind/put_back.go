// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"strconv"
	"strings"
	"time"
)

// The delay after which a workload that was put back is queued again, in policy time. It doubles each time.
const firstPutBackDelay, lastPutBackDelay = 5 * time.Minute, time.Hour

// PutBack records how often a workload that did not start was put back into its queue: the annotation
// sluice.dev/put-back of a Kueue Workload. The zero value means never.
type PutBack struct {
	// Times counts how often it was put back, at least 0.
	Times int
	// Until is when it is queued again, in policy time to the second. It is zero once it is.
	Until time.Time
}

// ParsePutBack returns the record of an annotation. What is not valid is zero.
func ParsePutBack(value string) (record PutBack) {
	times, until, _ := strings.Cut(value, " ")
	record.Times, _ = strconv.Atoi(times)
	record.Until, _ = time.Parse(time.RFC3339, until)
	return record
}

// String returns the value of the annotation.
func (p PutBack) String() string {
	if p.Until.IsZero() {
		return strconv.Itoa(p.Times)
	}
	return strconv.Itoa(p.Times) + " " + p.Until.UTC().Format(time.RFC3339)
}

// Next returns the record of a workload that is put back now.
func (p PutBack) Next(now time.Time) PutBack {
	return PutBack{p.Times + 1, now.Add(min(firstPutBackDelay<<min(max(p.Times, 0), 8), lastPutBackDelay))}
}
