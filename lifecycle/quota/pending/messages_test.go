// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The messages are those of Kueue v0.15.0: pkg/scheduler, its flavorassigner and
// preemption, and pkg/controller/core.
func TestExplainQueued(t *testing.T) {
	const taken = " more would be needed of what the project may have and others do not use"
	tests := map[string]struct {
		message string
		want    PendingReason
	}{
		"nothing yet": {"", PendingReason{Summary: "it was not its turn yet", Details: "it was not its turn yet", Transient: true}},
		"no room": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 3k more needed",
			PendingReason{Summary: "no room in node pool whole", Details: "no room in node pool whole, where 3 GPUs" + taken},
		},
		"no room in two": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor mig, 125 more needed, insufficient unused quota for sluice.dev/gpu-milli in flavor whole.8, 2500 more needed",
			PendingReason{
				Summary: "no room in node pool mig, no room in node pool whole.8",
				Details: "no room in node pool mig, where 0.125 of a GPU" + taken + "; no room in node pool whole.8, where 2.5 GPUs" + taken,
			},
		},
		"two pod sets of one pool": {
			"couldn't assign flavors to pod set driver: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed; couldn't assign flavors to pod set workers: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 5k more needed",
			PendingReason{Summary: "no room in node pool whole", Details: "no room in node pool whole, where 1 GPU" + taken},
		},
		"others are ended": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed. Pending the preemption of 2 workload(s)",
			PendingReason{
				Summary: "no room in node pool whole",
				Details: "no room in node pool whole, where 1 GPU" + taken + "; 2 workloads of others are ended to make room for it",
			},
		},
		"more than can be": {
			"couldn't assign flavors to pod set main: insufficient quota for sluice.dev/gpu-milli in flavor whole, previously considered podsets requests (0) + current podset request (5k) > maximum capacity (4k)",
			PendingReason{
				Summary: "more of node pool whole than can be had there",
				Details: "more of node pool whole than can be had there: 5 GPUs, and the project can have 4 GPUs at most",
			},
		},
		"together more than can be": {
			"couldn't assign flavors to pod set workers: insufficient quota for sluice.dev/gpu-milli in flavor whole, previously considered podsets requests (1k) + current podset request (3500) > maximum capacity (4k)",
			PendingReason{
				Summary: "more of node pool whole than can be had there",
				Details: "more of node pool whole than can be had there: 4.5 GPUs, and the project can have 4 GPUs at most",
			},
		},
		"another resource": {
			"couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 500m more needed",
			PendingReason{Summary: "no room in node pool default", Details: "no room in node pool default, where 500m cpu" + taken},
		},
		"another pool": {
			"couldn't assign flavors to pod set main: flavor mig doesn't match node affinity, insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed",
			PendingReason{
				Summary: "no room in node pool whole, it does not select the nodes of node pool mig",
				Details: "no room in node pool whole, where 1 GPU" + taken + "; it does not select the nodes of node pool mig",
			},
		},
		"others were quicker": {
			"Workload no longer fits after processing another workload",
			PendingReason{Summary: "others were quicker", Details: "others were quicker; it is tried again at once", Transient: true},
		},
		"targets of others": {
			"Workload has overlapping preemption targets with another workload",
			PendingReason{Summary: "others were quicker", Details: "others were quicker; it is tried again at once", Transient: true},
		},
		"no queue": {
			"LocalQueue default doesn't exist",
			PendingReason{Summary: "Kueue's LocalQueue default doesn't exist", Details: "Kueue's LocalQueue default doesn't exist; tell an administrator"},
		},
		"a stopped queue": {
			"ClusterQueue team-a is stopped",
			PendingReason{Summary: "Kueue's ClusterQueue team-a is stopped", Details: "Kueue's ClusterQueue team-a is stopped; tell an administrator"},
		},
		"another namespace": {
			"Workload namespace doesn't match ClusterQueue selector",
			PendingReason{Summary: "the queue is not for this namespace", Details: "the queue is not for this namespace; tell an administrator"},
		},
		"something else": {
			"failed to assign flavors to pod set main:\n\tno topology\x00",
			PendingReason{Summary: "Kueue says why", Details: "Kueue says: failed to assign flavors to pod set main: no topology"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ExplainQueued(tc.message)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestExplainEviction(t *testing.T) {
	const message = "Preempted to accommodate a workload (UID: 4c2, JobUID: 81f) due to reclamation within the cohort; preemptor path: /sluice/lab/team-d; preemptee path: /sluice/lab/team-a"
	tests := map[string]struct{ reason, message, want string }{
		"guaranteed to others": {"InCohortReclamation", message, "for project team-d, to which the GPUs are guaranteed; it ran on what was idle"},
		"a fair share":         {"InCohortFairSharing", message, "for project team-d, which had less of its fair share of what is idle"},
		"priority":             {"InClusterQueue", message, "for a workload of the same project that comes first"},
		"while borrowing":      {"InCohortReclaimWhileBorrowing", message, "for project team-d, which comes first; it ran on what was idle"},
		"nobody knows by whom": {"InCohortReclamation", "Preempted to accommodate a workload (UID: 4c2, JobUID: 81f) due to reclamation within the cohort; preemptor path: UNKNOWN; preemptee path: UNKNOWN", "for another project, to which the GPUs are guaranteed; it ran on what was idle"},
		"no name at all":       {"InCohortReclamation", "preemptor path: /a/<script>; x", "for another project, to which the GPUs are guaranteed; it ran on what was idle"},
		"a stopped queue":      {"", "The ClusterQueue is stopped", "by Kueue, which says: The ClusterQueue is stopped"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ExplainEviction(tc.reason, tc.message); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Whatever somebody writes there, what is said of it can be printed, is on one line,
// and is no longer than an event's note.
func FuzzExplain(f *testing.F) {
	f.Add("InCohortReclamation", "Preempted to accommodate a workload (UID: 4c2, JobUID: 81f) due to reclamation within the cohort; preemptor path: /sluice/lab/d; preemptee path: /a")
	f.Add("", "couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, -9E more needed. Pending the preemption of 2 workload(s)")
	f.Add("", "insufficient quota for sluice.dev/gpu-milli in flavor \u202e, previously considered podsets requests (9E) + current podset request (9E) > maximum capacity (x)")
	f.Add("", strings.Repeat("flavor \x1b[31m doesn't match node affinity ", 50))
	f.Fuzz(func(t *testing.T, reason, message string) {
		why := ExplainQueued(message)
		for _, text := range []string{why.Summary, why.Details, ExplainEviction(reason, message)} {
			odd := func(r rune) bool { return !unicode.IsPrint(r) }
			if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) || utf8.RuneCountInString(text) > 900 {
				t.Errorf("it is said %q", text)
			}
		}
		if again := ExplainQueued(message); again != why {
			t.Errorf("it is said %+v, then %+v", why, again)
		}
	})
}
