// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// allPools is in the order in which the project lists them.
var allPools = []input.NodePool{wholeGPUPool, migPool, timeSlicedPool, mpsPool, kueuePoolA, kueuePoolB}

const (
	migPoolPrefix        = `annotations: {sluice.dev/node-pools: mig, `
	timeSlicedPoolPrefix = `annotations: {sluice.dev/node-pools: taken, `
	mpsPoolPrefix        = `annotations: {sluice.dev/node-pools: named, `
	mainContainerSuffix  = `, spec: {containers: [{name: main}]}}`
)

func TestPodMutations(t *testing.T) {
	set := compileBuiltIn(t)
	for _, example := range []mutationExample{
		{
			name: "a pod without GPUs: labels, type and class alone",
			pod:  `{metadata: {labels: {sluice.dev/node-pool: mig}, annotations: {sluice.dev/active: 1%/1h}}, spec: {tolerations: [{key: x}], containers: [{name: main, tty: true, resources: {limits: {sluice.dev/gpu-milli.mig: "1"}}}]}}`,
			want: []string{"type interactive", "class sluice-cpu", "main NVIDIA_VISIBLE_DEVICES=void"},
			warned: []string{
				"policy core.limits removed metadata.annotations[sluice.dev/active]",
				"policy core.nodepool removed metadata.labels[sluice.dev/node-pool]",
				"policy core.quota removed spec.containers[main].resources.limits[sluice.dev/gpu-milli.mig]",
			},
		},
		{
			name: "whole GPUs",
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}, {name: side}], initContainers: [{name: prepare}]}}`,
			want: []string{
				"type train", "pool whole", "class sluice-train", "limit 48h", "nodes [{[{pool In [whole]}] []}]",
				"main nvidia.com/gpu=2 sluice.dev/gpu-milli.whole=2k", "side NVIDIA_VISIBLE_DEVICES=void", "prepare NVIDIA_VISIBLE_DEVICES=void",
			},
		},
		{
			name: "whole GPUs by our annotation",
			pod:  `{metadata: {annotations: {sluice.dev/gpu: "1", sluice.dev/max-runtime: 6h}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool whole", "class sluice-train", "limit 6h", "nodes [{[{pool In [whole]}] []}]",
				"main nvidia.com/gpu=1 sluice.dev/gpu-milli.whole=1k",
			},
		},
		{
			name: "a share that becomes a slice",
			pod:  `{metadata: {labels: {sluice.dev/workload-type: inference}, ` + migPoolPrefix + `gpu-fraction: "0.3"}}` + mainContainerSuffix,
			want: []string{
				"type inference", "pool mig", "class sluice-inference", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-3g.20gb=1 sluice.dev/gpu-milli.mig=500 sluice.dev/guaranteed-milli.mig=500",
			},
			warned: []string{"0.3 of a GPU became a slice 3g.20gb in node pool mig; the pod counts as 0.5 of a GPU"},
		},
		{
			name: "a share that is a slice, in the container that is named, several times",
			pod:  `{metadata: {` + migPoolPrefix + `gpu-fraction: "0.25", gpu-fraction-num-devices: "3", gpu-fraction-container-name: prepare}}, spec: {containers: [{name: main}], initContainers: [{name: prepare}]}}`,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"main NVIDIA_VISIBLE_DEVICES=void sluice.dev/gpu-milli.mig=750", "prepare nvidia.com/mig-2g.10gb=3",
			},
		},
		{
			name: "memory that becomes a slice",
			pod:  `{metadata: {` + migPoolPrefix + `gpu-memory: "8192"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-2g.10gb=1 sluice.dev/gpu-milli.mig=250",
			},
			warned: []string{"8192 MiB of a GPU became a slice 2g.10gb in node pool mig; the pod counts as 0.25 of a GPU"},
		},
		{
			name: "memory by HAMi's resources",
			pod:  `{metadata: {` + migPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 20000}}}]}}`,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-3g.20gb=1 sluice.dev/gpu-milli.mig=500",
			},
			warned: []string{
				"20000 MiB of a GPU became a slice 3g.20gb",
				"policy core.gpu removed spec.containers[main].resources.limits[nvidia.com/gpu]",
				"policy core.gpu removed spec.containers[main].resources.limits[nvidia.com/gpumem]",
			},
		},
		{
			name: "slices by name",
			pod:  `{metadata: {` + migPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb.me: 2}}}]}}`,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-1g.5gb.me=2 sluice.dev/gpu-milli.mig=250",
			},
		},
		{
			name: "a whole GPU that is partitioned into one slice",
			pod:  `{metadata: {` + migPoolPrefix + `}}, spec: {containers: [{name: side}, {name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"side NVIDIA_VISIBLE_DEVICES=void sluice.dev/gpu-milli.mig=1k", "main nvidia.com/mig-7g.40gb=1",
			},
			warned: []string{
				"1 GPU became a slice 7g.40gb in node pool mig; the pod counts as 1 GPU",
				"policy core.gpu removed spec.containers[main].resources.limits[nvidia.com/gpu]",
			},
		},
		{
			name: "a share that becomes a replica",
			pod:  `{metadata: {` + timeSlicedPoolPrefix + `gpu-fraction: "0.2"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool taken", "class sluice-train", "limit 48h", "nodes [{[{pool In [taken]}] []}]",
				"main nvidia.com/gpu.shared=1 sluice.dev/gpu-milli.taken=250",
			},
			warned: []string{"0.2 of a GPU became a replica of a GPU in node pool taken; the pod counts as 0.25 of a GPU"},
		},
		{
			name: "a replica by name",
			pod:  `{metadata: {` + timeSlicedPoolPrefix + `}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}}`,
			want: []string{
				"type train", "pool taken", "class sluice-train", "limit 48h", "nodes [{[{pool In [taken]}] []}]",
				"main nvidia.com/gpu.shared=1 sluice.dev/gpu-milli.taken=250",
			},
		},
		{
			name: "memory that becomes a replica which kept the GPU's name",
			pod:  `{metadata: {` + mpsPoolPrefix + `gpu-memory: "7000"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool named", "class sluice-train", "limit 48h", "nodes [{[{pool In [named]}] []}]",
				"main CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=7760M nvidia.com/gpu=1 sluice.dev/gpu-milli.named=333",
			},
			warned: []string{"7000 MiB of a GPU became a replica of a GPU in node pool named; the pod counts as 0.333 of a GPU"},
		},
		{
			name: "what its author says of the charge, the pool, the queue and the devices is nothing",
			pod: `{metadata: {labels: {sluice.dev/project: other, sluice.dev/node-pool: mig}, annotations: {sluice.dev/created-by: bert, sluice.dev/time-limit: 900h, sluice.dev/active: 1%/1h}}, spec: {
  schedulerName: mine, terminationGracePeriodSeconds: 1, priorityClassName: high,
  containers: [{name: main, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}, {name: CUDA_MPS_PIPE_DIRECTORY, value: /x}, {name: A, value: a}, {name: NVIDIA_VISIBLE_DEVICES, value: "0"}],
    resources: {limits: {nvidia.com/gpu: 1, sluice.dev/gpu-milli.whole: 1, sluice.dev/gpu-milli: 1}}}, {name: side, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}], resources: {limits: {sluice.dev/gpu-milli.whole: 5}}}],
  initContainers: [{name: prepare, resources: {limits: {sluice.dev/gpu-milli.mig: 5000}}}]}}`,
			want: []string{
				"type train", "pool whole", "class sluice-train", "limit 48h", "grace 30", "nodes [{[{pool In [whole]}] []}]",
				"main A=a nvidia.com/gpu=1 sluice.dev/gpu-milli.whole=1k", "side NVIDIA_VISIBLE_DEVICES=void", "prepare NVIDIA_VISIBLE_DEVICES=void",
			},
			warned: []string{
				"policy core.limits replaced metadata.annotations[sluice.dev/active]",
				"policy core.limits replaced metadata.annotations[sluice.dev/time-limit]",
				"policy core.nodepool replaced metadata.labels[sluice.dev/node-pool]",
				"policy core.project replaced metadata.annotations[sluice.dev/created-by]",
				"policy core.project replaced metadata.labels[sluice.dev/project]",
				"policy core.devices removed spec.containers[main].env[CUDA_MPS_PIPE_DIRECTORY]",
				"policy core.devices removed spec.containers[main].env[NVIDIA_VISIBLE_DEVICES]",
				"policy core.devices removed spec.containers[main].env[NVIDIA_VISIBLE_DEVICES]",
				"policy core.devices replaced spec.containers[side].env[NVIDIA_VISIBLE_DEVICES]",
				"policy core.quota removed spec.containers[main].resources.limits[sluice.dev/gpu-milli]",
				"policy core.quota removed spec.containers[side].resources.limits[sluice.dev/gpu-milli.whole]",
				"policy core.quota removed spec.initContainers[prepare].resources.limits[sluice.dev/gpu-milli.mig]",
				"policy core.quota replaced spec.containers[main].resources.limits[sluice.dev/gpu-milli.whole]",
				"policy core.limits replaced spec.terminationGracePeriodSeconds",
				"policy core.priority replaced spec.priorityClassName",
				"policy schedulers.kube-scheduler replaced spec.schedulerName",
			},
		},
		{
			name: "an interactive pod that may be ended, and names pools of which it gets one",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: "mig,whole"}}, spec: {priorityClassName: sluice-interactive-preemptible, containers: [{name: main, tty: true, resources: {limits: {nvidia.com/mig-3g.20gb: 4}}}]}}`,
			want: []string{
				"type interactive", "pool mig", "class sluice-interactive-preemptible", "limit 8h", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-3g.20gb=4 sluice.dev/gpu-milli.mig=2k",
			},
			warned: []string{"the pod can run in mig; of the pools that it names, one is not used: whole (kube-scheduler uses one pool for each pod)"},
		},
		{
			name: "tolerations of what Sluice keeps pods off by, and of everything",
			pod: `{metadata: {}, spec: {tolerations: [{operator: Exists}, {key: mine, operator: Exists}, {key: sluice.dev/repartitioning, operator: Exists}, {operator: Exists, effect: NoExecute}],
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
			want: []string{
				"type train", "pool whole", "class sluice-train", "limit 48h", "nodes [{[{pool In [whole]}] []}]",
				"tolerates mine", "tolerates ", "tolerates gpu",
				"main nvidia.com/gpu=1 sluice.dev/gpu-milli.whole=1k",
			},
			warned: []string{"policy core.nodepool replaced spec.tolerations"},
		},
		{
			name: "several shares that become several slices",
			pod:  `{metadata: {` + migPoolPrefix + `gpu-fraction: "0.1", gpu-fraction-num-devices: "2"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool mig", "class sluice-train", "limit 48h", "nodes [{[{pool In [mig]}] []}]",
				"main nvidia.com/mig-1g.5gb=2 sluice.dev/gpu-milli.mig=250",
			},
			warned: []string{"2 times 0.1 of a GPU became 2 slices 1g.5gb in node pool mig; the pod counts as 0.25 of a GPU"},
		},
		{
			name: "a pod for Kueue, which may choose among pools that are alike",
			pod: `{metadata: {annotations: {sluice.dev/node-pools: "queue,other,whole", kueue.x-k8s.io/role-hash: ab12cd34}, labels: {kueue.x-k8s.io/queue-name: default}}, spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}],
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, sluice.dev/gpu-milli: 1}}}]}}`,
			want: []string{
				"type train", "pool queue", "class sluice-train", "limit 48h", "nodes [{[{pool In [other queue]}] []}]",
				"main nvidia.com/gpu=1 sluice.dev/gpu-milli=1k",
			},
			warned: []string{
				"the pod can run in queue and other; of the pools that it names, one is not used: whole (its scheduler is kube-scheduler)",
				"policy core.quota replaced spec.containers[main].resources.limits[sluice.dev/gpu-milli]",
			},
		},
		{
			name: "a pod of a group, which Kueue counts as what it is charged",
			pod: `{metadata: {annotations: {sluice.dev/node-pools: queue, kueue.x-k8s.io/role-hash: same}, labels: {kueue.x-k8s.io/pod-group-name: g}}, spec: {
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}}`,
			want: []string{
				"type train", "pool queue", "class sluice-train", "limit 48h", "nodes [{[{pool In [queue]}] []}]",
				"main nvidia.com/gpu=2 sluice.dev/gpu-milli=2k",
			},
			warned: []string{`policy schedulers.kueue replaced metadata.annotations[kueue.x-k8s.io/role-hash]: "same" is now "same-2000"`},
		},
		{
			name: "a container that is named like the word for the first one",
			pod:  `{metadata: {}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}, {name: "0"}]}}`,
			want: []string{
				"type train", "pool whole", "class sluice-train", "limit 48h", "nodes [{[{pool In [whole]}] []}]",
				"main nvidia.com/gpu=1 sluice.dev/gpu-milli.whole=1k", "0 NVIDIA_VISIBLE_DEVICES=void",
			},
		},
	} {
		t.Run(example.name, func(t *testing.T) { example.check(t, set, allPools) })
	}
}

// mutationExample is a pod and what the policies make of it.
type mutationExample struct {
	name, pod string
	want      []string
	// warned are beginnings of the warnings.
	warned []string
}

// check admits the pod, and what became of it once more.
func (example mutationExample) check(t *testing.T, set *engine.Set, pools []input.NodePool) {
	t.Helper()
	first := admitPod(t, set, testProject, pools, decodeYAML(t, example.pod))
	if refused := first.rejection(); refused != "" {
		t.Fatalf("refused: %s", refused)
	}
	if diff := cmp.Diff(strings.Join(example.want, "\n"), first.summary(t)); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
	pod := toPod(t, first.pod)
	if got := pod.Annotations["sluice.dev/created-by"] + pod.Labels["sluice.dev/project"] + pod.Labels["sluice.dev/department"]; got != "annathesisstudents" {
		t.Errorf("whose the pod is: %s", got)
	}
	beginnings := func(got string) bool {
		for _, warned := range example.warned {
			if strings.HasPrefix(got, warned) {
				return true
			}
		}
		return false
	}
	for _, got := range first.warnings {
		if !beginnings(got) {
			t.Errorf("warned of %s", got)
		}
	}
	if len(first.warnings) != len(example.warned) {
		t.Errorf("%d warnings, want %d: %q", len(first.warnings), len(example.warned), first.warnings)
	}
	again := admitPod(t, set, testProject, pools, first.pod)
	if again.patch != "" || again.rejection() != "" {
		t.Errorf("the second time: %s%s", again.patch, again.rejection())
	}
}

func TestPodsOfOneControllerShareACachedResult(t *testing.T) {
	set := compileBuiltIn(t)
	pod := decodeYAML(t, `{metadata: {name: a}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`)
	admitPod(t, set, testProject, allPools, pod)
	pod["metadata"] = map[string]any{"name": "b"}
	for _, evaluation := range admitPod(t, set, testProject, allPools, pod).outcome.Evaluations {
		if !evaluation.Cached {
			t.Errorf("%s is asked about a second pod of the same kind", evaluation.Policy)
		}
	}
}
