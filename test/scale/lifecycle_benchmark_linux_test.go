// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice.dev/test/scale/stubapi"
)

var (
	workloads       = flag.Int("roots", stubapi.LargeFleet().Roots, "in how many workloads, of five pods each, BenchmarkLifecycle has its pods")
	projects        = flag.Int("projects", 0, "of how many projects; 0 is one for each 50 workloads")
	idleObservation = flag.Duration("rest", time.Minute, "for how long BenchmarkLifecycle counts the writes while nothing changes")
)

// The workloads that end in the benchmark: a few during a downtime of the controller, and many
// within a minute. All others started later and keep running.
const (
	runtimeLimit       = 24 * time.Hour
	endingDuringOutage = 100
	endingTogether     = 2_000
	startInterval      = time.Minute
	stopLimiterPercent = 30 // percent, the default
)

// newStaggeredFleet returns a fleet whose first jobs end at end, and many others two hours
// later.
func newStaggeredFleet(roots int, within time.Duration) (fleet stubapi.Fleet, away, many int, end time.Time) {
	fleet = stubapi.LargeFleet()
	fleet.Projects, fleet.Nodes = max(2, fleet.Projects*roots/fleet.Roots), max(2, fleet.Nodes*roots/fleet.Roots)
	away, many = max(1, endingDuringOutage*roots/fleet.Roots), max(2, endingTogether*roots/fleet.Roots)
	fleet.Roots = roots
	fleet.Started = time.Now().Add(-13 * time.Hour).Truncate(time.Second)
	fleet.CreatedAt = fleet.Started.Add(-time.Hour)
	fleet.After = func(root int) time.Duration {
		switch {
		case root < away:
			return 0
		case root < away+many:
			return 2*time.Hour + time.Duration(root-away)*within/time.Duration(many)
		}
		return 12 * time.Hour
	}
	return fleet, away, many, fleet.Started.Add(runtimeLimit)
}

// BenchmarkLifecycle starts the controller in a cluster with clocks, lets it idle, starts it
// again after a downtime in which deadlines passed, and lets many workloads end within a
// minute.
func BenchmarkLifecycle(b *testing.B) {
	for b.Loop() {
		fleet, away, many, end := newStaggeredFleet(*workloads, startInterval)
		m := newBenchmarkRun(b, fleet)
		m.away, m.many, m.end = away, many, end
		m.measureStart()
		m.measureIdle()
		m.measureOutage()
		m.measureMassStop()
		m.process.stop(b)
	}
}

// benchmarkRun is one iteration of the benchmark.
type benchmarkRun struct {
	*testing.B
	*benchmarkCluster
	process    *process
	away, many int
	end        time.Time
}

// newBenchmarkRun creates the cluster of a fleet without jobs and clocks, waits until it is
// governed, and adds them.
func newBenchmarkRun(b *testing.B, fleet stubapi.Fleet) *benchmarkRun {
	if *projects > 0 {
		fleet.Projects = *projects
	}
	m := &benchmarkRun{B: b, benchmarkCluster: newBenchmarkCluster(b, fleet)}
	p := m.startController()
	m.waitUntilSettled(b, p, 0)
	p.stop(b)
	mustSucceed(b, fleet.FillWork(m.server))
	m.createClocks(b)
	return m
}

func (m *benchmarkRun) startController() *process {
	return startLifecycle(m, m.kubeconfig, m.clockFile, stopLimiterPercent)
}

// waitUntilIdle waits until all clocks were reconciled.
func (m *benchmarkRun) waitUntilIdle() time.Time {
	return m.waitUntilSettled(m, m.process, m.fleet.Roots)
}

func (m *benchmarkRun) reportMetric(value float64, unit string) {
	m.ReportMetric(value, unit)
	m.Logf("%12.3f %s", value, unit)
}

func (m *benchmarkRun) reportMemory(when string) {
	m.reportMetric(m.process.memoryMiB(m, "VmRSS"), "MiB-"+when)
	m.reportMetric(m.process.memoryMiB(m, "VmHWM"), "MiB-peak-"+when)
}

// measureStart starts the controller in a consistent cluster. It must write nothing.
func (m *benchmarkRun) measureStart() {
	requested, changed := m.requestedWrites(), m.effectiveWrites()
	m.process = m.startController()
	m.reportMetric(m.waitUntilIdle().Sub(m.process.started).Seconds(), "s/start")
	m.reportMetric(m.process.cpuTime(m).Seconds(), "cpu-s/start")
	m.Log(m.requestedWrites().minus(requested))
	m.reportMetric(float64(m.effectiveWrites().minus(changed).sum()), "changes/start")
	m.reportMemory("start")
}

// measureIdle counts the writes while nothing changes.
func (m *benchmarkRun) measureIdle() {
	computed, requested := m.process.cpuTime(m), m.requestedWrites()
	time.Sleep(*idleObservation)
	m.Log(m.requestedWrites().minus(requested))
	m.reportMetric(float64(m.requestedWrites().minus(requested).sum())/idleObservation.Minutes(), "writes/min")
	m.reportMetric(100*(m.process.cpuTime(m)-computed).Seconds()/idleObservation.Seconds(), "%-core")
	m.reportMemory("rest")
}

// measureOutage lets the warned first workloads reach their deadline during a downtime.
func (m *benchmarkRun) measureOutage() {
	for _, at := range []time.Duration{-3 * time.Hour, -10 * time.Minute} {
		m.advanceTimeTo(m, m.end.Add(at))
		m.waitUntilIdle()
	}
	m.reportMemory("warned")
	m.process.stop(m)
	m.advanceTimeTo(m, m.end.Add(afterLateWarning))
	m.process = m.startController()
	waitFor(m, "all stopped that was due", func() bool { return len(m.suspendedJobs()) >= m.away })
	stops := slices.SortedFunc(maps.Values(m.suspendedJobs()), time.Time.Compare)
	m.reportMetric(stops[0].Sub(m.process.started).Seconds(), "s/first-stop")
	m.reportMetric(stops[m.away-1].Sub(m.process.started).Seconds(), "s/last-stop")
	m.waitUntilIdle()
}

// measureMassStop lets many workloads reach their deadline within a minute.
func (m *benchmarkRun) measureMassStop() {
	began := m.end.Add(2 * time.Hour)
	m.advanceTimeTo(m, began.Add(-10*time.Minute))
	m.waitUntilIdle()
	deadlines := map[string]time.Time{}
	for _, c := range m.listClocks(m) {
		if d := c.Status.Deadline; d != nil && d.At.Time.Before(began.Add(time.Hour)) {
			deadlines[c.Namespace+"/"+c.Spec.Root.Name] = d.At.Time
		}
	}
	if len(deadlines) != m.many {
		m.Fatalf("%d workloads are to end, want %d", len(deadlines), m.many)
	}
	m.advanceTimeTo(m, slices.MinFunc(slices.Collect(maps.Values(deadlines)), time.Time.Compare).Add(-30*time.Second))
	waitFor(m, "all stopped", func() bool { return len(m.suspendedJobs()) >= m.away+m.many })
	var lags []time.Duration
	stopped := m.suspendedJobs()
	for workload, deadline := range deadlines {
		lags = append(lags, m.time.FromReal(stopped[workload]).Sub(deadline))
	}
	slices.Sort(lags)
	m.reportMetric(lags[len(lags)/2].Seconds(), "s-lag-p50")
	m.reportMetric(lags[len(lags)*99/100].Seconds(), "s-lag-p99")
	m.reportMetric(lags[len(lags)-1].Seconds(), "s-lag-max")
	m.waitUntilIdle()
	m.reportMemory("ended")
	if n := len(m.suspendedJobs()); n != m.away+m.many {
		m.Errorf("%d workloads were stopped, want %d", n, m.away+m.many)
	}
}
