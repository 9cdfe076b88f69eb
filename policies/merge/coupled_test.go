// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"
)

func TestCoupledFields(t *testing.T) {
	const gpus = `containers: [{name: main, resources: {limits: {cpu: "2", nvidia.com/gpu: "2"}, requests: {cpu: "2", nvidia.com/gpu: "2"}}}]`
	runCases(t, []mergeCase{
		{
			name:     "a new class removes priority and preemption policy",
			object:   `{priorityClassName: high, priority: 1000, preemptionPolicy: Never}`,
			policies: []string{`overrides: {spec: {priorityClassName: train}}`},
			want:     `priorityClassName: train`,
			warnings: []string{`policy a replaced spec.priorityClassName: "high" is now "train"`},
			changes:  map[string][]string{"a": {"spec.preemptionPolicy", "spec.priority", "spec.priorityClassName"}},
		},
		{
			name:     "so does a removed class",
			object:   `{priorityClassName: high, priority: 1000, preemptionPolicy: Never}`,
			policies: []string{`remove: [[spec, priorityClassName]]`},
			want:     `{}`,
			warnings: []string{`policy a removed spec.priorityClassName, which was "high"`},
			changes:  map[string][]string{"a": {"spec.preemptionPolicy", "spec.priority", "spec.priorityClassName"}},
		},
		{
			name:     "they stay if the class stays",
			object:   `{priorityClassName: train, priority: -8, preemptionPolicy: Never}`,
			policies: []string{`overrides: {spec: {priorityClassName: train}}`, `defaults: {spec: {priorityClassName: other}}`},
			changes:  map[string][]string{},
		},
		{
			name:     "a policy may set them itself",
			object:   `{priority: 0, preemptionPolicy: PreemptLowerPriority}`,
			policies: []string{`defaults: {spec: {priorityClassName: train, preemptionPolicy: Never}}`},
			want:     `{priorityClassName: train, preemptionPolicy: Never}`,
		},
		{
			name:     "a new service account removes the old field",
			object:   `{serviceAccountName: mine, serviceAccount: mine}`,
			policies: []string{`overrides: {spec: {serviceAccountName: ours}}`},
			want:     `serviceAccountName: ours`,
			warnings: []string{`policy a replaced spec.serviceAccountName: "mine" is now "ours"`},
		},
		{
			// The API server rejects a pod with another request.
			name:     "an extended resource's request follows its limit",
			object:   gpus,
			policies: []string{`overrides: {spec: {containers: {"*": {resources: {limits: {nvidia.com/gpu: 1, cpu: 1}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {cpu: 1, nvidia.com/gpu: 1}, requests: {cpu: "2", nvidia.com/gpu: 1}}}]`,
			warnings: []string{
				`policy a replaced spec.containers[main].resources.limits[cpu]: "2" is now 1`,
				`policy a replaced spec.containers[main].resources.limits[nvidia.com/gpu]: "2" is now 1`,
			},
			changes: map[string][]string{"a": {
				"spec.containers[main].resources.limits[cpu]",
				"spec.containers[main].resources.limits[nvidia.com/gpu]",
				"spec.containers[main].resources.requests[nvidia.com/gpu]",
			}},
		},
		{
			name:     "defaults, only where the limit is open",
			object:   `containers: [{name: main}, {name: side, resources: {limits: {a.b/c: 4}, requests: {a.b/c: 4}}}]`,
			policies: []string{`defaults: {spec: {containers: {"*": {resources: {limits: {a.b/c: 1}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {a.b/c: 1}, requests: {a.b/c: 1}}}, {name: side, resources: {limits: {a.b/c: 4}, requests: {a.b/c: 4}}}]`,
		},
		{
			name:     "null removes it from both",
			object:   gpus,
			policies: []string{`overrides: {spec: {containers: {main: {resources: {limits: {nvidia.com/gpu: null, cpu: null}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {}, requests: {cpu: "2"}}}]`,
			warnings: []string{
				`policy a removed spec.containers[main].resources.limits[cpu], which was "2"`,
				`policy a removed spec.containers[main].resources.limits[nvidia.com/gpu], which was "2"`,
			},
		},
		{
			name:     "a path removes it from both, one or all",
			object:   gpus,
			policies: []string{`remove: [[spec, containers, "*", resources, limits, nvidia.com/gpu]]`, `remove: [[spec, containers, "*", resources, limits]]`},
			want:     `containers: [{name: main, resources: {requests: {cpu: "2"}}}]`,
			warnings: []string{
				`policy b removed spec.containers[main].resources.limits, which was {"cpu":"2"}`,
				`policy a removed spec.containers[main].resources.limits[nvidia.com/gpu], which was "2"`,
			},
		},
		{
			name:     "another policy's request is a conflict",
			object:   gpus,
			policies: []string{`overrides: {spec: {containers: {"*": {resources: {limits: {nvidia.com/gpu: 1}}}}}}`, `overrides: {spec: {containers: {main: {resources: {requests: {nvidia.com/gpu: 2}}}}}}`},
			err:      `policies conflict: spec.containers[main].resources.requests[nvidia.com/gpu]: policy a sets 1, policy b sets 2`,
		},
		{
			name:     "an equal request is no conflict",
			object:   `containers: [{name: main}]`,
			policies: []string{`overrides: {spec: {containers: {"*": {resources: {limits: {nvidia.com/gpu: 1}}}}}}`, `overrides: {spec: {containers: {main: {resources: {requests: {nvidia.com/gpu: "1"}}}}}}`},
			want:     `containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: "1"}}}]`,
		},
	})
}

func TestIsExtendedResource(t *testing.T) {
	for name, want := range map[string]bool{
		"nvidia.com/gpu": true, "a.b/c": true, "nvidia.com/mig-1g.10gb": true,
		"cpu": false, "hugepages-2Mi": false, "kubernetes.io/x": false, "x.kubernetes.io/y": false, "requests.nvidia.com/gpu": false,
	} {
		if got := isExtendedResource(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
