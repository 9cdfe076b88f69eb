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
			w.forgetProject("thesis")
			if left := testutil.CollectAndCount(podWaitSeconds); left > 0 {
				t.Errorf("the project is gone, and left %d series", left)
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
	fmt.Fprintln(&lines, "# HELP sluice_pod_pending_duration_seconds Time in seconds from the creation of a GPU pod until it ran, in machine time, by project, type of workload and node pool.")
	fmt.Fprintln(&lines, "# TYPE sluice_pod_pending_duration_seconds histogram")
	labels := fmt.Sprintf("pool=%q,project=\"thesis\",type=%q", pool, kind)
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
