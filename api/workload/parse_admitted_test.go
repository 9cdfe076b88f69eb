// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// A pod that was admitted is read again, by the validating webhook and by
// lifecycle, with what was granted and what engines wrote on it.
func TestParseAdmittedPod(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  podTemplateBuilder
		want workload.Request
	}{
		{
			"a share that became a slice: the slice counts",
			newAdmittedPod().withAnnotation("gpu-fraction", "0.3").withAnnotation("gpu-fraction.limit", "0.5").withLimit("nvidia.com/mig-3g.20gb", "1"),
			workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "3g.20gb", ShareLimit: 500, GPUs: 1000, Resources: singleAmount("nvidia.com/mig-3g.20gb", 1)},
		},
		{
			"memory that became a replica, with the limit of the author",
			newAdmittedPod().withAnnotation("gpu-memory", "2048").withAnnotation("sluice.dev/gpu-memory-limit", "8192").withLimit("nvidia.com/gpu.shared", "1"),
			workload.Request{Form: workload.FormReplica, Devices: 1, MemoryLimitMiB: 8192, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu.shared", 1)},
		},
		{
			"a share that became a replica with the name of a GPU, with a limit below a whole GPU",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "100m").withAnnotation("gpu-fraction.limit", "0.5").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, ShareLimit: 500, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"a share that became a replica",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "100m").withLimit("nvidia.com/gpu.shared", "1"),
			workload.Request{Form: workload.FormReplica, Devices: 1, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu.shared", 1)},
		},
		{
			"whole GPUs that became a resource",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "2").withLimit("nvidia.com/gpu", "2"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"whole GPUs by an annotation have no limit of Run:ai's variable",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "2").withEnv(v1alpha1.EnvRunAIGPUMemoryLimit, "0.9"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000},
		},
		{
			"whole GPUs that became a resource have none either",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "2").withLimit("nvidia.com/gpu", "2").withEnv(v1alpha1.EnvRunAIGPUMemoryLimit, "0.9"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"a third that became HAMi's 34 percent",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "333m").withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem-percentage", "34"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 340, GPUs: 340, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"to pretend that it was admitted gains nothing: the GPUs count",
			newAdmittedPod().withAnnotation("gpu-fraction", "0.001").withLimit("nvidia.com/gpu", "8"),
			workload.Request{Form: workload.FormWhole, Devices: 8, Share: 1000, GPUs: 8000, Resources: singleAmount("nvidia.com/gpu", 8)},
		},
		{
			"our annotation in KAI's words",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "500m").withAnnotation("gpu-fraction", "0.5"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},
		{
			"our annotation, rounded up to the hundredths of KAI",
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "125m").withAnnotation("gpu-fraction", "0.13"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 130, GPUs: 130},
		},
		{
			"memory in the words of KAI's later versions",
			newAdmittedPod().withAnnotation("gpu-memory", "8192").withAnnotation("nvidia.com/container.main.gpu-memory.request", "8Gi").
				withAnnotation("sluice.dev/gpu-memory-limit", "16384").withAnnotation("gpu-memory.limit", "16Gi").withAnnotation("nvidia.com/container.main.gpu-memory.limit", "16Gi").
				withAnnotation("nvidia.com/container.main.gpus.devices", "GPU-1"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 16384, GPUs: 1000},
		},
		{
			"a limit that KAI copied as it was",
			newAdmittedPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-memory.limit", "16384").withAnnotation("nvidia.com/container.main.gpu-memory.limit", "16384"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 16384, GPUs: 1000},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := workload.Parse(tc.pod.PodTemplateSpec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(withDefaults(tc.want), got, withoutRequests); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A pod that only pretends to be admitted is rejected if it contradicts itself.
func TestParseRejectsForgedGrants(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  podTemplateBuilder
		want string
	}{
		"two shares": {
			newAdmittedPod().withAnnotation("sluice.dev/gpu", "100m").withAnnotation("gpu-fraction", "0.9"),
			"metadata.annotations[gpu-fraction]: Invalid value: \"0.9\": contradicts metadata.annotations[sluice.dev/gpu], \"100m\"; keep one of the two",
		},
		"two limits": {
			newAdmittedPod().withAnnotation("gpu-memory", "1").withAnnotation("sluice.dev/gpu-memory-limit", "10").withAnnotation("gpu-memory.limit", "20"),
			"contradicts metadata.annotations[sluice.dev/gpu-memory-limit]",
		},
		"more memory for KAI than for us": {
			newAdmittedPod().withAnnotation("gpu-memory", "100").withAnnotation("nvidia.com/container.main.gpu-memory.request", "80Gi"),
			"must be equal to metadata.annotations[gpu-memory], \"100\"",
		},
		"memory for KAI only": {
			newAdmittedPod().withAnnotation("gpu-fraction", "0.1").withAnnotation("nvidia.com/container.main.gpu-memory.request", "80Gi"),
			"set gpu-memory instead",
		},
		"two kinds of GPUs": {
			newAdmittedPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/mig-1g.5gb", "1"),
			"is a second kind of GPU beside",
		},
		"several devices of nothing": {
			newAdmittedPod().withAnnotation("gpu-fraction-num-devices", "2"),
			"set the share, too",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := workload.Parse(tc.pod.PodTemplateSpec)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v and error %v, want %q", got, err, tc.want)
			}
		})
	}
}
