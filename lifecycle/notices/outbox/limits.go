// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Limits bound how often and for how long a Notice is tried, in machine time.
type Limits struct {
	// Attempts is how often it is tried. A try for which the way to the mail server,
	// or Sluice's own configuration, was not in order is not counted.
	Attempts int
	// FirstRetry is about how long after the first failure it is tried again; with
	// each further one twice that, up to LongestRetry. A mail server that greylists
	// wants five minutes at least.
	FirstRetry, LongestRetry time.Duration
	// Sending is how long one attempt may take, and Lease for how long a claim is
	// respected: longer, by more than what the clocks of two machines differ.
	Sending, Lease time.Duration
	// Settle is how old a Notice is before it is sent, and DigestSettle before a
	// digest collects it: its siblings are recorded at the same time, one by one.
	Settle, DigestSettle time.Duration
}

// DefaultLimits try a message for about five days, as mail servers themselves do.
func DefaultLimits() Limits {
	return Limits{
		Attempts: 35, FirstRetry: 5 * time.Minute, LongestRetry: 4 * time.Hour,
		Sending: 6 * time.Minute, Lease: 8 * time.Minute,
		Settle: 5 * time.Second, DigestSettle: 30 * time.Second,
	}
}

// Retry is how long after the n-th failed attempt (from 1) the next one is: doubled
// each time, and up to a fifth more or less, which the name decides, so that what
// failed together is not tried together.
func (l Limits) Retry(name string, n int) time.Duration {
	wait := l.FirstRetry
	for i := 1; i < n && wait < l.LongestRetry; i++ {
		wait *= 2
	}
	wait = min(wait, l.LongestRetry)
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s %d", name, n)
	share := float64(hash.Sum32()%4001)/10000 - 0.2
	return wait + time.Duration(share*float64(wait))
}
