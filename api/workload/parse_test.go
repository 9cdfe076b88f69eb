// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// withDefaults fills in what a want leaves out: what is there in every Request.
func withDefaults(want workload.Request) workload.Request {
	if want.Form == "" {
		want.Form = workload.FormNone
	} else if want.Container == "" {
		want.Container = "main"
	}
	if want.Resources == nil {
		want.Resources = workload.Amounts{}
	}
	if want.DeviceClasses == nil {
		want.DeviceClasses = workload.Amounts{}
	}
	if want.OtherResources == nil {
		want.OtherResources = []string{}
	}
	if want.Claims == nil {
		want.Claims = []workload.Claim{}
	}
	if want.NodePools == nil {
		want.NodePools = []string{}
	}
	return want
}

// withoutRequests leaves out the CPU and memory that newPod requests.
var withoutRequests = cmpopts.IgnoreFields(workload.Request{}, "Requests")

func singleAmount(name string, count int64) workload.Amounts {
	return workload.Amounts{{Name: name, Count: count}}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  podTemplateBuilder
		want workload.Request
	}{
		{"CPU only", newPod(), workload.Request{}},
		{"no containers at all", podTemplateBuilder{&corev1.PodTemplateSpec{}}, workload.Request{}},

		{
			"a whole GPU", newPod().withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"eight GPUs, request and limit alike", newPod().withLimit("nvidia.com/gpu", "8").withRequest("nvidia.com/gpu", "8"),
			workload.Request{Form: workload.FormWhole, Devices: 8, Share: 1000, GPUs: 8000, Resources: singleAmount("nvidia.com/gpu", 8)},
		},
		{
			"two thousand thousandths", newPod().withLimit("nvidia.com/gpu", "2000m"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"a GPU in each of two containers", newPod().withLimit("nvidia.com/gpu", "1").withContainer("second").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"the second container's GPU", newPod().withContainer("second").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1), Container: "second"},
		},
		{"no GPU, in so many words", newPod().withLimit("nvidia.com/gpu", "0"), workload.Request{}},
		{
			"a GPU in one container, none in the other", newPod().withLimit("nvidia.com/gpu", "0").withContainer("second").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1), Container: "second"},
		},

		{
			"an init container runs before, not beside", newPod().withLimit("nvidia.com/gpu", "1").withInitContainer("warm-up").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"an init container with more than the rest", newPod().withLimit("nvidia.com/gpu", "1").withInitContainer("convert").withLimit("nvidia.com/gpu", "4"),
			workload.Request{Form: workload.FormWhole, Devices: 4, Share: 1000, GPUs: 4000, Resources: singleAmount("nvidia.com/gpu", 4)},
		},
		{
			"a sidecar runs beside", newPod().withLimit("nvidia.com/gpu", "1").withSidecar("encoder").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"an init container after a sidecar runs beside it", newPod().withSidecar("encoder").withLimit("nvidia.com/gpu", "1").withInitContainer("convert").withLimit("nvidia.com/gpu", "2"),
			workload.Request{Form: workload.FormWhole, Devices: 3, Share: 1000, GPUs: 3000, Resources: singleAmount("nvidia.com/gpu", 3), Container: "encoder"},
		},
		{
			"an init container before a sidecar does not", newPod().withInitContainer("convert").withLimit("nvidia.com/gpu", "2").withSidecar("encoder").withLimit("nvidia.com/gpu", "1"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2), Container: "convert"},
		},

		{
			"a MIG slice", newPod().withLimit("nvidia.com/mig-3g.40gb", "1"),
			workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "3g.40gb", GPUs: 1000, Resources: singleAmount("nvidia.com/mig-3g.40gb", 1)},
		},
		{
			"several slices", newPod().withLimit("nvidia.com/mig-1g.5gb", "3"),
			workload.Request{Form: workload.FormMIG, Devices: 3, MIGProfile: "1g.5gb", GPUs: 3000, Resources: singleAmount("nvidia.com/mig-1g.5gb", 3)},
		},
		{
			"a slice with media engines, written with a dot", newPod().withLimit("nvidia.com/mig-1g.10gb.me", "1"),
			workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "1g.10gb+me", GPUs: 1000, Resources: singleAmount("nvidia.com/mig-1g.10gb.me", 1)},
		},
		{
			"a slice with all media engines", newPod().withLimit("nvidia.com/mig-1g.24gb.me.all", "1"),
			workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "1g.24gb+me.all", GPUs: 1000, Resources: singleAmount("nvidia.com/mig-1g.24gb.me.all", 1)},
		},
		{
			"a slice without media engines", newPod().withLimit("nvidia.com/mig-1g.24gb-me", "1"),
			workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "1g.24gb-me", GPUs: 1000, Resources: singleAmount("nvidia.com/mig-1g.24gb-me", 1)},
		},
		{
			"a replica", newPod().withLimit("nvidia.com/gpu.shared", "1"),
			workload.Request{Form: workload.FormReplica, Devices: 1, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu.shared", 1)},
		},

		{
			"half a GPU, as Run:ai's users write it", newPod().withAnnotation("gpu-fraction", "0.5"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},
		{
			"half a GPU without the nought", newPod().withAnnotation("gpu-fraction", ".5"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},
		{
			"the smallest share", newPod().withAnnotation("gpu-fraction", "0.001"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 1, GPUs: 1},
		},
		{
			"the largest share, with noughts", newPod().withAnnotation("gpu-fraction", "0.9990000000"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 999, GPUs: 999},
		},
		{
			"a quarter of each of two GPUs", newPod().withAnnotation("gpu-fraction", "0.25").withAnnotation("gpu-fraction-num-devices", "2"),
			workload.Request{Form: workload.FormShare, Devices: 2, Share: 250, GPUs: 500},
		},
		{
			"memory", newPod().withAnnotation("gpu-memory", "8192"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, GPUs: 1000},
		},
		{
			"memory of each of four GPUs", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-fraction-num-devices", "4"),
			workload.Request{Form: workload.FormMemory, Devices: 4, MemoryMiB: 8192, GPUs: 4000},
		},
		{
			"our own annotation, in thousandths", newPod().withAnnotation("sluice.dev/gpu", "500m"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},
		{
			"our own annotation, as a decimal", newPod().withAnnotation("sluice.dev/gpu", "0.25"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 250, GPUs: 250},
		},
		{
			"our own annotation for parts of several GPUs", newPod().withAnnotation("sluice.dev/gpu", "750m").withAnnotation("gpu-fraction-num-devices", "2"),
			workload.Request{Form: workload.FormShare, Devices: 2, Share: 750, GPUs: 1500},
		},
		{
			"our own annotation for whole GPUs", newPod().withAnnotation("sluice.dev/gpu", "2"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000},
		},
		{
			"a whole GPU in thousandths", newPod().withAnnotation("sluice.dev/gpu", "1000m"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000},
		},
		{
			"a share for a named container", newPod().withContainer("trainer").withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-fraction-container-name", "trainer"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500, Container: "trainer"},
		},
		{
			"a share for an init container", newPod().withInitContainer("convert").withAnnotation("gpu-memory", "8192").withAnnotation("gpu-fraction-container-name", "convert"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, GPUs: 1000, Container: "convert"},
		},
		{"a share's container without a share means nothing", newPod().withAnnotation("gpu-fraction-container-name", "who"), workload.Request{}},
		{
			"a share in a pod without containers", podTemplateBuilder{&corev1.PodTemplateSpec{}}.withAnnotation("gpu-fraction", "0.5").withChange(func(p *corev1.PodTemplateSpec) {
				p.Spec.InitContainers = []corev1.Container{{Name: "main"}}
			}).withAnnotation("gpu-fraction-container-name", "main"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},

		{
			"a memory limit", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "16384"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 16384, GPUs: 1000},
		},
		{
			"a memory limit that is the request", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "8192"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 8192, GPUs: 1000},
		},
		{
			"a memory limit of a fraction", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("sluice.dev/gpu-memory-limit", "60000"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, MemoryLimitMiB: 60000, GPUs: 500},
		},
		{
			"KAI's memory limit in MiB", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-memory.limit", "16384"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 16384, GPUs: 1000},
		},
		{
			"KAI's memory limit with its unit", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-memory.limit", "16Gi"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8192, MemoryLimitMiB: 16384, GPUs: 1000},
		},
		{
			"KAI's limit of a fraction", newPod().withAnnotation("gpu-fraction", "0.25").withAnnotation("gpu-fraction.limit", "0.8"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 250, ShareLimit: 800, GPUs: 250},
		},
		{
			"Run:ai's limit of a fraction", newPod().withAnnotation("gpu-fraction", "0.5").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.95"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, ShareLimit: 950, GPUs: 500},
		},
		{
			"Run:ai's limit may be the whole GPU", newPod().withAnnotation("sluice.dev/gpu", "500m").withEnv("RUNAI_GPU_MEMORY_LIMIT", "1"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, ShareLimit: 1000, GPUs: 500},
		},
		{
			"Run:ai's limit of memory, in bytes", newPod().withAnnotation("gpu-memory", "2048").withEnv("RUNAI_GPU_MEMORY_LIMIT", "4294967296"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 2048, MemoryLimitMiB: 4096, GPUs: 1000},
		},
		{
			"Run:ai's limit of memory, with its unit", newPod().withAnnotation("gpu-memory", "2048").withEnv("RUNAI_GPU_MEMORY_LIMIT", "2500M"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 2048, MemoryLimitMiB: 2384, GPUs: 1000},
		},
		{
			"of two variables the last", newPod().withAnnotation("gpu-fraction", "0.5").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.6").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.7"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, ShareLimit: 700, GPUs: 500},
		},
		{
			"Run:ai's limit in another container", newPod().withAnnotation("gpu-fraction", "0.5").withContainer("logs").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.7"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500},
		},
		{"Run:ai's limit without a GPU", newPod().withEnv("RUNAI_GPU_MEMORY_LIMIT", "nonsense"), workload.Request{}},
		{
			"Run:ai's limit beside a whole GPU", newPod().withLimit("nvidia.com/gpu", "1").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.9"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},

		{
			"HAMi's memory", newPod().withLimit("nvidia.com/gpu", "2").withLimit("nvidia.com/gpumem", "8000"),
			workload.Request{Form: workload.FormMemory, Devices: 2, MemoryMiB: 8000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"HAMi's memory and cores in percent", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem-percentage", "50").withLimit("nvidia.com/gpucores", "30"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, ComputeShare: 300, GPUs: 500, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"HAMi's cores alone: the memory is whole", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpucores", "30"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, ComputeShare: 300, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"all of HAMi's memory", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem-percentage", "100"),
			workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},
		{
			"HAMi's memory is of each GPU and not added up", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000").
				withContainer("second").withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000"),
			workload.Request{Form: workload.FormMemory, Devices: 2, MemoryMiB: 8000, GPUs: 2000, Resources: singleAmount("nvidia.com/gpu", 2)},
		},
		{
			"Volcano's share", newPod().withLimit("volcano.sh/vgpu-number", "1").withLimit("volcano.sh/vgpu-memory", "3000").withLimit("volcano.sh/vgpu-cores", "50"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 3000, ComputeShare: 500, GPUs: 1000, Resources: singleAmount("volcano.sh/vgpu-number", 1)},
		},
		{
			"Koordinator's half", newPod().withLimit("koordinator.sh/gpu", "50"),
			workload.Request{Form: workload.FormShare, Devices: 1, Share: 500, GPUs: 500, Resources: singleAmount("koordinator.sh/gpu", 50)},
		},
		{
			"Koordinator's two", newPod().withLimit("koordinator.sh/gpu", "200"),
			workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("koordinator.sh/gpu", 200)},
		},
		{
			"a memory limit of HAMi's share", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000").withAnnotation("sluice.dev/gpu-memory-limit", "9000"),
			workload.Request{Form: workload.FormMemory, Devices: 1, MemoryMiB: 8000, MemoryLimitMiB: 9000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)},
		},

		{"the quota unit is ignored", newPod().withLimit("sluice.dev/gpu-milli", "500").withLimit("sluice.dev/gpu-milli.dgx-h100", "500"), workload.Request{}},
		{
			"other devices are distinguished by name", newPod().withLimit("rdma/hca", "1").withContainer("second").withLimit("nvidia.com/GA102GL_A10", "1").withLimit("rdma/hca", "1"),
			workload.Request{OtherResources: []string{"nvidia.com/GA102GL_A10", "rdma/hca"}},
		},
		{"huge pages and storage are no devices", newPod().withLimit("hugepages-2Mi", "4Mi").withLimit("ephemeral-storage", "1Gi"), workload.Request{}},
		{"DRA claims by name", newPod().withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{
				{Name: "gpu", ResourceClaimTemplateName: new("one-h100")}, {Name: "link", ResourceClaimName: new("imex")}, {Name: "neither"},
			}
		}), workload.Request{Claims: []workload.Claim{{Name: "gpu", Template: "one-h100"}, {Name: "link", Claim: "imex"}, {Name: "neither"}}}},
		{
			"DRA in the guise of an extended resource", newPod().withLimit("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "2").
				withContainer("second").withRequest("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1"),
			workload.Request{DeviceClasses: singleAmount("gpu.nvidia.com", 3)},
		},

		{"a type", newPod().withLabel("sluice.dev/workload-type", "interactive"), workload.Request{Type: v1alpha1.WorkloadInteractive}},
		{"a terminal", newPod().withChange(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].TTY = true }), workload.Request{HasTTY: true}},
		{"another container's terminal", newPod().withContainer("shell").withChange(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[1].TTY = true }), workload.Request{}},
		{"a Job's pod", newPod().withController("batch/v1", "Job"), workload.Request{Owner: workload.Owner{Group: "batch", Kind: "Job"}}},
		{"a core owner's pod", newPod().withController("v1", "ReplicationController"), workload.Request{Owner: workload.Owner{Kind: "ReplicationController"}}},
		{"pools", newPod().withAnnotation("sluice.dev/node-pools", "dgx-h100, dgx-a100 ,0"), workload.Request{NodePools: []string{"dgx-h100", "dgx-a100", "0"}}},
		{
			"a time limit", newPod().withAnnotation("sluice.dev/max-runtime", "1d12h"),
			workload.Request{MaxRuntime: period.MustParseDuration("1d12h"), MaxRuntimeSeconds: 36 * 3600},
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
			if got.RequestsGPU() != (tc.want.Form != "") {
				t.Errorf("AsksForGPU = %v", got.RequestsGPU())
			}
		})
	}
}

// A resource that a NodePool names is so many GPUs, and what the AdmissionParameters list is none. No list
// changes what Sluice knows.
func TestParseWithListedResources(t *testing.T) {
	listed := workload.NewListedResources([]v1alpha1.NodePool{
		{Spec: v1alpha1.NodePoolSpec{Resources: []v1alpha1.GPUResource{
			{Name: "amd.com/gpu", GPUs: resource.MustParse("1")},
			{Name: "nvidia.com/half", GPUs: resource.MustParse("500m")},
			{Name: "example.com/pair", GPUs: resource.MustParse("2")},
		}}},
		{Spec: v1alpha1.NodePoolSpec{Resources: []v1alpha1.GPUResource{{Name: "nvidia.com/half", GPUs: resource.MustParse("0.25")}}}},
	}, []v1alpha1.ResourcePattern{"rdma/*", "nvidia.com/gpu", "nvidia.com/mig-*"})
	for name, tc := range map[string]struct {
		resource corev1.ResourceName
		amount   string
		want     workload.Request
	}{
		"a GPU of another vendor":  {"amd.com/gpu", "2", workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 2000, Resources: singleAmount("amd.com/gpu", 2)}},
		"the largest of two parts": {"nvidia.com/half", "3", workload.Request{Form: workload.FormShare, Devices: 3, Share: 500, GPUs: 1500, Resources: singleAmount("nvidia.com/half", 3)}},
		"several GPUs":             {"example.com/pair", "2", workload.Request{Form: workload.FormWhole, Devices: 2, Share: 1000, GPUs: 4000, Resources: singleAmount("example.com/pair", 2)}},
		"what is no GPU":           {"rdma/hca", "1", workload.Request{}},
		"what no list knows":       {"nvidia.com/a100", "1", workload.Request{OtherResources: []string{"nvidia.com/a100"}}},
		"none of it":               {"nvidia.com/a100", "0", workload.Request{}},
		"a known GPU":              {"nvidia.com/gpu", "1", workload.Request{Form: workload.FormWhole, Devices: 1, Share: 1000, GPUs: 1000, Resources: singleAmount("nvidia.com/gpu", 1)}},
		"a known slice":            {"nvidia.com/mig-1g.5gb", "1", workload.Request{Form: workload.FormMIG, Devices: 1, MIGProfile: "1g.5gb", GPUs: 1000, Resources: singleAmount("nvidia.com/mig-1g.5gb", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := listed.Units().Parse(newPod().withLimit(tc.resource, tc.amount).PodTemplateSpec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(withDefaults(tc.want), got, withoutRequests, cmpopts.IgnoreFields(workload.Request{}, "Container")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	got, err := workload.Parse(newPod().withLimit("amd.com/gpu", "2").PodTemplateSpec)
	if err != nil || got.RequestsGPU() || len(got.OtherResources) != 1 {
		t.Errorf("the lists of one cluster changed the default: %+v, %v", got, err)
	}
}
