// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

func TestDenials(t *testing.T) {
	set := compileBuiltIn(t)
	expired := testProject
	expired.Phase, expired.Closed, expired.ClosedSince = v1alpha1.ProjectExpired, true, "2026-10-01T00:00:00+02:00"
	for _, example := range []struct {
		name, pod string
		project   *input.Project
		want      string
	}{
		{
			name: "a share of a pool that gives whole GPUs",
			pod:  `{metadata: {annotations: {gpu-fraction: "0.2"}}` + mainContainerSuffix,
			want: "core.quota: the pod requests 0.2 of a GPU; node pool whole offers whole GPUs only (use one of the node pools mig, taken and named: name it in the annotation sluice.dev/node-pools)",
		},
		{
			name: "a share that is larger than a replica",
			pod:  `{metadata: {` + timeSlicedPoolPrefix + `gpu-fraction: "0.6"}}` + mainContainerSuffix,
			want: "core.quota: the pod requests 0.6 of a GPU; node pool taken offers one replica per pod, which is 0.25 of a GPU (use node pool mig: name it in the annotation sluice.dev/node-pools)",
		},
		{
			name: "two replicas",
			pod:  `{metadata: {` + timeSlicedPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 2}}}]}}`,
			want: "core.quota: the pod requests 2 times a replica of a GPU; node pool taken offers one replica per pod, which is 0.25 of a GPU (request at most one replica with the annotation sluice.dev/gpu)",
		},
		{
			name: "a slice that is not offered",
			pod:  `{metadata: {` + migPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-4g.20gb: 1}}}]}}`,
			want: "core.quota: the pod requests the slice 4g.20gb; node pool mig offers the MIG slices 1g.5gb, 1g.5gb+me, 2g.10gb, 3g.20gb and 7g.40gb (request one of these slices, or with the annotation sluice.dev/gpu a share that fits in one)",
		},
		{
			name: "more than the project may have",
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}}`,
			want: "core.quota: the pod counts as 3 GPUs of node pool whole; project thesis may have 2 GPUs there (request less, or ask an administrator of the department for more)",
		},
		{
			name: "an interactive pod beyond the guarantee",
			pod:  `{metadata: {}, spec: {containers: [{name: main, tty: true, resources: {limits: {nvidia.com/gpu: 2}}}]}}`,
			want: "core.quota: the pod counts as 2 GPUs of node pool whole; pods of type interactive cannot be preempted and must fit the guarantee of project thesis, 1 GPU (request less, or choose priorityClassName sluice-interactive-preemptible)",
		},
		{
			name:    "a GPU for a project whose time is over",
			pod:     `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			project: &expired,
			want:    "core.project: project thesis has expired: it has accepted no new pods with GPUs since 2026-10-01 (an owner, Anna Beispiel, can renew it with sluice renew project/thesis; then create the pod again)",
		},
		{
			name: "a pool that is not the project's",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: others}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "core.quota: node pool others is not assigned to project thesis, which can use whole, mig, taken, named, queue and other (name one of these, or leave the annotation out)",
		},
		{
			name: "ways to a GPU that was not asked for",
			pod:  `{metadata: {}, spec: {runtimeClassName: nvidia, volumes: [{name: dev, hostPath: {path: /dev/nvidia0}}], containers: [{name: main, securityContext: {privileged: true}}]}}`,
			want: `core.devices: container main is privileged, which gives access to every device of its node (set it to false; most programs need only one or two capabilities)
core.devices: runtime class nvidia is for pods with GPUs, and the pod requests none (leave it out, or request a GPU in a container's limits)
core.devices: volume dev mounts /dev/nvidia0 of the node, which gives access to GPUs that the pod did not request (remove the volume, and request GPUs in a container's limits)`,
		},
		{
			name: "ways out of the pod",
			pod:  `{metadata: {}, spec: {hostPID: true, volumes: [{name: data, hostPath: {path: /data}}], containers: [{name: main, securityContext: {capabilities: {add: [SYS_ADMIN, SYS_PTRACE]}}, envFrom: [{secretRef: {name: all}}], resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: `core.devices: container main has a GPU and imports all variables of a ConfigMap or a Secret, one of which could be NVIDIA_VISIBLE_DEVICES or remove the limits of a share (give envFrom a prefix, or name the variables in env with valueFrom)
core.devices: container main adds the capability SYS_ADMIN, with which it can mount the node's devices and leave its own namespaces (remove it; most programs need only a narrower one)
core.devices: the pod sees all processes of its node, and through them the devices and variables of other pods (set it to false; containers of one pod see each other's processes with shareProcessNamespace)
core.devices: volume data mounts /data of the node; pods of projects cannot mount directories of nodes (use a PersistentVolumeClaim for files, or an emptyDir for scratch and shared memory)`,
		},
		{
			name: "a DaemonSet's GPUs",
			pod:  `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: all, controller: true}]}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "core.gpu: the pod of a DaemonSet cannot have GPUs: it would occupy a GPU of every node, regardless of the queue (use a Job, a Deployment or a StatefulSet)",
		},
	} {
		t.Run(example.name, func(t *testing.T) {
			project := testProject
			if example.project != nil {
				project = *example.project
			}
			got := admitPod(t, set, project, allPools, decodeYAML(t, example.pod)).denials()
			if diff := cmp.Diff(example.want, got); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuotasAreRendered(t *testing.T) {
	rendering, err := compileBuiltIn(t).RenderObjects(t.Context(), engine.Input{
		Subject: engine.Subject{Department: testProject.Department, Project: testProject.Name},
		Object:  newDocument(t, map[string]any{"kind": "Project"}), Project: newDocument(t, testProject), NodePools: newDocument(t, []input.NodePool{wholeGPUPool}),
	})
	if err != nil || len(rendering.Failures) > 0 {
		t.Fatal(err, rendering.Failures)
	}
	var got []map[string]any
	for _, object := range rendering.Objects {
		if object.Value["kind"] == "ResourceQuota" {
			got = append(got, object.Value)
		}
	}
	newQuota := func(hard map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": map[string]any{"name": "sluice", "namespace": "thesis"},
			"spec":     map[string]any{"hard": hard},
		}
	}
	want := []map[string]any{
		newQuota(map[string]any{}), // of core.namespace: testProject has no limits of other objects
		newQuota(map[string]any{"requests.sluice.dev/gpu-milli.whole": "2000", "requests.sluice.dev/guaranteed-milli.whole": "1000"}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// replacementPolicy are the built-in policies with a team's in the place of one.
func replacementPolicy(t *testing.T, replaced, rego string) *engine.Set {
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
func TestQuotaChargeIsIndependentOfReplacedPolicies(t *testing.T) {
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
			pod:  `{metadata: {` + migPoolPrefix + `gpu-fraction: "0.3"}}` + mainContainerSuffix,
			want: "main nvidia.com/mig-3g.20gb=1 sluice.dev/gpu-milli.mig=500",
		},
		{
			name: "more than was asked for", replaces: "core.gpu", rego: give(`"nvidia.com/mig-7g.40gb": "1"`),
			pod:     `{metadata: {` + migPoolPrefix + `gpu-fraction: "0.3"}}` + mainContainerSuffix,
			refused: "core.quota still changes spec.containers[main].resources.limits[sluice.dev/gpu-milli.mig]",
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
			pod:     `{metadata: {` + migPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 20000}}}]}}`,
			refused: "core.quota: the pod has 1 nvidia.com/gpu, which is 1 GPU of node pool mig, and would be counted as 0.5 of a GPU",
		},
		{
			name: "more replicas than one can be sure of", replaces: "core.gpu", rego: `warn contains "look" if false`,
			pod:     `{metadata: {` + timeSlicedPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 2}}}]}}`,
			refused: "core.quota: the pod requests 2 times a replica of a GPU",
		},
		{
			name: "any pool", replaces: "core.nodepool", rego: `warn contains "look" if false`,
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: mig}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}`,
			want: "nodes [{[{pool In [mig]}] []}]",
		},
		{
			name: "a pool that is not the project's", replaces: "core.nodepool", rego: `warn contains "look" if false`,
			pod:     `{metadata: {annotations: {sluice.dev/node-pools: others}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			refused: "core.quota: node pool others is not assigned to project thesis",
		},
		{
			name: "the guarantee counts any class of what cannot be preempted", replaces: "core.priority", rego: `warn contains "look" if false`,
			pod:  `{metadata: {}, spec: {priorityClassName: high, containers: [{name: main, tty: true, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "sluice.dev/guaranteed-milli.whole=1k",
		},
		{
			name: "a class of the team's for what may be preempted", replaces: "core.priority", rego: `overrides.spec.priorityClassName := "low"`,
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "class low",
		},
	} {
		t.Run(example.name, func(t *testing.T) {
			set := replacementPolicy(t, example.replaces, example.rego)
			came, refused := admittedPod(t, set, decodeYAML(t, example.pod))
			if example.refused == "" && (refused != "" || !strings.Contains(came.summary(t), example.want)) {
				t.Errorf("%s\nrefused: %s\nwant %s", came.summary(t), refused, example.want)
			}
			if example.refused != "" && !strings.Contains(refused, example.refused) {
				t.Errorf("refused: %q\nwant %q; the pod\n%s", refused, example.refused, came.summary(t))
			}
		})
	}
}

// admittedPod asks about a pod, and once more about what became of it. The text is why
// it is refused.
func admittedPod(t *testing.T, set *engine.Set, pod map[string]any) (admissionResult, string) {
	t.Helper()
	first := admitPod(t, set, testProject, allPools, pod)
	if refused := first.rejection(); refused != "" {
		return first, refused
	}
	again := admitPod(t, set, testProject, allPools, first.pod)
	if refused := again.rejection(); refused != "" {
		return first, refused
	}
	var still []string
	for policy, paths := range again.changedPaths {
		still = append(still, policy+" still changes "+strings.Join(paths, ", "))
	}
	slices.Sort(still)
	return first, strings.Join(still, "\n")
}
