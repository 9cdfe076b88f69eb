// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// replacing are the built-in policies with a team's in the place of one.
func replacing(t *testing.T, replaced, rego string) *engine.Set {
	t.Helper()
	sources := append(policies.BuiltIn(), engine.Source{
		Name: "team", Replaces: replaced, Rego: "package team\n\n" + rego,
		Match: v1alpha1.PolicyMatch{Kinds: []string{"Pod"}, Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationCreate}},
	})
	set, reports, err := engine.Compile(sources, engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		for _, problem := range slices.Concat(report.Problems, report.Warnings) {
			t.Fatal(problem)
		}
	}
	return set
}

// Whatever stands in the place of the policies that may be replaced, nothing is
// had that is not charged: the pod is refused, if not by one policy then since the
// policies do not agree with what they made.
func TestWhateverIsReplacedTheChargeStays(t *testing.T) {
	const gives = `overrides.spec.containers := [{"name": "main", "resources": {"limits": {%}}}]`
	give := func(limits string) string { return strings.Replace(gives, "%", limits, 1) }
	for _, example := range []struct {
		name, replaces, rego, pod string
		// want is what the pod comes to; refused what its refusal says.
		want, refused string
	}{
		{
			name: "nothing in the place of core.gpu", replaces: "core.gpu", rego: `warn contains "look" if false`,
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}}`,
			want: "main nvidia.com/gpu=2 sluice.dev/gpu-milli.whole=2k",
		},
		{
			name: "a smaller charge of its author's", replaces: "core.gpu", rego: `warn contains "look" if false`,
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2, sluice.dev/gpu-milli.whole: 1}}}]}}`,
			want: "main nvidia.com/gpu=2 sluice.dev/gpu-milli.whole=2k",
		},
		{
			name: "the same as core.gpu gives", replaces: "core.gpu", rego: give(`"nvidia.com/mig-3g.20gb": "1"`),
			pod:  `{metadata: {` + inCut + `gpu-fraction: "0.3"}}` + oneMain,
			want: "main nvidia.com/mig-3g.20gb=1 sluice.dev/gpu-milli.cut=500",
		},
		{
			name: "more than was asked for", replaces: "core.gpu", rego: give(`"nvidia.com/mig-7g.40gb": "1"`),
			pod:     `{metadata: {` + inCut + `gpu-fraction: "0.3"}}` + oneMain,
			refused: "core.quota still changes spec.containers[main].resources.limits[sluice.dev/gpu-milli.cut]",
		},
		{
			name: "GPUs for who asked for none", replaces: "core.gpu", rego: give(`"nvidia.com/gpu": "8"`),
			pod:     `{metadata: {}, spec: {containers: [{name: main}]}}`,
			refused: "core.quota: the pod counts as 8 GPUs",
		},
		{
			name: "a GPU for who asked for none", replaces: "core.gpu", rego: give(`"nvidia.com/gpu": "1"`),
			pod:     `{metadata: {}, spec: {containers: [{name: main}]}}`,
			refused: "spec.containers[main].resources.limits[sluice.dev/gpu-milli.whole]",
		},
		{
			name: "a charge of its own", replaces: "core.gpu", rego: give(`"sluice.dev/gpu-milli.whole": "1"`),
			pod:     `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			refused: "policies conflict",
		},
		{
			name: "a whole GPU where its memory makes it a slice", replaces: "core.gpu", rego: `warn contains "look" if false`,
			pod:     `{metadata: {` + inCut + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 20000}}}]}}`,
			refused: "core.quota: the pod has 1 nvidia.com/gpu, which is 1 GPU of node pool cut, and would be counted as 0.5 of a GPU",
		},
		{
			name: "more replicas than one can be sure of", replaces: "core.gpu", rego: `warn contains "look" if false`,
			pod:     `{metadata: {` + inTaken + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 2}}}]}}`,
			refused: "core.quota: the pod asks for 2 times a replica of a GPU",
		},
		{
			name: "any pool", replaces: "core.nodepool", rego: `warn contains "look" if false`,
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: cut}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}`,
			want: "nodes [{[{pool In [cut]}] []}]",
		},
		{
			name: "a pool that is not the project's", replaces: "core.nodepool", rego: `warn contains "look" if false`,
			pod:     `{metadata: {annotations: {sluice.dev/node-pools: others}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			refused: "core.quota: node pool others is not one of project thesis",
		},
		{
			name: "a class that no quota counts", replaces: "core.priority", rego: `warn contains "look" if false`,
			pod:     `{metadata: {}, spec: {priorityClassName: high, containers: [{name: main, tty: true, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			refused: "core.quota: a pod of type interactive stays within what is guaranteed, which is not counted for priority class high",
		},
		{
			name: "a class of the team's for what may be preempted", replaces: "core.priority", rego: `overrides.spec.priorityClassName := "low"`,
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "class low",
		},
	} {
		t.Run(example.name, func(t *testing.T) {
			set := replacing(t, example.replaces, example.rego)
			came, refused := settled(t, set, decoded(t, example.pod))
			if example.refused == "" && (refused != "" || !strings.Contains(came.summary(t), example.want)) {
				t.Errorf("%s\nrefused: %s\nwant %s", came.summary(t), refused, example.want)
			}
			if example.refused != "" && !strings.Contains(refused, example.refused) {
				t.Errorf("refused: %q\nwant %q; the pod\n%s", refused, example.refused, came.summary(t))
			}
		})
	}
}

// settled asks about a pod, and once more about what became of it. The text is why
// it is refused.
func settled(t *testing.T, set *engine.Set, pod map[string]any) (admission, string) {
	t.Helper()
	first := admit(t, set, thesis, everyPool, pod)
	if refused := first.refused(); refused != "" {
		return first, refused
	}
	again := admit(t, set, thesis, everyPool, first.pod)
	if refused := again.refused(); refused != "" {
		return first, refused
	}
	var still []string
	for policy, paths := range again.changes {
		still = append(still, policy+" still changes "+strings.Join(paths, ", "))
	}
	slices.Sort(still)
	return first, strings.Join(still, "\n")
}
