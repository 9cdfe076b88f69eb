// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/api/policytime"
)

const (
	// quarantineOverruns is after how many evaluations over the limit, for objects of one
	// project within quarantinePeriod, the policy is no longer evaluated for that project.
	quarantineOverruns = 3
	// quarantineProjects is after overruns for how many projects a policy is no longer
	// evaluated for any. Built-in policies are exempt: an object on which one of them takes too
	// long is the fault of its author.
	quarantineProjects = 3
	// quarantinePeriod is the time for which an overrun counts, in machine time.
	quarantinePeriod = 10 * time.Minute
	// maxStuckEvaluations limits the evaluations of one policy that are abandoned and still
	// run.
	maxStuckEvaluations = 4
)

// quarantine is what is remembered of a policy's evaluations that exceeded their limit. It
// protects the other policies and the other projects. The zero value is ready.
type quarantine struct {
	used     atomic.Bool // else nothing is remembered
	mu       sync.Mutex
	overruns map[string][]time.Time // by project, in order
	stuck    map[string]int         // by project
	allStuck int
}

// check returns nil, [ErrQuarantined], or [ErrBusy].
func (q *quarantine) check(project string, builtIn bool) error {
	if !q.used.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(policytime.MachineNow())
	switch {
	case q.stuck[project] > 0, len(q.overruns[project]) >= quarantineOverruns:
		return ErrQuarantined
	case q.allStuck >= maxStuckEvaluations && builtIn:
		return ErrBusy
	case q.allStuck >= maxStuckEvaluations, len(q.overruns) >= quarantineProjects && !builtIn:
		return ErrQuarantined
	}
	return nil
}

// forget removes the overruns before the quarantine period.
func (q *quarantine) forget(now time.Time) {
	for project, times := range q.overruns {
		if now.Sub(times[len(times)-1]) >= quarantinePeriod {
			delete(q.overruns, project)
		}
	}
	if len(q.overruns) == 0 && q.allStuck == 0 {
		q.used.Store(false)
	}
}

// addOverrun remembers an evaluation over its limit.
func (q *quarantine) addOverrun(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used.Store(true)
	if q.overruns == nil {
		q.overruns = map[string][]time.Time{}
	}
	now := policytime.MachineNow()
	recent := slices.DeleteFunc(q.overruns[project], func(at time.Time) bool { return now.Sub(at) >= quarantinePeriod })
	q.overruns[project] = append(recent, now)
}

// addStuck counts an abandoned evaluation, until finishStuck.
func (q *quarantine) addStuck(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used.Store(true)
	if q.stuck == nil {
		q.stuck = map[string]int{}
	}
	q.stuck[project]++
	q.allStuck++
}

func (q *quarantine) finishStuck(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.allStuck--
	if q.stuck[project]--; q.stuck[project] == 0 {
		delete(q.stuck, project)
	}
}
