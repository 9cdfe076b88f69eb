// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/api/policytime"
)

const (
	// quarantineOverruns is after how many evaluations over the limit, for objects of one
	// project within QuarantinePeriod, the policy is no longer evaluated for that project.
	quarantineOverruns = 3
	// quarantineProjects is after overruns for how many projects a policy is no longer
	// evaluated for any. Built-in policies are exempt: an object on which one of them takes too
	// long is the fault of its author.
	quarantineProjects = 3
	// QuarantinePeriod is the time for which an overrun counts, in machine time.
	QuarantinePeriod = 10 * time.Minute
	// maxStuckEvaluations limits the evaluations of one policy that are abandoned and still
	// run.
	maxStuckEvaluations = 4
)

// AllProjects is the project of a quarantine for the objects of all projects.
const AllProjects = "*"

// The reasons of a quarantine.
const (
	// QuarantineTimedOut: the policy exceeded its processor time several times.
	QuarantineTimedOut = "TimedOut"
	// QuarantineStuck: an evaluation exceeded its processor time and could not be stopped.
	QuarantineStuck = "Stuck"
)

// Quarantine is a time in which a version of a policy is not evaluated for the objects of a project.
type Quarantine struct {
	Version
	// Project is the project's name, or [AllProjects].
	Project string
	// Reason is [QuarantineTimedOut] or [QuarantineStuck].
	Reason string
	// Since and Until are machine times.
	Since, Until time.Time
}

// quarantine is what is remembered of a policy's evaluations that exceeded their limit. It
// protects the other policies and the other projects. The zero value is ready.
type quarantine struct {
	used       atomic.Bool // else nothing is remembered
	mu         sync.Mutex
	overruns   map[string][]time.Time // by project, in order
	stuck      map[string]int         // by project
	stuckSince map[string]time.Time   // by project
	allStuck   int
	// adopted are the ends of the quarantines in other processes, by project or AllProjects.
	adopted map[string]time.Time
}

// check returns nil, [ErrQuarantined], or [ErrBusy].
func (q *quarantine) check(project string, builtIn bool) error {
	if !q.used.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := policytime.MachineNow()
	q.forget(now)
	switch {
	case q.stuck[project] > 0, len(q.overruns[project]) >= quarantineOverruns, now.Before(q.adopted[project]):
		return ErrQuarantined
	case q.allStuck >= maxStuckEvaluations && builtIn:
		return ErrBusy
	case builtIn:
	case q.allStuck >= maxStuckEvaluations, len(q.overruns) >= quarantineProjects, now.Before(q.adopted[AllProjects]):
		return ErrQuarantined
	}
	return nil
}

// forget removes the overruns before the quarantine period, and the adopted quarantines that ended.
func (q *quarantine) forget(now time.Time) {
	for project, times := range q.overruns {
		if now.Sub(times[len(times)-1]) >= QuarantinePeriod {
			delete(q.overruns, project)
		}
	}
	maps.DeleteFunc(q.adopted, func(_ string, until time.Time) bool { return !now.Before(until) })
	if len(q.overruns) == 0 && q.allStuck == 0 && len(q.adopted) == 0 {
		q.used.Store(false)
	}
}

// adopt replaces the quarantines in other processes.
func (q *quarantine) adopt(ends map[string]time.Time) {
	if len(ends) == 0 && !q.used.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.adopted = ends
	q.used.Store(true)
	q.forget(policytime.MachineNow())
}

// list returns the quarantines of this process, by project, without the adopted ones.
func (q *quarantine) list(version Version, builtIn bool) []Quarantine {
	if !q.used.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := policytime.MachineNow()
	q.forget(now)
	byProject := map[string]Quarantine{}
	add := func(project, reason string, since, until time.Time) {
		if until.After(byProject[project].Until) {
			byProject[project] = Quarantine{Version: version, Project: project, Reason: reason, Since: since, Until: until}
		}
	}
	var firsts, ends []time.Time
	for project, times := range q.overruns {
		end := times[len(times)-1].Add(QuarantinePeriod)
		firsts, ends = append(firsts, times[0]), append(ends, end)
		if len(times) >= quarantineOverruns {
			add(project, QuarantineTimedOut, times[quarantineOverruns-1], end)
		}
	}
	for project, since := range q.stuckSince {
		add(project, QuarantineStuck, since, stuckUntil(since, now))
	}
	if !builtIn && len(firsts) >= quarantineProjects {
		slices.SortFunc(firsts, time.Time.Compare)
		slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
		add(AllProjects, QuarantineTimedOut, firsts[quarantineProjects-1], ends[quarantineProjects-1])
	}
	if !builtIn && q.allStuck >= maxStuckEvaluations {
		since := slices.MaxFunc(slices.Collect(maps.Values(q.stuckSince)), time.Time.Compare)
		add(AllProjects, QuarantineStuck, since, stuckUntil(since, now))
	}
	return slices.SortedFunc(maps.Values(byProject), func(a, b Quarantine) int { return cmp.Compare(a.Project, b.Project) })
}

// stuckUntil returns the end of a whole number of periods, so that it does not move all the time.
func stuckUntil(since, now time.Time) time.Time {
	passed := now.Sub(since).Truncate(QuarantinePeriod)
	return since.Add(passed + QuarantinePeriod)
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
	recent := slices.DeleteFunc(q.overruns[project], func(at time.Time) bool { return now.Sub(at) >= QuarantinePeriod })
	q.overruns[project] = append(recent, now)
}

// addStuck counts an abandoned evaluation, until finishStuck.
func (q *quarantine) addStuck(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used.Store(true)
	if q.stuck == nil {
		q.stuck, q.stuckSince = map[string]int{}, map[string]time.Time{}
	}
	if q.stuck[project]++; q.stuck[project] == 1 {
		q.stuckSince[project] = policytime.MachineNow()
	}
	q.allStuck++
}

func (q *quarantine) finishStuck(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.allStuck--
	if q.stuck[project]--; q.stuck[project] == 0 {
		delete(q.stuck, project)
		delete(q.stuckSince, project)
	}
}
