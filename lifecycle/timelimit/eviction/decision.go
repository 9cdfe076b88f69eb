// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import "time"

// Periods are the lengths of the steps, in machine time.
type Periods struct {
	// Notice is the time from the announcement to the eviction.
	Notice time.Duration
	// Budget is the time after the announced deadline for which a disruption budget holds the pod.
	Budget time.Duration
}

// retryInterval is the time between two attempts to evict a pod that a budget holds.
func (p Periods) retryInterval() time.Duration {
	return max(min(10*time.Second, p.Budget/5), time.Second)
}

// step is what is due for an announced pod.
type step uint8

const (
	// stepWait: the announced time is ahead.
	stepWait step = iota
	// stepEvict: the pod is evicted unless a disruption budget forbids it.
	stepEvict
	// stepDelete: the budget period has passed; a pod that a budget still holds is deleted.
	stepDelete
)

// decide returns the step that is due for a pod whose eviction was announced for at, and when the next one is.
func decide(at, now time.Time, periods Periods) (due step, next time.Time) {
	deletion := at.Add(periods.Budget)
	switch {
	case now.Before(at):
		return stepWait, at
	case now.Before(deletion):
		if next = now.Add(periods.retryInterval()); next.After(deletion) {
			next = deletion
		}
		return stepEvict, next
	}
	return stepDelete, now.Add(periods.retryInterval())
}

// The limit of evictions of one node.
const (
	// maxEvictionsPerNode is the number of evictions within evictionWindow.
	maxEvictionsPerNode = 2
	// evictionWindow is in machine time.
	evictionWindow = time.Minute
)

// nodeLimiter limits the evictions on each node. It does not know what a former process evicted, and so it
// permits none within the first window of its own.
type nodeLimiter struct {
	since   time.Time
	evicted map[string][]time.Time
}

// permits reports whether one more pod of a node may be evicted now, and otherwise when.
func (l *nodeLimiter) permits(node string, now time.Time) (permitted bool, next time.Time) {
	if l.since.IsZero() || now.Before(l.since) { // the first call, or the machine time was set back
		l.since = now
	}
	if next = l.since.Add(evictionWindow); next.After(now) {
		return false, next
	}
	l.forget(now)
	recent := l.evicted[node]
	if len(recent) < maxEvictionsPerNode {
		return true, time.Time{}
	}
	return false, recent[len(recent)-maxEvictionsPerNode].Add(evictionWindow)
}

// record counts an eviction.
func (l *nodeLimiter) record(node string, now time.Time) {
	if l.evicted == nil {
		l.evicted = map[string][]time.Time{}
	}
	l.evicted[node] = append(l.evicted[node], now)
}

// forget drops the evictions before the window.
func (l *nodeLimiter) forget(now time.Time) {
	for node, times := range l.evicted {
		for len(times) > 0 && now.Sub(times[0]) >= evictionWindow {
			times = times[1:]
		}
		if l.evicted[node] = times; len(times) == 0 {
			delete(l.evicted, node)
		}
	}
}
