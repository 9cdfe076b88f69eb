// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	"sluice.dev/webhook/workload"
)

func TestParseRolloutPlan(t *testing.T) {
	tests := map[string]struct {
		spec string
		want workload.RolloutPlan
	}{
		"by default":         {`{}`, workload.RolloutPlan{Replicas: 1, Rolling: true, MaxSurge: 1}},
		"a quarter of three": {`{"replicas": 3}`, workload.RolloutPlan{Replicas: 3, Rolling: true, MaxSurge: 1}},
		"a quarter of eight": {`{"replicas": 8}`, workload.RolloutPlan{Replicas: 8, Rolling: true, MaxSurge: 2, MaxUnavailable: 2}},
		"numbers":            {`{"replicas": 8, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 3}}}`, workload.RolloutPlan{Replicas: 8, Rolling: true, MaxUnavailable: 3}},
		"both 0":             {`{"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}}`, workload.RolloutPlan{Replicas: 2, Rolling: true, MaxUnavailable: 1}},
		"Recreate":           {`{"replicas": 2, "strategy": {"type": "Recreate"}}`, workload.RolloutPlan{Replicas: 2}},
		"no replicas":        {`{"replicas": 0}`, workload.RolloutPlan{Rolling: true, MaxUnavailable: 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := workload.ParseRolloutPlan([]byte(`{"spec": ` + tc.spec + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	for _, broken := range []string{`7`, `{"spec": {"strategy": {"rollingUpdate": {"maxSurge": "many"}}}}`, `{"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "many"}}}}`} {
		if plan, err := workload.ParseRolloutPlan([]byte(broken)); err == nil {
			t.Errorf("%s is parsed as %+v", broken, plan)
		}
	}
}

func podWithRequests(requests map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{
		"containers": []any{
			map[string]any{"name": "sidecar"},
			map[string]any{"name": "main", "resources": map[string]any{"requests": requests}},
		},
	}}
}

func TestWarnRollout(t *testing.T) {
	pools := []input.NodePool{
		{Name: "dgx", QuotaResource: "sluice.dev/gpu-milli.dgx", GuaranteedResource: "sluice.dev/guaranteed-milli.dgx", Guaranteed: 1000, Limit: 2000},
		{Name: "a", QuotaResource: "sluice.dev/gpu-milli", GuaranteedResource: "sluice.dev/guaranteed-milli.a", Guaranteed: 500, Limit: 1000},
		{Name: "b", QuotaResource: "sluice.dev/gpu-milli", GuaranteedResource: "sluice.dev/guaranteed-milli.b", Guaranteed: 500, Limit: 1000},
	}
	half := map[string]any{"nvidia.com/mig-3g.20gb": "1", "sluice.dev/gpu-milli.dgx": "500"}
	guaranteedHalf := map[string]any{"sluice.dev/gpu-milli.dgx": "500", "sluice.dev/guaranteed-milli.dgx": "500"}
	never := func(replicas, quota string) []merge.Finding {
		return []merge.Finding{{
			Field: "spec.strategy",
			Message: "a rolling update of this Deployment would never finish: it starts an additional pod beside its " + replicas +
				" of 0.5 of a GPU, and project thesis has a quota of " + quota,
			Fix: "set rollingUpdate to maxSurge: 0 and maxUnavailable: 1, or type to Recreate",
		}}
	}
	tests := map[string]struct {
		plan workload.RolloutPlan
		pod  map[string]any
		want []merge.Finding
	}{
		"quota for one more": {workload.RolloutPlan{Replicas: 1, Rolling: true, MaxSurge: 1}, podWithRequests(guaranteedHalf), nil},
		"the guarantee is used up": {
			workload.RolloutPlan{Replicas: 2, Rolling: true, MaxSurge: 1},
			podWithRequests(guaranteedHalf),
			never("2", "1 GPU in node pool dgx for non-preemptible pods"),
		},
		"the limit is used up":       {workload.RolloutPlan{Replicas: 4, Rolling: true, MaxSurge: 1}, podWithRequests(half), never("4", "2 GPUs in node pool dgx")},
		"one is deleted first":       {workload.RolloutPlan{Replicas: 4, Rolling: true, MaxSurge: 1, MaxUnavailable: 1}, podWithRequests(half), nil},
		"Recreate":                   {workload.RolloutPlan{Replicas: 4}, podWithRequests(half), nil},
		"one of several surges fits": {workload.RolloutPlan{Replicas: 3, Rolling: true, MaxSurge: 3}, podWithRequests(half), nil},
		"more replicas than fit": {workload.RolloutPlan{Replicas: 3}, podWithRequests(guaranteedHalf), []merge.Finding{{
			Field:   "spec.replicas",
			Message: "3 pods of 0.5 of a GPU each need a quota of 1.5 GPUs; project thesis has a quota of 1 GPU in node pool dgx for non-preemptible pods, so that at most 2 can run",
			Fix:     "set it to 2, or request more from an administrator of the department",
		}}},
		"pools with one quota resource": {
			workload.RolloutPlan{Replicas: 4, Rolling: true, MaxSurge: 1},
			podWithRequests(map[string]any{"sluice.dev/gpu-milli": "500"}),
			never("4", "2 GPUs in node pool a and b"),
		},
		"a guarantee in one of them": {
			workload.RolloutPlan{Replicas: 1, Rolling: true, MaxSurge: 1},
			podWithRequests(map[string]any{"sluice.dev/gpu-milli": "500", "sluice.dev/guaranteed-milli.b": "500"}),
			never("1", "0.5 of a GPU in node pool b for non-preemptible pods"),
		},
		"a pod that is denied": {workload.RolloutPlan{Replicas: 2}, podWithRequests(map[string]any{"sluice.dev/gpu-milli.dgx": "1500", "sluice.dev/guaranteed-milli.dgx": "1500"}), nil},
		"no GPUs":              {workload.RolloutPlan{Replicas: 9, Rolling: true, MaxSurge: 9}, podWithRequests(map[string]any{"cpu": "1"}), nil},
		"no replicas":          {workload.RolloutPlan{Rolling: true, MaxSurge: 1}, podWithRequests(guaranteedHalf), nil},
		"no pod":               {workload.RolloutPlan{Replicas: 1}, nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, workload.WarnRollout(tc.plan, tc.pod, "thesis", pools)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
