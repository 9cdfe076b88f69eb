// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/stubapi"
)

// world is an API server with a fleet, and its policy time.
type world struct {
	fleet      stubapi.Fleet
	server     *stubapi.Server
	client     client.Client
	time       *clock.File
	kubeconfig string
	clockFile  string

	mutex sync.Mutex
	// stops are when each job was suspended last, by namespace and name.
	stops       map[string]time.Time
	suspensions int
}

// newWorld is one without jobs and pods: those are the caller's to put there.
func newWorld(tb testing.TB, fleet stubapi.Fleet) *world {
	tb.Helper()
	dir := tb.TempDir()
	w := &world{fleet: fleet, stops: map[string]time.Time{}, kubeconfig: filepath.Join(dir, "kubeconfig"), clockFile: filepath.Join(dir, clock.FileName)}
	var err error
	w.server, err = stubapi.New(nil, fleet.StopSuspended, stubapi.CountQuotas, w.noteStop)
	check(tb, err)
	check(tb, fleet.FillCluster(w.server))
	config, err := w.server.Listen(tb.Context())
	check(tb, err)
	check(tb, stubapi.WriteKubeconfig(config, w.kubeconfig))
	kinds, err := scheme.New()
	check(tb, err)
	w.client, err = client.New(config, client.Options{Scheme: kinds})
	check(tb, err)
	w.time, err = clock.OpenFile(w.clockFile, nil)
	check(tb, err)
	return w
}

// noteStop notes when a job is suspended that was not.
func (w *world) noteStop(_ *stubapi.Server, kind stubapi.Kind, before, after map[string]any) {
	now := time.Now()
	if kind.Kind != "Job" || suspended(before) || !suspended(after) {
		return
	}
	var job unstructured.Unstructured
	job.SetUnstructuredContent(after)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.suspensions++
	w.stops[job.GetNamespace()+"/"+job.GetName()] = now
}

func suspended(job map[string]any) bool {
	suspend, _, _ := unstructured.NestedBool(job, "spec", "suspend")
	return suspend
}

// stopped are the jobs that were suspended so far.
func (w *world) stopped() map[string]time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.stops)
}

// stepTo steps policy time forward.
func (w *world) stepTo(tb testing.TB, at time.Time) {
	tb.Helper()
	check(tb, w.time.AdvanceTo(at))
}

// writes counts the writes of each kind.
type writes map[stubapi.Write]int

// asked are the writes that were asked for, but for those that say who acts; and
// changed those of them that changed something.
func (w *world) asked() writes   { return besideElection(w.server.Writes()) }
func (w *world) changed() writes { return besideElection(w.server.Changes()) }

// besideElection leaves out the lease, and the event that tells who has it.
func besideElection(all writes) writes {
	maps.DeleteFunc(all, func(of stubapi.Write, _ int) bool {
		return strings.HasPrefix(of.Resource, "leases.") || of.Resource == "events"
	})
	return all
}

// since are the writes that came after those before.
func (all writes) since(before writes) writes {
	since := writes{}
	for of, n := range all {
		if n > before[of] {
			since[of] = n - before[of]
		}
	}
	return since
}

func (all writes) sum() (n int) {
	for _, of := range all {
		n += of
	}
	return n
}

// clocks are all clocks.
func (w *world) clocks(tb testing.TB) []v1alpha1.WorkloadClock {
	tb.Helper()
	var list v1alpha1.WorkloadClockList
	check(tb, w.client.List(tb.Context(), &list))
	return list.Items
}

// patience is how long anything is waited for.
const patience = 20 * time.Minute

// await waits for something to become true, and fails the test where it does not.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	over := time.After(patience)
	for !holds() {
		select {
		case <-look.C:
		case <-over:
			tb.Fatalf("after %s: not %s", patience, what)
		}
	}
}

// quietFor is how long nothing is written before a controller counts as done.
const quietFor = 3 * time.Second

// settled waits until p has looked at so many clocks since it started, has nothing
// left to look at, and has written nothing for a while. It answers when that began.
func (w *world) settled(tb testing.TB, p *process, clocks int) time.Time {
	tb.Helper()
	last, at := -1, time.Now()
	await(tb, "settled", func() bool {
		if n := w.asked().sum(); n != last {
			last, at = n, time.Now()
		}
		return time.Since(at) >= quietFor && p.idle(tb, clocks)
	})
	return at
}
