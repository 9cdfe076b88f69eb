// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice.dev/test/stubapi"
)

var (
	workloads = flag.Int("roots", stubapi.Lecture().Roots, "in how many workloads, of five pods each, BenchmarkLifecycle has its pods")
	projects  = flag.Int("projects", 0, "of how many projects; 0 is one for each 50 workloads")
	rest      = flag.Duration("rest", time.Minute, "for how long BenchmarkLifecycle counts the writes while nothing changes")
)

// What ends in the benchmark: a few while the controller is away, and many within
// a minute. All others began later, and run on.
const (
	limit    = 24 * time.Hour
	whenAway = 100
	together = 2_000
	apart    = time.Minute
	brake    = 30 // percent, as it is where nobody sets it
)

// waves are the jobs of a fleet by when they end: the first ones at end, the many
// two hours later, within a while.
func waves(roots int, within time.Duration) (fleet stubapi.Fleet, away, many int, end time.Time) {
	fleet = stubapi.Lecture()
	fleet.Projects, fleet.Nodes = max(2, fleet.Projects*roots/fleet.Roots), max(2, fleet.Nodes*roots/fleet.Roots)
	away, many = max(1, whenAway*roots/fleet.Roots), max(2, together*roots/fleet.Roots)
	fleet.Roots = roots
	fleet.Started = time.Now().Add(-13 * time.Hour).Truncate(time.Second)
	fleet.Founded = fleet.Started.Add(-time.Hour)
	fleet.After = func(root int) time.Duration {
		switch {
		case root < away:
			return 0
		case root < away+many:
			return 2*time.Hour + time.Duration(root-away)*within/time.Duration(many)
		}
		return 12 * time.Hour
	}
	return fleet, away, many, fleet.Started.Add(limit)
}

// BenchmarkLifecycle starts the controller in a cluster full of work that has its
// clocks, lets it rest, starts it again when something was due meanwhile, and has
// many workloads end within a minute.
func BenchmarkLifecycle(b *testing.B) {
	for b.Loop() {
		m := newMeasurement(b)
		m.start()
		m.rest()
		m.endWhenAway()
		m.endTogether()
		m.process.stop(b)
	}
}

// measurement is one turn of the benchmark.
type measurement struct {
	*testing.B
	*world
	process    *process
	away, many int
	end        time.Time
}

// newMeasurement has all but the jobs and their clocks governed first.
func newMeasurement(b *testing.B) *measurement {
	m := &measurement{B: b}
	var fleet stubapi.Fleet
	fleet, m.away, m.many, m.end = waves(*workloads, apart)
	if *projects > 0 {
		fleet.Projects = *projects
	}
	m.world = newWorld(b, fleet)
	p := m.run()
	m.settled(b, p, 0)
	p.stop(b)
	check(b, fleet.FillWork(m.server))
	m.seed(b)
	return m
}

func (m *measurement) run() *process { return run(m, m.kubeconfig, m.clockFile, brake) }

// settle waits until all clocks were looked at.
func (m *measurement) settle() time.Time { return m.settled(m, m.process, m.fleet.Roots) }

func (m *measurement) report(value float64, unit string) {
	m.ReportMetric(value, unit)
	m.Logf("%12.3f %s", value, unit)
}

func (m *measurement) memory(when string) {
	m.report(m.process.resident(m, "VmRSS"), "MiB-"+when)
	m.report(m.process.resident(m, "VmHWM"), "MiB-peak-"+when)
}

// start begins with everything as it should be: nothing is to be written.
func (m *measurement) start() {
	asked, changed := m.asked(), m.changed()
	m.process = m.run()
	m.report(m.settle().Sub(m.process.started).Seconds(), "s/start")
	m.report(m.process.computed(m).Seconds(), "cpu-s/start")
	m.Log(m.asked().since(asked))
	m.report(float64(m.changed().since(changed).sum()), "changes/start")
	m.memory("start")
}

// rest looks for what is written while nothing changes.
func (m *measurement) rest() {
	computed, asked := m.process.computed(m), m.asked()
	time.Sleep(*rest)
	m.Log(m.asked().since(asked))
	m.report(float64(m.asked().since(asked).sum())/rest.Minutes(), "writes/min")
	m.report(100*(m.process.computed(m)-computed).Seconds()/rest.Seconds(), "%-core")
	m.memory("rest")
}

// endWhenAway warns the first, and has them come to their end while nobody is there.
func (m *measurement) endWhenAway() {
	for _, at := range []time.Duration{-3 * time.Hour, -10 * time.Minute} {
		m.stepTo(m, m.end.Add(at))
		m.settle()
	}
	m.memory("warned")
	m.process.stop(m)
	m.stepTo(m, m.end.Add(time.Minute))
	m.process = m.run()
	await(m, "all stopped that was due", func() bool { return len(m.stopped()) >= m.away })
	stops := slices.SortedFunc(maps.Values(m.stopped()), time.Time.Compare)
	m.report(stops[0].Sub(m.process.started).Seconds(), "s/first-stop")
	m.report(stops[m.away-1].Sub(m.process.started).Seconds(), "s/last-stop")
	m.settle()
}

// endTogether has many come to their end within a minute.
func (m *measurement) endTogether() {
	began := m.end.Add(2 * time.Hour)
	m.stepTo(m, began.Add(-10*time.Minute))
	m.settle()
	deadlines := map[string]time.Time{}
	for _, c := range m.clocks(m) {
		if d := c.Status.Deadline; d != nil && d.At.Time.Before(began.Add(time.Hour)) {
			deadlines[c.Namespace+"/"+c.Spec.Root.Name] = d.At.Time
		}
	}
	if len(deadlines) != m.many {
		m.Fatalf("%d workloads are to end, want %d", len(deadlines), m.many)
	}
	m.stepTo(m, began.Add(-30*time.Second))
	await(m, "all stopped", func() bool { return len(m.stopped()) >= m.away+m.many })
	var lags []time.Duration
	stopped := m.stopped()
	for workload, deadline := range deadlines {
		lags = append(lags, m.time.FromReal(stopped[workload]).Sub(deadline))
	}
	slices.Sort(lags)
	m.report(lags[len(lags)/2].Seconds(), "s-lag-p50")
	m.report(lags[len(lags)*99/100].Seconds(), "s-lag-p99")
	m.report(lags[len(lags)-1].Seconds(), "s-lag-max")
	m.settle()
	m.memory("ended")
	if n := len(m.stopped()); n != m.away+m.many {
		m.Errorf("%d workloads were stopped, want %d", n, m.away+m.many)
	}
}
