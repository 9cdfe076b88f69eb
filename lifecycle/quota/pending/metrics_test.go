// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// TestPodWaitObservedOnce guards that each pod is observed once, when it begins to
// run, under names that are bounded.
func TestPodWaitObservedOnce(t *testing.T) {
	podWaitSeconds.Reset()
	t.Cleanup(podWaitSeconds.Reset)
	pod := func(pool string, running bool, change ...func(*podcache.Pod)) *podcache.Pod {
		p := newGPUPod(pool, 1000, change...)
		p.UID, p.CreatedAt, p.Running = "p", noon, running
		if running {
			p.StartedAt = noon.Add(90 * time.Second)
		}
		if p.WorkloadType == "" {
			p.WorkloadType = v1alpha1.WorkloadInteractive
		}
		return p
	}
	nonsense := func(p *podcache.Pod) { p.WorkloadType = "nonsense" }
	elsewhere := func(p *podcache.Pod) { p.Namespace = "elsewhere" }
	type change = podcache.Change
	from := func(before, after *podcache.Pod) change { return change{Before: before, After: after} }
	tests := map[string]struct {
		changes    []change
		kind, pool string
	}{
		"it waits":           {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), pod("dgx", false))}, "", ""},
		"it ran":             {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), pod("dgx", true)), from(pod("dgx", true), pod("dgx", true)), from(pod("dgx", true), nil)}, "interactive", "dgx"},
		"it ran at once":     {[]change{from(nil, pod("dgx", true))}, "interactive", "dgx"},
		"its node was away":  {[]change{from(pod("dgx", false), pod("dgx", true)), from(pod("dgx", true), pod("dgx", false)), from(pod("dgx", false), pod("dgx", true))}, "interactive", "dgx"},
		"it went":            {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), nil)}, "", ""},
		"no type":            {[]change{from(nil, pod("dgx", true, nonsense))}, "train", "dgx"},
		"no pool of its own": {[]change{from(nil, pod("../../etc", true))}, "interactive", "(unknown)"},
		"labeled by anybody": {[]change{from(nil, pod("dgx", true, elsewhere))}, "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			podWaitSeconds.Reset()
			w := &waitRecorder{waitsByProject: map[string][]podWait{}}
			for _, c := range tc.changes {
				w.recordStart(c)
			}
			w.observeWaits(newThesisProject())
			w.observeWaits(newThesisProject())
			if err := testutil.CollectAndCompare(podWaitSeconds, strings.NewReader(waitMetricText(tc.kind, tc.pool))); err != nil {
				t.Error(err)
			}
		})
	}
}

// waitMetricText are the histogram's lines with one pod that waited for so long; none
// without a type.
func waitMetricText(kind, pool string) string {
	if kind == "" {
		return ""
	}
	var lines strings.Builder
	fmt.Fprintln(&lines, "# HELP sluice_pod_pending_duration_seconds Time in seconds from the creation of a GPU pod until it ran, in machine time, by type of workload and node pool.")
	fmt.Fprintln(&lines, "# TYPE sluice_pod_pending_duration_seconds histogram")
	labels := fmt.Sprintf("pool=%q,type=%q", pool, kind)
	for _, bucket := range append(slices.Clone(podWaitBuckets), math.Inf(1)) {
		within := 0
		if bucket >= 90 {
			within = 1
		}
		fmt.Fprintf(&lines, "sluice_pod_pending_duration_seconds_bucket{%s,le=\"%g\"} %d\n", labels, bucket, within)
	}
	fmt.Fprintf(&lines, "sluice_pod_pending_duration_seconds_sum{%s} 90\nsluice_pod_pending_duration_seconds_count{%s} 1\n", labels, labels)
	return lines.String()
}

// TestSeriesPerProjectBounded guards that a thousand projects have about a thousand series each of
// the gauges, and that the histogram does not grow with them.
func TestSeriesPerProjectBounded(t *testing.T) {
	reset := func() { podWaitSeconds.Reset(); oldestPending.Reset(); pendingWorkloads.Reset() }
	reset()
	t.Cleanup(reset)
	w := &waitRecorder{waitsByProject: map[string][]podWait{}}
	project := newThesisProject()
	for i := range 1000 {
		name := fmt.Sprintf("thesis-%d", i)
		project.Name = name
		for _, kind := range v1alpha1.WorkloadTypes {
			w.recordStart(podcache.Change{After: newGPUPod("dgx", 1000, func(p *podcache.Pod) {
				p.Namespace, p.Project, p.WorkloadType, p.Running = project.NamespaceName(), name, kind, true
			})})
		}
		w.observeWaits(project)
		recordPending(name, map[ReasonCode]int{codeNoRoom: 1}, noon)
	}
	if got, want := testutil.CollectAndCount(podWaitSeconds), len(v1alpha1.WorkloadTypes); got != want {
		t.Errorf("the histogram has %d children, want %d", got, want)
	}
	if got := testutil.CollectAndCount(oldestPending) + testutil.CollectAndCount(pendingWorkloads); got != 2000 {
		t.Errorf("the gauges have %d series, want 2000", got)
	}
	for i := range 1000 {
		recordPending(fmt.Sprintf("thesis-%d", i), nil, time.Time{})
	}
	if left := testutil.CollectAndCount(oldestPending) + testutil.CollectAndCount(pendingWorkloads); left != 0 {
		t.Errorf("%d series are left of projects without pending workloads", left)
	}
}

func TestOldestPending(t *testing.T) {
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	unbound := func(created time.Time, node string, deleting bool) *podcache.Pod {
		return newGPUPod("dgx", 1000, func(p *podcache.Pod) { p.CreatedAt, p.Node, p.Deleting = created, node, deleting })
	}
	charges := func(pods ...*podcache.Pod) PodCharges { return SumPodCharges(slices.Values(pods), "thesis") }
	tests := map[string]struct {
		observed ObservedState
		want     time.Time
	}{
		"nothing":               {ObservedState{}, time.Time{}},
		"bound and ending pods": {ObservedState{Charges: charges(unbound(at(-9), "dgx-1", false), unbound(at(-8), "", true))}, time.Time{}},
		"the oldest pod":        {ObservedState{Charges: charges(unbound(at(-1), "", false), unbound(at(-2), "", false))}, at(-2)},
		"a rejected workload":   {ObservedState{Charges: charges(unbound(at(-1), "", false)), Rejected: []Workload{{Since: at(-3)}}}, at(-3)},
		"a queued workload":     {ObservedState{Rejected: []Workload{{Since: at(-3)}}, Queued: []QueuedWorkload{{Since: at(-2)}, {Since: at(-4)}}}, at(-4)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.observed.oldestPending(); !got.Equal(tc.want) {
				t.Errorf("pending since %s, want %s", got, tc.want)
			}
		})
	}
}

// TestPodsRunningBeforeStartNotObserved guards a restart: what is listed then ran before.
func TestPodsRunningBeforeStartNotObserved(t *testing.T) {
	g := newTestEnv(t, 0)
	running := func(p *podcache.Pod) { p.Running = true }
	pods := &capturingPods{fakePods: fakePods{newGPUPod("dgx", 1000, running)}}
	g.Pods = pods
	source := &podChangeSource{reconciler: g.Reconciler}
	if err := source.Start(t.Context(), discardQueue{}); err != nil {
		t.Fatal(err)
	}
	pods.handler(podcache.Change{After: newGPUPod("dgx", 1000, running)})
	if len(g.waitTimes.waitsByProject) > 0 {
		t.Errorf("recorded %v while the pods were listed", g.waitTimes.waitsByProject)
	}
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods.handler(podcache.Change{After: newGPUPod("dgx", 1000, running)})
	if len(g.waitTimes.waitsByProject) != 1 {
		t.Errorf("recorded %v of later pods", g.waitTimes.waitsByProject)
	}
}

// capturingPods reports some pods later.
type capturingPods struct {
	fakePods

	handler func(podcache.Change)
}

func (l *capturingPods) Subscribe(handler func(podcache.Change)) func() {
	l.handler = handler
	return l.fakePods.Subscribe(handler)
}

func TestRecordedWaitsBounded(t *testing.T) {
	w := &waitRecorder{waitsByProject: map[string][]podWait{}}
	for range maxRecordedWaits + 5 {
		w.recordStart(podcache.Change{After: newGPUPod("dgx", 1000, func(p *podcache.Pod) { p.Running = true })})
	}
	if got := len(w.drain("thesis")); got != maxRecordedWaits {
		t.Errorf("%d are kept", got)
	}
}

// discardQueue takes no work.
type discardQueue struct{ requestQueue }

func (discardQueue) AddAfter(reconcile.Request, time.Duration) {}
