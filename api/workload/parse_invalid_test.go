// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/workload"
)

// invalidField is one entry of an error: the field, the value that is shown, and part
// of what is said to be allowed.
type invalidField struct{ field, value, detail string }

// invalidAnnotation is a fault of an annotation.
func invalidAnnotation(key, value, message string) invalidField {
	return invalidField{"metadata.annotations[" + key + "]", value, message}
}

// invalidLimit and request are faults of a resource of the first container.
func invalidLimit(name, value, message string) invalidField {
	return invalidField{"spec.containers[0].resources.limits[" + name + "]", value, message}
}

func invalidResourceRequest(name, value, message string) invalidField {
	return invalidField{"spec.containers[0].resources.requests[" + name + "]", value, message}
}

func TestParseRejectsInvalidRequests(t *testing.T) {
	const (
		decimal   = "must be a decimal from 0.001 to 0.999 with at most three decimals, such as 0.5; whole GPUs are requested as nvidia.com/gpu"
		quantity  = "must be a part of one GPU in thousandths such as 500m or 0.5, or whole GPUs such as 2"
		mebibytes = "must be MiB of one GPU's memory, a whole number from 1 to 16777216, such as 8192"
		devices   = "must be a whole number from 0 to 99999"
		notASlice = "is not a MIG profile; one looks like nvidia.com/mig-3g.40gb"
	)
	type refusal struct {
		name string
		pod  podTemplateBuilder
		want []invalidField
	}
	tests := []refusal{
		{
			"a fraction of a resource", newPod().withLimit("nvidia.com/gpu", "0.5"),
			[]invalidField{{"spec.containers[0].resources.limits[nvidia.com/gpu]", "500m", "remove it, and request a share of a GPU with the annotation sluice.dev/gpu: \"0.5\""}},
		},
		{
			"a whole GPU and a share", newPod().withLimit("nvidia.com/gpu", "1").withAnnotation("gpu-fraction", "0.5"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.5", `cannot go with spec.containers[0].resources.limits[nvidia.com/gpu], "1"; a pod requests GPUs by a resource or by an annotation, keep one of the two`)},
		},
		{
			"a slice and a share", newPod().withLimit("nvidia.com/mig-1g.5gb", "1").withAnnotation("gpu-fraction", "0.5"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.5", `cannot go with spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb], "1"`)},
		},
		{
			"a replica and memory", newPod().withLimit("nvidia.com/gpu.shared", "1").withAnnotation("gpu-memory", "100"),
			[]invalidField{invalidAnnotation("gpu-memory", "100", "cannot go with spec.containers[0].resources.limits[nvidia.com/gpu.shared]")},
		},
		{
			"HAMi's share and our own", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "100").withAnnotation("sluice.dev/gpu", "100m"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu", "100m", "cannot go with")},
		},
		{
			"a whole GPU on several devices", newPod().withLimit("nvidia.com/gpu", "1").withAnnotation("gpu-fraction-num-devices", "2"),
			[]invalidField{invalidAnnotation("gpu-fraction-num-devices", "2", "cannot go with")},
		},
		{
			"an init container's GPU and a share", newPod().withAnnotation("gpu-fraction", "0.5").withInitContainer("warm-up").withLimit("nvidia.com/gpu", "1"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.5", "cannot go with spec.initContainers[0].resources.limits[nvidia.com/gpu]")},
		},

		{
			"a fraction and memory", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-memory", "8192"),
			[]invalidField{invalidAnnotation("gpu-memory", "8192", `contradicts metadata.annotations[gpu-fraction], "0.5"; keep one of the two`)},
		},
		{
			"the same amount in two ways", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("sluice.dev/gpu", "500m"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.5", `repeats metadata.annotations[sluice.dev/gpu], "500m"; keep one of the two`)},
		},
		{
			"three ways at once", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("sluice.dev/gpu", "2").withAnnotation("gpu-memory", "1"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.5", "contradicts"), invalidAnnotation("gpu-memory", "1", "contradicts")},
		},

		{
			"whole GPUs on several devices", newPod().withAnnotation("sluice.dev/gpu", "2").withAnnotation("gpu-fraction-num-devices", "2"),
			[]invalidField{invalidAnnotation("gpu-fraction-num-devices", "2", `is for shares, and metadata.annotations[sluice.dev/gpu] requests whole GPUs, "2"`)},
		},
		{
			"several devices of nothing", newPod().withAnnotation("gpu-fraction-num-devices", "2"),
			[]invalidField{invalidAnnotation("gpu-fraction-num-devices", "2", "set the share, too, with gpu-fraction, gpu-memory or sluice.dev/gpu")},
		},
		{
			"a container that is not there", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-fraction-container-name", "Main"),
			[]invalidField{invalidAnnotation("gpu-fraction-container-name", "Main", "must be the name of one of the pod's containers or init containers")},
		},
		{
			"a share and a half", newPod().withAnnotation("sluice.dev/gpu", "1.5"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu", "1.5", `a share is on one GPU; request 2, or 750m with gpu-fraction-num-devices: "2"`)},
		},
		{
			"a third more than one", newPod().withAnnotation("sluice.dev/gpu", "1333m"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu", "1333m", `request 2, or 667m with gpu-fraction-num-devices: "2"`)},
		},
		{
			"a profile as an amount", newPod().withAnnotation("sluice.dev/gpu", "3g.40gb"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu", "3g.40gb", "is a MIG profile, which is requested in a container's limits: nvidia.com/mig-3g.40gb")},
		},
		{
			"a compute instance as an amount", newPod().withAnnotation("sluice.dev/gpu", "1c.3g.20gb"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu", "1c.3g.20gb", "1c.3g.20gb is a compute instance inside the GPU instance 3g.20gb; compute instances are not offered, request nvidia.com/mig-3g.20gb")},
		},
		{
			"more decimals than are counted", newPod().withAnnotation("gpu-fraction", "0.3333"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.3333", "has more than three decimals; write for example 0.334")},
		},
		{
			"more than three quarters of a thousandth", newPod().withAnnotation("gpu-fraction", "0.00075"),
			[]invalidField{invalidAnnotation("gpu-fraction", "0.00075", "has more than three decimals; write for example 0.001")},
		},

		{
			"a request without its limit", newPod().withRequest("nvidia.com/gpu", "1"),
			[]invalidField{invalidResourceRequest("nvidia.com/gpu", "1", "needs the same amount as limit, in spec.containers[0].resources.limits[nvidia.com/gpu]")},
		},
		{
			"a limit above its request", newPod().withLimit("nvidia.com/gpu", "2").withRequest("nvidia.com/gpu", "1"),
			[]invalidField{invalidResourceRequest("nvidia.com/gpu", "1", "must be the same as the limit, 2")},
		},
		{
			"a limit below its request", newPod().withLimit("nvidia.com/mig-1g.5gb", "1").withRequest("nvidia.com/mig-1g.5gb", "2"),
			[]invalidField{invalidResourceRequest("nvidia.com/mig-1g.5gb", "2", "must be the same as the limit, 1")},
		},
		{
			"more than a quota can hold", newPod().withLimit("nvidia.com/gpu", "60000").withContainer("second").withLimit("nvidia.com/gpu", "60000"),
			[]invalidField{invalidLimit("nvidia.com/gpu", "120000", "is the sum over the containers, and "+devices)},
		},
		{
			"more DRA devices than that", newPod().withRequest("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1e9"),
			[]invalidField{invalidResourceRequest("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1e9", devices)},
		},

		{
			"a compute instance", newPod().withLimit("nvidia.com/mig-1c.3g.20gb", "1"),
			[]invalidField{invalidLimit("nvidia.com/mig-1c.3g.20gb", "1", "1c.3g.20gb is a compute instance inside the GPU instance 3g.20gb; compute instances are not offered, request nvidia.com/mig-3g.20gb")},
		},
		{
			"a compute instance with media engines", newPod().withLimit("nvidia.com/mig-1c.1g.10gb.me", "1"),
			[]invalidField{invalidLimit("nvidia.com/mig-1c.1g.10gb.me", "1", "request nvidia.com/mig-1g.10gb.me")},
		},
		{
			"a replica of a slice", newPod().withLimit("nvidia.com/mig-1g.5gb.shared", "1"),
			[]invalidField{invalidLimit("nvidia.com/mig-1g.5gb.shared", "1", "is a replica of a MIG instance, which is not offered; request the instance, nvidia.com/mig-1g.5gb")},
		},
		{
			"two profiles", newPod().withLimit("nvidia.com/mig-1g.5gb", "2").withLimit("nvidia.com/mig-2g.10gb", "1"),
			[]invalidField{invalidLimit("nvidia.com/mig-2g.10gb", "1", "is a second MIG profile beside spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]; a pod uses one profile")},
		},
		{
			"an init container's other profile", newPod().withLimit("nvidia.com/mig-2g.10gb", "1").withInitContainer("warm-up").withLimit("nvidia.com/mig-1g.5gb", "1"),
			[]invalidField{invalidLimit("nvidia.com/mig-2g.10gb", "1", "is a second MIG profile beside spec.initContainers[0].resources.limits[nvidia.com/mig-1g.5gb]")},
		},
		{
			"whole GPUs and slices and replicas", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/mig-2g.10gb", "1").withLimit("nvidia.com/gpu.shared", "1"),
			[]invalidField{invalidLimit("nvidia.com/gpu.shared", "1", "is a second kind of GPU beside spec.containers[0].resources.limits[nvidia.com/gpu]"), invalidLimit("nvidia.com/mig-2g.10gb", "1", "is a second kind of GPU")},
		},

		{
			"HAMi's memory of how many GPUs", newPod().withLimit("nvidia.com/gpumem", "8000"),
			[]invalidField{invalidLimit("nvidia.com/gpumem", "8000", "the same container must request the number of GPUs as nvidia.com/gpu")},
		},
		{
			"HAMi's memory of no GPUs", newPod().withLimit("nvidia.com/gpu", "0").withLimit("nvidia.com/gpumem", "8000"),
			[]invalidField{invalidLimit("nvidia.com/gpumem", "8000", "must request the number of GPUs")},
		},
		{
			"HAMi's memory of replicas", newPod().withLimit("nvidia.com/gpu.shared", "1").withLimit("nvidia.com/gpumem", "8000"),
			[]invalidField{invalidLimit("nvidia.com/gpumem", "8000", "must request the number of GPUs")},
		},
		{
			"Volcano's memory of NVIDIA's GPUs", newPod().withLimit("nvidia.com/gpu", "1").withLimit("volcano.sh/vgpu-memory", "8000"),
			[]invalidField{invalidLimit("volcano.sh/vgpu-memory", "8000", "must request the number of GPUs as volcano.sh/vgpu-number")},
		},
		{
			"no memory of a GPU", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "0"),
			[]invalidField{invalidLimit("nvidia.com/gpumem", "0", "must be a whole number from 1 to 16777216")},
		},
		{
			"more than all its memory", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem-percentage", "101"),
			[]invalidField{invalidLimit("nvidia.com/gpumem-percentage", "101", "must be a whole number from 1 to 100")},
		},
		{
			"none of its cores", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpucores", "0"),
			[]invalidField{invalidLimit("nvidia.com/gpucores", "0", "must be a whole number from 1 to 100")},
		},
		{
			"memory in MiB and in percent", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000").withLimit("nvidia.com/gpumem-percentage", "50"),
			[]invalidField{invalidLimit("nvidia.com/gpu", "1", "has its memory both in MiB and in percent")},
		},
		{
			"containers with different shares", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000").
				withContainer("second").withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem-percentage", "50").withLimit("nvidia.com/gpucores", "10"),
			[]invalidField{{"spec.containers[1].resources.limits[nvidia.com/gpu]", "1", "is for 50 % of each GPU's memory with 10 % of its compute, in spec.containers[0] for 8000 MiB of each GPU; all containers of a pod must request the same"}},
		},
		{
			"a share in one container, whole GPUs in the other", newPod().withLimit("nvidia.com/gpu", "1").withLimit("nvidia.com/gpumem", "8000").
				withContainer("second").withLimit("nvidia.com/gpu", "1"),
			[]invalidField{{"spec.containers[1].resources.limits[nvidia.com/gpu]", "1", "is for whole GPUs, in spec.containers[0] for 8000 MiB of each GPU"}},
		},
		{
			"Koordinator's one and a half", newPod().withLimit("koordinator.sh/gpu", "150"),
			[]invalidField{invalidLimit("koordinator.sh/gpu", "150", "must be less than 100 or whole hundreds: a share is on one GPU")},
		},
		{
			"Koordinator's finer resources", newPod().withLimit("koordinator.sh/gpu-core", "50").withRequest("koordinator.sh/gpu-memory", "8Gi"),
			[]invalidField{
				invalidLimit("koordinator.sh/gpu-core", "50", "is not supported; request whole GPUs as nvidia.com/gpu, and a share of one with the annotation sluice.dev/gpu"),
				invalidResourceRequest("koordinator.sh/gpu-memory", "8Gi", "needs the same amount as limit"),
			},
		},

		{"a GPU for the whole pod", newPod().withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.Resources = &corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "rdma/hca": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")},
			}
		}), []invalidField{{"spec.resources.limits[nvidia.com/gpu]", "1", "request them in a container's resources"}}},
		{"a GPU for an ephemeral container", newPod().withChange(func(p *corev1.PodTemplateSpec) {
			shell, debugger := corev1.EphemeralContainer{}, corev1.EphemeralContainer{}
			shell.Name, debugger.Name = "shell", "debugger"
			debugger.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
			debugger.Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("1")}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{shell, debugger}
		}), []invalidField{
			{"spec.ephemeralContainers[1].resources.limits[nvidia.com/mig-1g.5gb]", "1", "ephemeral containers cannot have GPUs"},
			{"spec.ephemeralContainers[1].resources.requests[nvidia.com/gpu]", "1", "ephemeral containers cannot have GPUs"},
		}},

		{"one name twice", newPod().withContainer("main"), []invalidField{
			{"spec.containers[1].name", "main", "it is the name of spec.containers[0]; every container needs its own"},
		}},
		{"one name twice, in different lists", newPod().withInitContainer("main").withSidecar("logs").withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
			p.Spec.EphemeralContainers[0].Name = "logs"
		}), []invalidField{
			{"spec.initContainers[0].name", "main", "it is the name of spec.containers[0]"},
			{"spec.ephemeralContainers[0].name", "logs", "it is the name of spec.initContainers[1]"},
		}},
		{"no names", newPod().withContainer("").withInitContainer("").withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
		}), []invalidField{
			{"spec.containers[1].name", "", "every container needs a name"},
			{"spec.initContainers[0].name", "", "every container needs a name"},
			{"spec.ephemeralContainers[0].name", "", "every container needs a name"},
		}},
		{"a long name twice", newPod().withContainer(strings.Repeat("a", 500)).withContainer(strings.Repeat("a", 500)), []invalidField{
			{"spec.containers[2].name", strings.Repeat("a", 500), "it is the name of spec.containers[1]"},
		}},

		{
			"a limit below the memory", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "8191"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu-memory-limit", "8191", "must not be below the 8192 MiB that are requested")},
		},
		{
			"a limit below the memory, in bytes", newPod().withAnnotation("gpu-memory", "8192").withEnv("RUNAI_GPU_MEMORY_LIMIT", "8192M"),
			[]invalidField{{"spec.containers[0].env[0].value", "8192M", "must not be below the 8192 MiB that are requested"}},
		},
		{
			"a limit below the fraction", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-fraction.limit", "0.4"),
			[]invalidField{invalidAnnotation("gpu-fraction.limit", "0.4", "must not be below the 0.5 of a GPU that is requested")},
		},
		{
			"a limit above the GPU", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-fraction.limit", "1.1"),
			[]invalidField{invalidAnnotation("gpu-fraction.limit", "1.1", "must be a decimal from 0.001 to 1 with at most three decimals")},
		},
		{
			"two limits", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-memory.limit", "16Gi").withAnnotation("sluice.dev/gpu-memory-limit", "16384").withEnv("RUNAI_GPU_MEMORY_LIMIT", "20Gi"),
			[]invalidField{
				invalidAnnotation("gpu-memory.limit", "16Gi", "repeats metadata.annotations[sluice.dev/gpu-memory-limit]"),
				{"spec.containers[0].env[0].value", "20Gi", "contradicts metadata.annotations[sluice.dev/gpu-memory-limit]"},
			},
		},
		{
			"a limit of nothing", newPod().withAnnotation("sluice.dev/gpu-memory-limit", "16384"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu-memory-limit", "16384", "limits the memory of a share of a GPU; request one with gpu-fraction, gpu-memory or sluice.dev/gpu, or remove the limit")},
		},
		{
			"a limit of a slice", newPod().withLimit("nvidia.com/mig-1g.5gb", "1").withAnnotation("gpu-memory.limit", "5000"),
			[]invalidField{invalidAnnotation("gpu-memory.limit", "5000", "limits the memory of a share of a GPU")},
		},
		{
			"a limit of a share that is none: one fault, not two", newPod().withAnnotation("gpu-fraction", "x").withAnnotation("gpu-fraction.limit", "0.5"),
			[]invalidField{invalidAnnotation("gpu-fraction", "x", decimal)},
		},
		{
			"a limit in gigabytes", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "16Gi"),
			[]invalidField{invalidAnnotation("sluice.dev/gpu-memory-limit", "16Gi", "must be MiB of one GPU's memory, a whole number")},
		},
		{
			"KAI's limit in bytes", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("gpu-memory.limit", "17592186044416000"),
			[]invalidField{invalidAnnotation("gpu-memory.limit", "17592186044416000", "or a quantity with its unit such as 16Gi, at most 16Ti")},
		},
		{
			"Run:ai's limit of a fraction as memory", newPod().withAnnotation("gpu-fraction", "0.5").withEnv("X", "y").withEnv("RUNAI_GPU_MEMORY_LIMIT", "20Gi"),
			[]invalidField{{"spec.containers[0].env[1].value", "20Gi", "RUNAI_GPU_MEMORY_LIMIT must be a decimal from 0.001 to 1"}},
		},
		{
			"Run:ai's limit of memory as a fraction", newPod().withAnnotation("gpu-memory", "8192").withEnv("RUNAI_GPU_MEMORY_LIMIT", "0.9"),
			[]invalidField{{"spec.containers[0].env[0].value", "0.9", "RUNAI_GPU_MEMORY_LIMIT must be, of memory, a quantity of bytes"}},
		},
		{"Run:ai's limit from elsewhere", newPod().withAnnotation("gpu-memory", "8192").withChange(func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "RUNAI_GPU_MEMORY_LIMIT", ValueFrom: &corev1.EnvVarSource{}}}
		}), []invalidField{{"spec.containers[0].env[0].value", "", "must be a literal value, not valueFrom"}}},

		{
			"KAI's own word instead of the author's", newPod().withAnnotation("nvidia.com/container.main.gpu-memory.request", "8Gi").withAnnotation("nvidia.com/container.main.gpu-memory.limit", "9Gi"),
			[]invalidField{
				invalidAnnotation("nvidia.com/container.main.gpu-memory.limit", "9Gi", "is written by KAI-Scheduler; set gpu-memory.limit instead"),
				invalidAnnotation("nvidia.com/container.main.gpu-memory.request", "8Gi", "is written by KAI-Scheduler; set gpu-memory instead"),
			},
		},
		{
			"KAI's own word beside a fraction", newPod().withAnnotation("gpu-fraction", "0.1").withAnnotation("nvidia.com/container.main.gpu-memory.request", "80Gi"),
			[]invalidField{invalidAnnotation("nvidia.com/container.main.gpu-memory.request", "80Gi", "set gpu-memory instead")},
		},
		{
			"KAI's own word beside the author's", newPod().withAnnotation("gpu-memory", "8192").withAnnotation("nvidia.com/container.main.gpu-memory.request", "8Gi"),
			[]invalidField{invalidAnnotation("nvidia.com/container.main.gpu-memory.request", "8Gi", "remove it, metadata.annotations[gpu-memory] is enough")},
		},

		{"an empty pool", newPod().withAnnotation("sluice.dev/node-pools", "a,,b"), []invalidField{invalidAnnotation("sluice.dev/node-pools", "a,,b", "has an empty name")}},
		{"no pools", newPod().withAnnotation("sluice.dev/node-pools", ""), []invalidField{invalidAnnotation("sluice.dev/node-pools", "", "has an empty name")}},
		{"a pool twice", newPod().withAnnotation("sluice.dev/node-pools", "a,b, a"), []invalidField{invalidAnnotation("sluice.dev/node-pools", "a", "is named twice")}},
		{"names that no pool has", newPod().withAnnotation("sluice.dev/node-pools", "A100,-a,a-,a.b,"+strings.Repeat("a", 54)), []invalidField{
			invalidAnnotation("sluice.dev/node-pools", "A100", "lower-case letters, digits and hyphens, at most 46"), invalidAnnotation("sluice.dev/node-pools", "-a", "lower-case"),
			invalidAnnotation("sluice.dev/node-pools", "a-", "lower-case"), invalidAnnotation("sluice.dev/node-pools", "a.b", "lower-case"),
			invalidAnnotation("sluice.dev/node-pools", strings.Repeat("a", 54), "lower-case"),
		}},
		{"too many pools", newPod().withAnnotation("sluice.dev/node-pools", "a,b,c,d,e,f,g,h,i,j,k"), []invalidField{invalidAnnotation("sluice.dev/node-pools", "a,b,c,d,e,f,g,h,i,j,k", "names 11 node pools; at most 10 can be named")}},
		{"all at once", newPod().withLimit("nvidia.com/gpu", "-1").withAnnotation("gpu-fraction", "2").withLabel("sluice.dev/workload-type", "batch").withAnnotation("sluice.dev/max-runtime", "1w"), []invalidField{
			invalidLimit("nvidia.com/gpu", "-1", devices),
			invalidAnnotation("gpu-fraction", "2", decimal),
			{"metadata.labels[sluice.dev/workload-type]", "batch", "must be one of train, interactive, inference"},
			invalidAnnotation("sluice.dev/max-runtime", "1w", "must be whole numbers of d, h, m and s in this order, longer than zero, such as 30m, 6h or 1d12h"),
		}},
	}
	add := func(name string, p podTemplateBuilder, want invalidField) {
		tests = append(tests, refusal{fmt.Sprintf("%s %.20q", name, want.value), p, []invalidField{want}})
	}
	for _, text := range []string{
		"", "0", "0.0", "0.000", "1", "1.0", "1.7", "2", "-0.5", "+0.5", "abc", "NaN", "inf", "1e-3", "5E-1", "0x1p-1", "0.5 ", " 0.5", "0.5\n", "0,5", "500m", "0.5Gi", ".", "0.5.5", "٠.٥", "1_0",
		"99999999999999999999999999", strings.Repeat("9", 60),
	} {
		add("fraction", newPod().withAnnotation("gpu-fraction", text), invalidAnnotation("gpu-fraction", text, decimal))
	}
	for _, text := range []string{
		"", "0", "0m", "-1", "-500m", "+1", "m", "0.5m", "500 m", "500M", "1k", "1Ki", "1e3", "500u", "0.0001", "0.3333", "1.0001", "abc", "NaN", "100000", "99999001m", strings.Repeat("9", 40), "3g", "3g.40", "9g.40gb",
	} {
		add("sluice.dev/gpu", newPod().withAnnotation("sluice.dev/gpu", text), invalidAnnotation("sluice.dev/gpu", text, quantity))
	}
	for _, text := range []string{"", "0", "-1", "+1", "8192.0", "8Gi", "8192Mi", "20G", "abc", "NaN", "1e3", " 8192", "16777217", "17179869184", strings.Repeat("9", 30)} {
		add("memory", newPod().withAnnotation("gpu-memory", text), invalidAnnotation("gpu-memory", text, mebibytes))
	}
	for _, text := range []string{"", "0", "-1", "1.0", "two", "100000", "1e1"} {
		add("devices", newPod().withAnnotation("gpu-fraction", "0.5").withAnnotation("gpu-fraction-num-devices", text), invalidAnnotation("gpu-fraction-num-devices", text, "must be a number of GPUs from 1 to 99999"))
	}
	for _, text := range []string{"-1", "500m", "1.5", "100000", "1e18", "-1e18", "9e30", "1n"} {
		q := resource.MustParse(text)
		add("GPUs", newPod().withLimit("nvidia.com/gpu", text), invalidLimit("nvidia.com/gpu", q.String(), devices))
	}
	for _, text := range []string{"", "foo", "3g", "3g.40", "0g.5gb", "9g.5gb", "3g.40GB", "3g.gb", "3g.12345gb", "3g.40gb.", "3g.40gb+me", "3g.40gbme", "3g.40gb-gfx", "3g.40gb.me.all.x", "3g.40gb.aaaaaaaaaaaaaaaaaaaa", "c.3g.20gb", "xc.3g.20gb", "1c.9g.20gb", "gpu"} {
		name := "nvidia.com/mig-" + text
		tests = append(tests, refusal{"slice " + name, newPod().withLimit(corev1.ResourceName(name), "1"), []invalidField{invalidLimit(name, "1", notASlice)}})
	}
	for _, text := range []string{"", "Train", "training", " train", "*"} {
		add("type", newPod().withLabel("sluice.dev/workload-type", text), invalidField{"metadata.labels[sluice.dev/workload-type]", text, "must be one of train, interactive, inference"})
	}
	for _, text := range []string{"", "0", "6", "6x", "-6h", "1.5h", "500ms", "PT6H", "6h "} {
		add("time", newPod().withAnnotation("sluice.dev/max-runtime", text), invalidAnnotation("sluice.dev/max-runtime", text, "must be whole numbers of d, h, m and s"))
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := workload.Parse(tc.pod.PodTemplateSpec)
			var malformed workload.InvalidRequest
			if !errors.As(err, &malformed) {
				t.Fatalf("got %+v and error %v, want Malformed", got, err)
			}
			if diff := cmp.Diff(workload.Request{}, got); diff != "" {
				t.Errorf("a request beside the error: %s", diff)
			}
			if len(malformed) != len(tc.want) {
				t.Fatalf("got %d faults, want %d:\n%v", len(malformed), len(tc.want), err)
			}
			for i, want := range tc.want {
				has := malformed[i]
				value := want.value
				if len(value) > 64 {
					value = value[:64] + "..."
				}
				if has.Field != want.field || has.BadValue != value || !strings.Contains(has.Detail, want.detail) {
					t.Errorf("fault %d:\n got %v\nwant %s: %q: %s", i, has, want.field, value, want.detail)
				}
			}
		})
	}
}
