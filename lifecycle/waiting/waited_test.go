// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

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
	"sluice.dev/lifecycle/gpupods"
)

// TestHowLongPodsWaited guards that each pod is observed once, when it begins to
// run, under names that are bounded.
func TestHowLongPodsWaited(t *testing.T) {
	waited.Reset()
	t.Cleanup(waited.Reset)
	pod := func(pool string, running bool, change ...func(*gpupods.Pod)) *gpupods.Pod {
		p := gpuPod(pool, 1000, change...)
		p.UID, p.CreatedAt, p.Running = "p", noon, running
		if running {
			p.StartedAt = noon.Add(90 * time.Second)
		}
		if p.WorkloadType == "" {
			p.WorkloadType = v1alpha1.WorkloadInteractive
		}
		return p
	}
	nonsense := func(p *gpupods.Pod) { p.WorkloadType = "nonsense" }
	elsewhere := func(p *gpupods.Pod) { p.Namespace = "elsewhere" }
	type change = gpupods.Change
	from := func(before, after *gpupods.Pod) change { return change{Before: before, After: after} }
	tests := map[string]struct {
		changes    []change
		kind, pool string
	}{
		"it waits":            {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), pod("dgx", false))}, "", ""},
		"it ran":              {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), pod("dgx", true)), from(pod("dgx", true), pod("dgx", true)), from(pod("dgx", true), nil)}, "interactive", "dgx"},
		"it ran at once":      {[]change{from(nil, pod("dgx", true))}, "interactive", "dgx"},
		"its node was away":   {[]change{from(pod("dgx", false), pod("dgx", true)), from(pod("dgx", true), pod("dgx", false)), from(pod("dgx", false), pod("dgx", true))}, "interactive", "dgx"},
		"it went":             {[]change{from(nil, pod("dgx", false)), from(pod("dgx", false), nil)}, "", ""},
		"no type":             {[]change{from(nil, pod("dgx", true, nonsense))}, "train", "dgx"},
		"no pool of its own":  {[]change{from(nil, pod("../../etc", true))}, "interactive", "(unknown)"},
		"labelled by anybody": {[]change{from(nil, pod("dgx", true, elsewhere))}, "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			waited.Reset()
			w := &waits{by: map[string][]pause{}}
			for _, c := range tc.changes {
				w.hear(c)
			}
			w.observe(thesis())
			w.observe(thesis())
			if err := testutil.CollectAndCompare(waited, strings.NewReader(ninetySeconds(tc.kind, tc.pool))); err != nil {
				t.Error(err)
			}
			w.forget("thesis")
			if left := testutil.CollectAndCount(waited); left > 0 {
				t.Errorf("the project is gone, and left %d series", left)
			}
		})
	}
}

// ninetySeconds are the histogram's lines with one pod that waited for so long; none
// without a type.
func ninetySeconds(kind, pool string) string {
	if kind == "" {
		return ""
	}
	var lines strings.Builder
	fmt.Fprintln(&lines, "# HELP sluice_pod_waiting_seconds Time from the creation of a GPU pod until it ran, in machine time, by project, type of workload and node pool.")
	fmt.Fprintln(&lines, "# TYPE sluice_pod_waiting_seconds histogram")
	labels := fmt.Sprintf("pool=%q,project=\"thesis\",type=%q", pool, kind)
	for _, bucket := range append(slices.Clone(waitBuckets), math.Inf(1)) {
		within := 0
		if bucket >= 90 {
			within = 1
		}
		fmt.Fprintf(&lines, "sluice_pod_waiting_seconds_bucket{%s,le=\"%g\"} %d\n", labels, bucket, within)
	}
	fmt.Fprintf(&lines, "sluice_pod_waiting_seconds_sum{%s} 90\nsluice_pod_waiting_seconds_count{%s} 1\n", labels, labels)
	return lines.String()
}

// TestWhatRanBeforeIsNotObserved guards a restart: what is listed then ran before.
func TestWhatRanBeforeIsNotObserved(t *testing.T) {
	g := newGround(t, 0)
	running := func(p *gpupods.Pod) { p.Running = true }
	there := &listing{podsThere: podsThere{gpuPod("dgx", 1000, running)}}
	g.Pods = there
	source := &podChanges{r: g.Reconciler}
	if err := source.Start(t.Context(), noQueue{}); err != nil {
		t.Fatal(err)
	}
	there.handler(gpupods.Change{After: gpuPod("dgx", 1000, running)})
	if len(g.waits.by) > 0 {
		t.Errorf("heard %v while the pods were listed", g.waits.by)
	}
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	there.handler(gpupods.Change{After: gpuPod("dgx", 1000, running)})
	if len(g.waits.by) != 1 {
		t.Errorf("heard %v of what came later", g.waits.by)
	}
}

// listing are pods of which some are told later.
type listing struct {
	podsThere

	handler func(gpupods.Change)
}

func (l *listing) Changes(handler func(gpupods.Change)) func() {
	l.handler = handler
	return l.podsThere.Changes(handler)
}

func TestWaitsAreBounded(t *testing.T) {
	w := &waits{by: map[string][]pause{}}
	for range maxHeard + 5 {
		w.hear(gpupods.Change{After: gpuPod("dgx", 1000, func(p *gpupods.Pod) { p.Running = true })})
	}
	if got := len(w.take("thesis")); got != maxHeard {
		t.Errorf("%d are kept", got)
	}
}

// noQueue takes no work.
type noQueue struct{ queue }

func (noQueue) AddAfter(reconcile.Request, time.Duration) {}
