// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// kaiStatuses returns statuses of PodGroups by name. testdata/kai-0.17.0.jsonl has what KAI-Scheduler v0.17.0
// (commit f218c69bee5e) writes: "department limit" and "no room" come from a cluster, and have other names here. "limit",
// "guarantee" and "slices" are the output of its capacity policy and ToUnschedulableExplanation
// (pkg/scheduler/plugins/proportion/capacity_policy, pkg/scheduler/api/common_info), the others have the texts of its
// pkg/scheduler/actions and cache/cluster_info. The amounts in its details are rounded down to whole GPUs.
func kaiStatuses(t *testing.T) map[string]map[string]any {
	t.Helper()
	raw, err := os.ReadFile("testdata/kai-0.17.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]map[string]any{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var status map[string]any
		if err := json.Unmarshal(lines.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		name, _ := status["name"].(string)
		delete(status, "name")
		statuses[name] = status
	}
	return statuses
}

// kaiPlaces are the placements of project thesis: pool a, and pool mig on A100s with seven compute slices.
func kaiPlaces() []kaigroup.Placement {
	pool := func(name string, sharing v1alpha1.Sharing, profiles ...input.MIGProfile) input.NodePool {
		return input.NodePool{
			Name: name, Scheduler: v1alpha1.SchedulerKAI, Sharing: sharing, NodeSelector: map[string]string{"kai.scheduler/node-pool": name},
			Products: []input.GPUModel{{Profiles: profiles}},
		}
	}
	return kaigroup.Placements("thesis", []input.NodePool{
		pool("a", v1alpha1.SharingNone), pool("mig", v1alpha1.SharingMIG, input.MIGProfile{Compute: 1}, input.MIGProfile{Compute: 7}),
	})
}

// Protects invariant 11: the reason names the project or department whose quota it is, and GPUs, where KAI-Scheduler
// has display names and slices.
func TestExplainUnschedulable(t *testing.T) {
	const guarantee = "project thesis has used its guarantee of GPUs in node pool a, which is the limit of work that cannot be preempted"
	const noRoom = "no node of node pool a has room for it"
	want := map[string]Reason{
		"limit": {
			Code: codeLimitReached, Summary: "project thesis has reached its limit of GPUs in node pool a",
			Details: "project thesis has reached its limit of GPUs in node pool a (limit 4 GPUs, 3.5 GPUs in use, 1 GPU requested)",
		},
		"department limit": {
			Code: codeLimitReached, Summary: "department students has reached its limit of GPUs in node pool a",
			Details: "department students has reached its limit of GPUs in node pool a (limit 16 GPUs, 16 GPUs in use, 1 GPU requested)",
		},
		"guarantee": {
			Code: codeGuaranteeReached, Summary: guarantee,
			Details: guarantee + " (guarantee 2 GPUs, 1.5 GPUs in use by such work, 0.6 of a GPU requested)",
		},
		"slices": {
			Code: codeLimitReached, Summary: "project thesis has reached its limit of GPUs in node pool mig",
			Details: "project thesis has reached its limit of GPUs in node pool mig (limit 2 GPUs, 1.714 GPUs in use, 0.429 of a GPU requested)",
		},
		"no room": {
			Code: codeNoRoom, Summary: noRoom,
			Details: noRoom + " (KAI-Scheduler reports: Resources were not found for pod thesis/train-0 due to: no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs. " +
				"2 node(s) didn't have enough resources: sluice.dev/gpu-milli.)",
		},
		"guarantee on a node": {
			Code: codeGuaranteeReached, Summary: "its queue has used its guarantee of GPUs in node pool a, which is the limit of work that cannot be preempted",
			Details: "its queue has used its guarantee of GPUs in node pool a, which is the limit of work that cannot be preempted (guarantee 0.5 of a GPU, no GPUs in use by such work, 0.59 of a GPU requested)",
		},
		"no queue": {
			Code: codeQueueUnavailable, Summary: "KAI-Scheduler has no queue thesis.a", Details: "KAI-Scheduler has no queue thesis.a; contact an administrator",
		},
	}
	got := map[string]Reason{}
	for name, status := range kaiStatuses(t) {
		group := kaigroup.Group{"status": status}
		for _, at := range kaiPlaces() {
			if group.IsUnschedulable(at) {
				got[name] = ExplainUnschedulable(group.UnschedulableReasons(), at, newThesisProject())
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestExplainUnschedulableOtherReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		reasons []kaigroup.UnschedulableReason
		want    Reason
	}{
		"none": {nil, Reason{Code: codeOther, Summary: "KAI-Scheduler reports no reason", Details: "KAI-Scheduler reports no reason"}},
		"a later one": {
			[]kaigroup.UnschedulableReason{{Reason: "New", Message: "a\x00 b\nc"}},
			Reason{Code: codeOther, Summary: "KAI-Scheduler reports another reason", Details: "KAI-Scheduler reports: a b c"},
		},
		"CPUs of another's queue": {
			[]kaigroup.UnschedulableReason{{
				Reason: "OverLimit", Queue: "else",
				Message: "my team quota has reached the allowable limit of CPU cores. Limit is 4 cores, currently 3.5 cores allocated and workload requested 1 cores",
			}},
			Reason{
				Code: codeLimitReached, Summary: "queue else has reached its limit of CPU cores in node pool a",
				Details: "queue else has reached its limit of CPU cores in node pool a (limit 4 CPU cores, 3.5 CPU cores in use, 1 CPU cores requested)",
			},
		},
		"memory": {
			[]kaigroup.UnschedulableReason{{
				Reason: "NonPreemptibleOverQuota", Queue: "thesis.a",
				Message: "Non-preemptible workload is over quota. Workload requested NaN GB memory, but my team quota is Unlimited GB, while 2 GB are already allocated for non-preemptible pods.",
			}},
			Reason{
				Code: codeGuaranteeReached, Summary: "project thesis has used its guarantee of memory in node pool a, which is the limit of work that cannot be preempted",
				Details: "project thesis has used its guarantee of memory in node pool a, which is the limit of work that cannot be preempted (guarantee Unlimited, 2 GB in use by such work, NaN requested)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ExplainUnschedulable(tc.reasons, kaiPlaces()[0], newThesisProject())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
