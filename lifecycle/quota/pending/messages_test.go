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
	const needed = " more needed)"
	tests := map[string]struct {
		message string
		want    Reason
	}{
		"nothing yet": {"", Reason{Code: codeNotEvaluated, Summary: "Kueue has not evaluated it yet", Details: "Kueue has not evaluated it yet", Transient: true}},
		"no room": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 3k more needed",
			Reason{Code: codeQuotaUsed, Summary: "no free quota in node pool whole", Details: "no free quota in node pool whole (3 GPUs" + needed},
		},
		"no room in two": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor mig, 125 more needed, insufficient unused quota for sluice.dev/gpu-milli in flavor whole.8, 2500 more needed",
			Reason{
				Code:    codeQuotaUsed,
				Summary: "no free quota in node pool mig, no free quota in node pool whole.8",
				Details: "no free quota in node pool mig (0.125 of a GPU" + needed + "; no free quota in node pool whole.8 (2.5 GPUs" + needed,
			},
		},
		"two pod sets of one pool": {
			"couldn't assign flavors to pod set driver: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed; couldn't assign flavors to pod set workers: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 5k more needed",
			Reason{Code: codeQuotaUsed, Summary: "no free quota in node pool whole", Details: "no free quota in node pool whole (1 GPU" + needed},
		},
		"others are ended": {
			"couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed. Pending the preemption of 2 workload(s)",
			Reason{
				Code:    codeQuotaUsed,
				Summary: "no free quota in node pool whole",
				Details: "no free quota in node pool whole (1 GPU" + needed + "; 2 other workloads are being preempted for it",
			},
		},
		"more than can be": {
			"couldn't assign flavors to pod set main: insufficient quota for sluice.dev/gpu-milli in flavor whole, previously considered podsets requests (0) + current podset request (5k) > maximum capacity (4k)",
			Reason{
				Code:    codeLimitReached,
				Summary: "the request exceeds the maximum of node pool whole",
				Details: "the request exceeds the maximum of node pool whole: 5 GPUs requested, at most 4 GPUs allowed for the project",
			},
		},
		"together more than can be": {
			"couldn't assign flavors to pod set workers: insufficient quota for sluice.dev/gpu-milli in flavor whole, previously considered podsets requests (1k) + current podset request (3500) > maximum capacity (4k)",
			Reason{
				Code:    codeLimitReached,
				Summary: "the request exceeds the maximum of node pool whole",
				Details: "the request exceeds the maximum of node pool whole: 4.5 GPUs requested, at most 4 GPUs allowed for the project",
			},
		},
		"another resource": {
			"couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 500m more needed",
			Reason{Code: codeQuotaUsed, Summary: "no free quota in node pool default", Details: "no free quota in node pool default (500m cpu" + needed},
		},
		"another pool": {
			"couldn't assign flavors to pod set main: flavor mig doesn't match node affinity, insufficient unused quota for sluice.dev/gpu-milli in flavor whole, 1k more needed",
			Reason{
				Code:    codeQuotaUsed,
				Summary: "no free quota in node pool whole, its node selector does not match node pool mig",
				Details: "no free quota in node pool whole (1 GPU" + needed + "; its node selector does not match node pool mig",
			},
		},
		"another workload got the quota": {
			"Workload no longer fits after processing another workload",
			Reason{Code: codeQuotaUsed, Summary: "another workload got the quota", Details: "another workload got the quota; Kueue retries immediately", Transient: true},
		},
		"targets of others": {
			"Workload has overlapping preemption targets with another workload",
			Reason{Code: codeQuotaUsed, Summary: "another workload got the quota", Details: "another workload got the quota; Kueue retries immediately", Transient: true},
		},
		"no queue": {
			"LocalQueue default doesn't exist",
			Reason{Code: codeQueueUnavailable, Summary: "Kueue's LocalQueue default doesn't exist", Details: "Kueue's LocalQueue default doesn't exist; contact an administrator"},
		},
		"a stopped queue": {
			"ClusterQueue team-a is stopped",
			Reason{Code: codeQueueUnavailable, Summary: "Kueue's ClusterQueue team-a is stopped", Details: "Kueue's ClusterQueue team-a is stopped; contact an administrator"},
		},
		"another namespace": {
			"Workload namespace doesn't match ClusterQueue selector",
			Reason{Code: codeQueueUnavailable, Summary: "the queue does not accept this namespace", Details: "the queue does not accept this namespace; contact an administrator"},
		},
		"something else": {
			"failed to assign flavors to pod set main:\n\tno topology\x00",
			Reason{Code: codeOther, Summary: "Kueue reports another reason", Details: "Kueue reports: failed to assign flavors to pod set main: no topology"},
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
		"guaranteed to others":   {"InCohortReclamation", message, "for project team-d, which is guaranteed these GPUs; it ran over quota"},
		"a fair share":           {"InCohortFairSharing", message, "for project team-d, which had less than its guarantee or than its fair share of idle GPUs; it ran over quota"},
		"priority":               {"InClusterQueue", message, "for a workload of the same project with precedence"},
		"while borrowing":        {"InCohortReclaimWhileBorrowing", message, "for project team-d, which has precedence; it ran over quota"},
		"by an unknown workload": {"InCohortReclamation", "Preempted to accommodate a workload (UID: 4c2, JobUID: 81f) due to reclamation within the cohort; preemptor path: UNKNOWN; preemptee path: UNKNOWN", "for another project, which is guaranteed these GPUs; it ran over quota"},
		"no name at all":         {"InCohortReclamation", "preemptor path: /a/<script>; x", "for another project, which is guaranteed these GPUs; it ran over quota"},
		"a stopped queue":        {"", "The ClusterQueue is stopped", "by Kueue: The ClusterQueue is stopped"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ExplainEviction(tc.reason, tc.message); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// For every message of Kueue, the explanation is printable, has one line, and fits into the note of
// an event.
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
				t.Errorf("explained as %q", text)
			}
		}
		if again := ExplainQueued(message); again != why {
			t.Errorf("explained as %+v, then %+v", why, again)
		}
	})
}
