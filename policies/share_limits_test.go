// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
)

// strictPool limits the compute of its replicas.
func strictPool() input.NodePool {
	p := testPool("strict", v1alpha1.SharingMPS, mpsPool.Products...)
	p.Compute = v1alpha1.ComputeStrict
	return p
}

// burstPool lets pods exceed their replica, up to limits of the driver.
func burstPool() input.NodePool {
	p := testPool("burst", v1alpha1.SharingTimeSlicing, timeSlicedPool.Products...)
	p.Burst, p.DriverLimits = v1alpha1.BurstAllow, true
	return p
}

// sharePools are all pools, and those with special limits of shares.
func sharePools() []input.NodePool {
	return slices.Concat(allPools, []input.NodePool{strictPool(), burstPool()})
}

// Protects invariant 4: a pod is limited to its share as its node pool limits it, whatever its author
// wrote.
func TestShareLimits(t *testing.T) {
	set := compileBuiltIn(t)
	for _, example := range []mutationExample{
		{
			name: "an author's own limits of a replica, twice",
			pod: `{metadata: {` + mpsPoolPrefix + `gpu-fraction: "0.3"}}, spec: {containers: [{name: main, env: [{name: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, value: 0=24G}, {name: NVIDIA_GPU_MEMORY_LIMIT, value: "24000"},
  {name: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, valueFrom: {configMapKeyRef: {name: mine, key: a}}}]}]}}`,
			want: []string{
				"type train", "pool named", "class sluice-train", "limit 48h", "nodes [{[{pool In [named]}] []}]",
				"main CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=7760M nvidia.com/gpu=1 sluice.dev/gpu-milli.named=333",
			},
			warned: []string{
				"0.3 of a GPU became a replica of a GPU in node pool named; the pod counts as 0.333 of a GPU",
				"policy core.devices removed spec.containers[main].env[NVIDIA_GPU_MEMORY_LIMIT]",
				"policy core.devices replaced spec.containers[main].env[CUDA_MPS_PINNED_DEVICE_MEM_LIMIT]",
			},
		},
		{
			name: "a replica with all of its compute and no more, and a limit that is none",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: strict, gpu-memory: "2000", sluice.dev/gpu-memory-limit: "4000"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool strict", "class sluice-train", "limit 48h", "nodes [{[{pool In [strict]}] []}]",
				"main CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=7760M nvidia.com/gpu=1 sluice.dev/gpu-milli.strict=333",
			},
			warned: []string{"2000 MiB of a GPU became a replica of a GPU in node pool strict; the pod counts as 0.333 of a GPU"},
		},
		{
			name: "a replica that may burst, by the driver's limits",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: burst, gpu-memory: "2000", sluice.dev/gpu-memory-limit: "12000"}}` + mainContainerSuffix,
			want: []string{
				"type train", "pool burst", "class sluice-train", "limit 48h", "nodes [{[{pool In [burst]}] []}]",
				"main NVIDIA_GPU_MEMORY_LIMIT=12000 NVIDIA_GPU_MEMORY_REQUEST=3724 nvidia.com/gpu.shared=1 sluice.dev/gpu-milli.burst=250",
			},
			warned: []string{"2000 MiB of a GPU became a replica of a GPU in node pool burst; the pod counts as 0.25 of a GPU"},
		},
		{
			name: "the same as a part of the GPU, by Run:ai's variable",
			pod:  `{metadata: {annotations: {sluice.dev/node-pools: burst, gpu-fraction: "0.2"}}, spec: {containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: "0.5"}]}]}}`,
			want: []string{
				"type train", "pool burst", "class sluice-train", "limit 48h", "nodes [{[{pool In [burst]}] []}]",
				"main NVIDIA_GPU_MEMORY_LIMIT=7449 NVIDIA_GPU_MEMORY_REQUEST=3724 RUNAI_GPU_MEMORY_LIMIT=0.5 nvidia.com/gpu.shared=1 sluice.dev/gpu-milli.burst=250",
			},
			warned: []string{"0.2 of a GPU became a replica of a GPU in node pool burst; the pod counts as 0.25 of a GPU"},
		},
	} {
		t.Run(example.name, func(t *testing.T) { example.check(t, set, sharePools()) })
	}
}

func TestBurstIsRefused(t *testing.T) {
	set := compileBuiltIn(t)
	for name, example := range map[string]struct{ pod, want string }{
		"where the pool does not allow it": {
			`{metadata: {` + timeSlicedPoolPrefix + `gpu-memory: "2000", sluice.dev/gpu-memory-limit: "4000"}}` + mainContainerSuffix,
			"the pod's memory limit is 4000 MiB of a GPU, more than the share that it gets in node pool taken, which allows no more: its spec.burst is Refuse " +
				"(remove the limit, or name one of the node pools that allow it in the annotation sluice.dev/node-pools: mig, named, strict and burst)",
		},
		"by KAI's annotation, of a slice": {
			`{metadata: {` + migPoolPrefix + `gpu-memory: "8192", gpu-memory.limit: 16Gi}}` + mainContainerSuffix,
			"node pool mig, which allows no more: MIG slices have a fixed size",
		},
		"by Run:ai's variable, of a replica of MPS": {
			`{metadata: {` + mpsPoolPrefix + `gpu-fraction: "0.3"}}, spec: {containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: "0.5"}]}]}}`,
			"the pod's memory limit is 0.5 of a GPU, more than the share that it gets in node pool named, which allows no more: MPS limits each process to a replica",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := admitPod(t, set, testProject, sharePools(), decodeYAML(t, example.pod)).rejection(); !strings.Contains(got, example.want) {
				t.Errorf("refused: %q, want %q", got, example.want)
			}
		})
	}
}
