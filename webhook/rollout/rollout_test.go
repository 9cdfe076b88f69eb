// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
	"sluice.dev/policies/intent"
	"sluice.dev/webhook/rollout"
)

func TestRead(t *testing.T) {
	tests := map[string]struct {
		spec string
		want rollout.Plan
	}{
		"by default":              {`{}`, rollout.Plan{Replicas: 1, Rolling: true, Surge: 1}},
		"a quarter of three":      {`{"replicas": 3}`, rollout.Plan{Replicas: 3, Rolling: true, Surge: 1}},
		"a quarter of eight":      {`{"replicas": 8}`, rollout.Plan{Replicas: 8, Rolling: true, Surge: 2, Unavailable: 2}},
		"numbers":                 {`{"replicas": 8, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 3}}}`, rollout.Plan{Replicas: 8, Rolling: true, Unavailable: 3}},
		"neither more nor fewer":  {`{"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}}`, rollout.Plan{Replicas: 2, Rolling: true, Unavailable: 1}},
		"all at once":             {`{"replicas": 2, "strategy": {"type": "Recreate"}}`, rollout.Plan{Replicas: 2}},
		"nothing to be rolled at": {`{"replicas": 0}`, rollout.Plan{Rolling: true, Unavailable: 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := rollout.Read([]byte(`{"spec": ` + tc.spec + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	for _, broken := range []string{`7`, `{"spec": {"strategy": {"rollingUpdate": {"maxSurge": "many"}}}}`, `{"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "many"}}}}`} {
		if plan, err := rollout.Read([]byte(broken)); err == nil {
			t.Errorf("%s is read as %+v", broken, plan)
		}
	}
}

func pod(class string, requests map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{
		"priorityClassName": class,
		"containers": []any{
			map[string]any{"name": "sidecar"},
			map[string]any{"name": "main", "resources": map[string]any{"requests": requests}},
		},
	}}
}

func TestWarn(t *testing.T) {
	const inference, train = v1alpha1.PriorityClassInference, v1alpha1.PriorityClassTrain
	pools := []facts.Pool{
		{Name: "dgx", Currency: "sluice.dev/gpu-milli.dgx", Guaranteed: 1000, Limit: 2000},
		{Name: "a", Currency: "sluice.dev/gpu-milli", Guaranteed: 500, Limit: 1000},
		{Name: "b", Currency: "sluice.dev/gpu-milli", Guaranteed: 500, Limit: 1000},
	}
	half := map[string]any{"nvidia.com/mig-3g.20gb": "1", "sluice.dev/gpu-milli.dgx": "500"}
	never := func(replicas, whose string) []intent.Complaint {
		return []intent.Complaint{{
			Field:   "spec.strategy",
			Message: "a rolling update of this Deployment would never end: it begins with a pod more than its " + replicas + " of 0.5 of a GPU, and project thesis may have " + whose,
			Fix:     "set rollingUpdate to maxSurge: 0 and maxUnavailable: 1, or type to Recreate",
		}}
	}
	tests := map[string]struct {
		plan rollout.Plan
		pod  map[string]any
		want []intent.Complaint
	}{
		"there is room for one more": {rollout.Plan{Replicas: 1, Rolling: true, Surge: 1}, pod(inference, half), nil},
		"the guarantee is full": {
			rollout.Plan{Replicas: 2, Rolling: true, Surge: 1},
			pod(inference, half),
			never("2", "1 GPU of node pool dgx for pods that cannot be preempted"),
		},
		"the limit is full":      {rollout.Plan{Replicas: 4, Rolling: true, Surge: 1}, pod(train, half), never("4", "2 GPUs of node pool dgx")},
		"one goes first":         {rollout.Plan{Replicas: 4, Rolling: true, Surge: 1, Unavailable: 1}, pod(train, half), nil},
		"all go first":           {rollout.Plan{Replicas: 4}, pod(train, half), nil},
		"one fits of many extra": {rollout.Plan{Replicas: 3, Rolling: true, Surge: 3}, pod(train, half), nil},
		"more replicas than fit": {rollout.Plan{Replicas: 3}, pod(inference, half), []intent.Complaint{{
			Field:   "spec.replicas",
			Message: "3 pods of 0.5 of a GPU would count as 1.5 GPUs; project thesis may have 1 GPU of node pool dgx for pods that cannot be preempted, so that no more than 2 can run",
			Fix:     "set it to 2, or ask an administrator of the department for more",
		}}},
		"pools that are counted together": {
			rollout.Plan{Replicas: 4, Rolling: true, Surge: 1},
			pod(train, map[string]any{"sluice.dev/gpu-milli": "500"}),
			never("4", "2 GPUs of node pool a and b"),
		},
		"a pod that is refused": {rollout.Plan{Replicas: 2}, pod(inference, map[string]any{"sluice.dev/gpu-milli.dgx": "1500"}), nil},
		"no GPUs":               {rollout.Plan{Replicas: 9, Rolling: true, Surge: 9}, pod("", map[string]any{"cpu": "1"}), nil},
		"no replicas":           {rollout.Plan{Rolling: true, Surge: 1}, pod(inference, half), nil},
		"nothing at all":        {rollout.Plan{Replicas: 1}, nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, rollout.Warn(tc.plan, tc.pod, "thesis", pools)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
