// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/test/scale/stubapi"
)

// overdueEvery is which job of a project is overdue: one in this many.
const overdueEvery = 10

// newOverdueFleet returns a fleet of which a tenth of the jobs of each project, spread over all
// of them, reached their limit a while ago. All others started later and keep running.
func newOverdueFleet(roots int) (fleet stubapi.Fleet, overdue int) {
	fleet = stubapi.LargeFleet()
	fleet.Projects, fleet.Nodes = max(2, fleet.Projects*roots/fleet.Roots), max(2, fleet.Nodes*roots/fleet.Roots)
	fleet.Roots = roots
	fleet.Started = time.Now().Add(-runtimeLimit - 10*time.Minute).Truncate(time.Second)
	fleet.CreatedAt = fleet.Started.Add(-time.Hour)
	projectCount := fleet.Projects
	isOverdue := func(root int) bool { return root/projectCount%overdueEvery == overdueEvery-3 }
	fleet.After = func(root int) time.Duration {
		if isOverdue(root) {
			return 0
		}
		return 12 * time.Hour
	}
	for root := range roots {
		if isOverdue(root) {
			overdue++
		}
	}
	return fleet, overdue
}

// BenchmarkColdStart starts the controller in a cluster in which a tenth of the workloads
// reached its limit while lifecycle was away. Each clock is as the controller wrote it, with
// its warnings.
//
//	s/sync        from the start of the process until its caches are synced
//	s/first-stop  from then until the API server receives the first stop
//	s/last-stop   from then until it receives the last one
//	s/observed    from then until all clocks were reconciled and the queues are empty
func BenchmarkColdStart(b *testing.B) {
	for b.Loop() {
		fleet, overdue := newOverdueFleet(*workloads)
		m := newBenchmarkRun(b, fleet)
		m.process = m.startController()
		waitFor(b, "all stopped that was overdue", func() bool { return len(m.suspendedJobs()) >= overdue })
		observed := m.waitUntilIdle()
		synced := m.process.workersStartedAt(b, "clock")
		stops := slices.SortedFunc(maps.Values(m.suspendedJobs()), time.Time.Compare)
		m.reportMetric(float64(overdue), "overdue")
		m.reportMetric(synced.Sub(m.process.started).Seconds(), "s/sync")
		m.reportMetric(stops[0].Sub(synced).Seconds(), "s/first-stop")
		m.reportMetric(stops[len(stops)/2].Sub(synced).Seconds(), "s/median-stop")
		m.reportMetric(stops[len(stops)-1].Sub(synced).Seconds(), "s/last-stop")
		m.reportMetric(observed.Sub(synced).Seconds(), "s/observed")
		m.reportMetric(m.process.cpuTime(b).Seconds(), "cpu-s")
		m.reportMetric(m.process.apiRequests(b), "requests")
		for line, value := range m.process.scrapeMetrics(b) {
			if strings.HasPrefix(line, "controller_runtime_reconcile_total{") && value > 100 {
				b.Log(line, value)
			}
		}
		m.reportMemory("end")
		if len(stops) != overdue || m.suspensions != overdue {
			b.Errorf("%d workloads were stopped %d times, want %d once", len(stops), m.suspensions, overdue)
		}
		m.process.stop(b)
	}
}

// workersStartedAt returns when a controller started its workers: its caches were synced. It
// reads the log.
func (p *process) workersStartedAt(tb testing.TB, controller string) time.Time {
	tb.Helper()
	file, err := os.Open(p.log.Name())
	mustSucceed(tb, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct {
			Time            time.Time
			Msg, Controller string
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "Starting workers" && line.Controller == controller {
			return line.Time
		}
	}
	tb.Fatalf("the log does not record that controller %s started its workers", controller)
	return time.Time{}
}
