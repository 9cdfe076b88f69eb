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

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/scale/stubapi"
)

// benchmarkCluster is an API server with a fleet and a policy time.
type benchmarkCluster struct {
	fleet      stubapi.Fleet
	server     *stubapi.Server
	client     client.Client
	time       *policytime.File
	kubeconfig string
	clockFile  string

	mutex sync.Mutex
	// stops are the times of the last suspension of each job, by namespace and name.
	stops       map[string]time.Time
	suspensions int
}

// newBenchmarkCluster returns a cluster without jobs and pods. The caller adds them.
func newBenchmarkCluster(tb testing.TB, fleet stubapi.Fleet) *benchmarkCluster {
	tb.Helper()
	dir := tb.TempDir()
	w := &benchmarkCluster{fleet: fleet, stops: map[string]time.Time{}, kubeconfig: filepath.Join(dir, "kubeconfig"), clockFile: filepath.Join(dir, policytime.FileName)}
	var err error
	w.server, err = stubapi.New(nil, fleet.StopSuspended, stubapi.CountQuotas, w.recordSuspension)
	mustSucceed(tb, err)
	mustSucceed(tb, fleet.FillCluster(w.server))
	config, err := w.server.Listen(tb.Context())
	mustSucceed(tb, err)
	mustSucceed(tb, stubapi.WriteKubeconfig(config, w.kubeconfig))
	kinds, err := api.NewScheme()
	mustSucceed(tb, err)
	w.client, err = client.New(config, client.Options{Scheme: kinds})
	mustSucceed(tb, err)
	w.time, err = policytime.OpenFile(w.clockFile, nil)
	mustSucceed(tb, err)
	return w
}

// recordSuspension records the time when a job becomes suspended.
func (w *benchmarkCluster) recordSuspension(_ *stubapi.Server, kind stubapi.Kind, before, after map[string]any) {
	now := time.Now()
	if kind.Kind != "Job" || isSuspended(before) || !isSuspended(after) {
		return
	}
	var job unstructured.Unstructured
	job.SetUnstructuredContent(after)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.suspensions++
	w.stops[job.GetNamespace()+"/"+job.GetName()] = now
}

func isSuspended(job map[string]any) bool {
	suspend, _, _ := unstructured.NestedBool(job, "spec", "suspend")
	return suspend
}

// suspendedJobs returns the jobs that were suspended.
func (w *benchmarkCluster) suspendedJobs() map[string]time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.stops)
}

// advanceTimeTo steps policy time forward.
func (w *benchmarkCluster) advanceTimeTo(tb testing.TB, at time.Time) {
	tb.Helper()
	mustSucceed(tb, w.time.AdvanceTo(at))
}

// writes counts writes by verb and resource.
type writes map[stubapi.Write]int

// requestedWrites counts the write requests without leader election. changed counts those
// that changed an object.
func (w *benchmarkCluster) requestedWrites() writes { return withoutLeaderElection(w.server.Writes()) }

func (w *benchmarkCluster) effectiveWrites() writes { return withoutLeaderElection(w.server.Changes()) }

// withoutLeaderElection removes the Lease and the event of its holder.
func withoutLeaderElection(all writes) writes {
	maps.DeleteFunc(all, func(of stubapi.Write, _ int) bool {
		return strings.HasPrefix(of.Resource, "leases.") || of.Resource == "events"
	})
	return all
}

// minus returns the writes since before.
func (all writes) minus(before writes) writes {
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

// listClocks returns all clocks.
func (w *benchmarkCluster) listClocks(tb testing.TB) []v1alpha1.WorkloadClock {
	tb.Helper()
	var list v1alpha1.WorkloadClockList
	mustSucceed(tb, w.client.List(tb.Context(), &list))
	return list.Items
}

// waitTimeout limits all waits.
const waitTimeout = 20 * time.Minute

// waitFor waits for a condition, and fails the test after waitTimeout.
func waitFor(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	over := time.After(waitTimeout)
	for !holds() {
		select {
		case <-look.C:
		case <-over:
			tb.Fatalf("after %s: not %s", waitTimeout, what)
		}
	}
}

// quietPeriod is the time without writes after which a controller counts as settled. It is longer than the five seconds for which
// the list of workloads in the status of a project stays as it is.
const quietPeriod = 7 * time.Second

// waitUntilSettled waits until p has reconciled a number of clocks since its start, has empty
// queues, and has written nothing for quietPeriod. It returns the start of that period.
func (w *benchmarkCluster) waitUntilSettled(tb testing.TB, p *process, clocks int) time.Time {
	tb.Helper()
	last, at := -1, time.Now()
	waitFor(tb, "settled", func() bool {
		if n := w.requestedWrites().sum(); n != last {
			last, at = n, time.Now()
		}
		return time.Since(at) >= quietPeriod && p.controllersIdle(tb, clocks)
	})
	return at
}

// createClocks creates the clocks of the fleet's jobs exactly as the controller writes them,
// so that it has nothing to correct.
func (w *benchmarkCluster) createClocks(tb testing.TB) {
	tb.Helper()
	for root := range w.fleet.Roots {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.newClock(root))
		mustSucceed(tb, err)
		mustSucceed(tb, w.server.Put(tree))
	}
}

// newClock returns the clock of a job. Its users got all warnings that are due by now.
func (w *benchmarkCluster) newClock(root int) *v1alpha1.WorkloadClock {
	const people = "2006-01-02 15:04 MST"
	name, began := w.fleet.RootName(root), metav1.NewTime(w.fleet.StartedAt(root).UTC())
	ends := metav1.NewTime(began.Add(runtimeLimit))
	runs := period.MustParseDuration("24h")
	clock := &v1alpha1.WorkloadClock{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkloadClock"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.fleet.Namespace(root), Name: v1alpha1.WorkloadClockName("batch", "Job", name), CreationTimestamp: metav1.NewTime(time.Now()),
		},
		Spec: v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status: v1alpha1.WorkloadClockStatus{
			RootUID: w.fleet.RootUID(root), State: v1alpha1.ClockStateRunning, WorkloadType: v1alpha1.WorkloadTrain, CreatedBy: "anna.mueller@example.org",
			StartedAt: &began, RunningSince: &began, GPUs: resource.NewQuantity(int64(w.fleet.PodsPerRoot), resource.DecimalSI),
			Limit:    &v1alpha1.ClockLimit{Configured: runs, InForce: runs},
			Deadline: &v1alpha1.ClockDeadline{At: ends, Reason: v1alpha1.EndMaxRuntime, LimitSeconds: int64(runtimeLimit / time.Second)},
			Local:    &v1alpha1.ClockLocal{Accumulated: "0s", RunningSince: began.Format(people), Ends: ends.Format(people)},
		},
	}
	s := &clock.Status
	for _, lead := range []string{"4h", "30m"} { // the default leads that are shorter than the limit
		lead := period.MustParseDuration(lead)
		at := metav1.NewTime(ends.Add(-lead.Length()))
		if at.After(time.Now()) {
			break
		}
		s.Leads = append(s.Leads, v1alpha1.ClockLead{Lead: lead, Reason: v1alpha1.EndMaxRuntime, LimitSeconds: s.Deadline.LimitSeconds, At: at})
		s.Deadline.AnnouncedAt = &s.Leads[0].At
	}
	return clock
}
