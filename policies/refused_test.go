// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/facts"
)

func TestWhatIsRefused(t *testing.T) {
	set := compiled(t)
	expired := thesis
	expired.Phase = v1alpha1.ProjectExpired
	for _, example := range []struct {
		name, pod string
		project   *facts.Project
		want      string
	}{
		{
			name: "a share of a pool that gives whole GPUs",
			pod:  `{metadata: {annotations: {gpu-fraction: "0.2"}}` + oneMain,
			want: "core.quota: the pod asks for 0.2 of a GPU; node pool whole gives whole GPUs only (cut, taken and named can give it: name one in the annotation sluice.dev/node-pools)",
		},
		{
			name: "a share that is larger than a replica",
			pod:  `{metadata: {` + inTaken + `gpu-fraction: "0.6"}}` + oneMain,
			want: "core.quota: the pod asks for 0.6 of a GPU; node pool taken gives a pod one replica, which is 0.25 of a GPU (cut can give it: name it in the annotation sluice.dev/node-pools)",
		},
		{
			name: "two replicas",
			pod:  `{metadata: {` + inTaken + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 2}}}]}}`,
			want: "core.quota: the pod asks for 2 times a replica of a GPU; node pool taken gives a pod one replica, which is 0.25 of a GPU (ask for no more than a replica, by the annotation sluice.dev/gpu)",
		},
		{
			name: "a slice that is not offered",
			pod:  `{metadata: {` + inCut + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-4g.20gb: 1}}}]}}`,
			want: "core.quota: the pod asks for the slice 4g.20gb; node pool cut gives the MIG slices 1g.5gb, 1g.5gb+me, 2g.10gb, 3g.20gb and 7g.40gb (ask for one of these slices, or by the annotation sluice.dev/gpu for a share that fits in one)",
		},
		{
			name: "more than the project may have",
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}}`,
			want: "core.quota: the pod counts as 3 GPUs of node pool whole; project thesis may have 2 GPUs there (ask for less, or an administrator of the department for more)",
		},
		{
			name: "an interactive pod beyond the guarantee",
			pod:  `{metadata: {}, spec: {containers: [{name: main, tty: true, resources: {limits: {nvidia.com/gpu: 2}}}]}}`,
			want: "core.quota: the pod counts as 2 GPUs of node pool whole; pods of type interactive cannot be preempted and stay within what is guaranteed to project thesis, 1 GPU (ask for less, or choose priorityClassName sluice-interactive-preemptible)",
		},
		{
			name:    "a GPU for a project whose time is over",
			pod:     `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			project: &expired,
			want:    "core.project: project thesis is expired: it takes no new pods with GPUs (an owner of the project can renew it; then create the pod again)",
		},
		{
			name: "a pool that is not the project's",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: others}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "core.quota: node pool others is not one of project thesis; it may use whole, cut, taken, named, queue and other (name one of these, or leave the annotation out)",
		},
		{
			name: "ways to a GPU that was not asked for",
			pod:  `{metadata: {}, spec: {runtimeClassName: nvidia, volumes: [{name: dev, hostPath: {path: /dev/nvidia0}}], containers: [{name: main, securityContext: {privileged: true}}]}}`,
			want: `core.devices: container main is privileged, and so reaches every device of its node (set it to false; what it needs is mostly a capability or two)
core.devices: runtime class nvidia is for pods with GPUs, and the pod asks for none (leave it out, or ask for a GPU in a container's limits)
core.devices: volume dev mounts /dev/nvidia0 of the node, by which GPUs can be reached that were not asked for (take the volume out, and ask for GPUs in a container's limits)`,
		},
		{
			name: "ways out of the pod",
			pod:  `{metadata: {}, spec: {hostPID: true, volumes: [{name: data, hostPath: {path: /data}}], containers: [{name: main, securityContext: {capabilities: {add: [SYS_ADMIN, SYS_PTRACE]}}, envFrom: [{secretRef: {name: all}}], resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: `core.devices: container main has a GPU and takes all variables of a ConfigMap or a Secret, of which one may be NVIDIA_VISIBLE_DEVICES or lift the limits of a share (give envFrom a prefix, or name the variables in env with valueFrom)
core.devices: container main adds the capability SYS_ADMIN, by which it can mount the node's devices and leave its own namespaces (take it out; what a program needs is mostly a narrower one)
core.devices: the pod sees all processes of its node, and through them the devices and variables of others' pods (set it to false; containers of one pod see each other's processes with shareProcessNamespace)
core.devices: volume data mounts /data of the node; pods of projects have no directories of nodes (use a PersistentVolumeClaim for files, or an emptyDir for scratch and shared memory)`,
		},
		{
			name: "a DaemonSet's GPUs",
			pod:  `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: all, controller: true}]}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: "core.gpu: the pod of a DaemonSet cannot have GPUs: it would take one of every node, whoever waits for it (use a Job, a Deployment or a StatefulSet)",
		},
	} {
		t.Run(example.name, func(t *testing.T) {
			project := thesis
			if example.project != nil {
				project = *example.project
			}
			got := admit(t, set, project, everyPool, decoded(t, example.pod)).refusals()
			if diff := cmp.Diff(example.want, got); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuotasAreRendered(t *testing.T) {
	rendering, err := compiled(t).EvaluateObjects(t.Context(), engine.Input{
		Subject: engine.Subject{Department: thesis.Department, Project: thesis.Name},
		Object:  document(t, map[string]any{"kind": "Project"}), Project: document(t, thesis), NodePools: document(t, []facts.Pool{whole}),
	})
	if err != nil || len(rendering.Failures) > 0 {
		t.Fatal(err, rendering.Failures)
	}
	labels := map[string]any{"app.kubernetes.io/managed-by": "sluice"}
	var got []map[string]any
	for _, object := range rendering.Objects {
		if object.Value["kind"] == "ResourceQuota" {
			got = append(got, object.Value)
		}
	}
	want := []map[string]any{
		{
			"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": map[string]any{"name": "sluice-whole", "namespace": "thesis", "labels": labels},
			"spec":     map[string]any{"hard": map[string]any{"requests.sluice.dev/gpu-milli.whole": "2000"}},
		},
		{
			"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": map[string]any{"name": "sluice-whole.guaranteed", "namespace": "thesis", "labels": labels},
			"spec": map[string]any{
				"hard": map[string]any{"requests.sluice.dev/gpu-milli.whole": "1000"},
				"scopeSelector": map[string]any{"matchExpressions": []any{map[string]any{
					"scopeName": "PriorityClass", "operator": "In", "values": []any{"sluice-interactive", "sluice-inference"},
				}}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
