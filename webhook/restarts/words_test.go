// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
)

func wantWords(t *testing.T, response admission.Response, says string) {
	t.Helper()
	if response.Allowed {
		t.Fatal("allowed")
	}
	if diff := cmp.Diff(says, response.Result.Message); diff != "" {
		t.Error(diff)
	}
}

// The words say why, until when and what to do; without the clock still until when.
func TestWords(t *testing.T) {
	job, queued := kindNamed(t, "Job"), kindNamed(t, "Workload")
	because := func(reason v1alpha1.EndReason, change ...func(*v1alpha1.WorkloadClockStatus)) client.Object {
		set := func(s *v1alpha1.WorkloadClockStatus) { s.Stopped.Reason = reason }
		return clockOf(job.GroupKind, "train", "", later, append(change, set)...)
	}
	started := func(kind kinds.Kind, name string, until time.Time) (was, is *unstructured.Unstructured) {
		return marked(workloadOf(kind, name, "p", false), kinds.FormatUntil(until)), workloadOf(kind, name, "p", true)
	}
	was, is := started(job, "train", later)
	wasOpen, _ := started(job, "train", time.Time{})
	wasOdd, _ := started(job, "train", later.Add(time.Second))
	wasQueued, isQueued := started(queued, "job-train-1a2b3", later)
	controlledBy(wasQueued, "batch/v1", "Job", "train")
	const wait = ", and may be started again at 2026-10-05 15:30 CEST; wait until then"
	const more = `, or ask for more time: sluice extend job/train -n work --by 24h --reason "..."`
	for name, tc := range map[string]struct {
		clock   client.Object
		kind    kinds.Kind
		was, is *unstructured.Unstructured
		says    string
	}{
		"at its limit": {
			because(v1alpha1.EndMaxRuntime), job, was, is,
			"Job train was stopped by Sluice when it had run for 48h, as long as it may" + wait + more,
		},
		"at a limit that is gone": {
			because(v1alpha1.EndMaxRuntime, func(s *v1alpha1.WorkloadClockStatus) { s.Limit = nil }), job, was, is,
			"Job train was stopped by Sluice when it had run as long as it may" + wait + more,
		},
		"idle": {because(v1alpha1.EndIdle), job, was, is, "Job train was stopped by Sluice since its GPUs were not used" + wait + more},
		"over its share": {
			because(v1alpha1.EndOverShare), job, was, is,
			"Job train was stopped by Sluice since it took more of a GPU than its share" + wait,
		},
		"preempted": {because(v1alpha1.EndPreempted), job, was, is, "Job train was stopped by Sluice to make room for others" + wait},
		"its project is suspended": {
			because(v1alpha1.EndProjectSuspended), job, was, is,
			"Job train was stopped by Sluice since its project is suspended" + wait + `, or have the project renewed: sluice extend project/thesis --reason "..."`,
		},
		"no clock":           {nil, job, was, is, "Job train was stopped by Sluice" + wait + more},
		"a reason to come":   {because("Eclipse"), job, was, is, "Job train was stopped by Sluice" + wait + more},
		"Kueue's Workload":   {because(v1alpha1.EndIdle), queued, wasQueued, isQueued, "Job train was stopped by Sluice since its GPUs were not used" + wait + more},
		"seconds are filled": {nil, job, wasOdd, is, "Job train was stopped by Sluice, and may be started again at 2026-10-05 15:31 CEST; wait until then" + more},
		"nobody decided": {
			because(v1alpha1.EndOverShare), job, wasOpen, is,
			"Job train was stopped by Sluice since it took more of a GPU than its share, and may be started again only when that is decided; ask the administrators of the department",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clocks []client.Object
			if tc.clock != nil {
				clocks = append(clocks, tc.clock)
			}
			wantWords(t, ask(t, newHandler(t, clocks...), anna, tc.kind, tc.was, tc.is), tc.says)
		})
	}
}
