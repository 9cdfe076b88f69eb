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

// fault is one entry of an error: the field, the value that is shown, and part
// of what is said to be allowed.
type fault struct{ field, value, says string }

// annotation is a fault of an annotation.
func annotation(key, value, says string) fault {
	return fault{"metadata.annotations[" + key + "]", value, says}
}

// limit and request are faults of a resource of the first container.
func limit(name, value, says string) fault {
	return fault{"spec.containers[0].resources.limits[" + name + "]", value, says}
}

func request(name, value, says string) fault {
	return fault{"spec.containers[0].resources.requests[" + name + "]", value, says}
}

func TestParseRefuses(t *testing.T) {
	const (
		decimal   = "must be a decimal from 0.001 to 0.999 with at most three decimals, such as 0.5; whole GPUs are asked for as nvidia.com/gpu"
		quantity  = "must be a part of one GPU in thousandths such as 500m or 0.5, or whole GPUs such as 2"
		mebibytes = "must be MiB of one GPU's memory, a whole number from 1 to 16777216, such as 8192"
		devices   = "must be a whole number from 0 to 99999"
		notASlice = "is not a MIG profile; one looks like nvidia.com/mig-3g.40gb"
	)
	type refusal struct {
		name string
		pod  template
		want []fault
	}
	tests := []refusal{
		{
			"a whole GPU and a share", pod().asking("nvidia.com/gpu", "1").annotated("gpu-fraction", "0.5"),
			[]fault{annotation("gpu-fraction", "0.5", `cannot go with spec.containers[0].resources.limits[nvidia.com/gpu], "1"; a pod asks for GPUs by a resource or by an annotation, keep one of the two`)},
		},
		{
			"a slice and a share", pod().asking("nvidia.com/mig-1g.5gb", "1").annotated("gpu-fraction", "0.5"),
			[]fault{annotation("gpu-fraction", "0.5", `cannot go with spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb], "1"`)},
		},
		{
			"a replica and memory", pod().asking("nvidia.com/gpu.shared", "1").annotated("gpu-memory", "100"),
			[]fault{annotation("gpu-memory", "100", "cannot go with spec.containers[0].resources.limits[nvidia.com/gpu.shared]")},
		},
		{
			"HAMi's share and our own", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem", "100").annotated("sluice.dev/gpu", "100m"),
			[]fault{annotation("sluice.dev/gpu", "100m", "cannot go with")},
		},
		{
			"a whole GPU on several devices", pod().asking("nvidia.com/gpu", "1").annotated("gpu-fraction-num-devices", "2"),
			[]fault{annotation("gpu-fraction-num-devices", "2", "cannot go with")},
		},
		{
			"an init container's GPU and a share", pod().annotated("gpu-fraction", "0.5").init("warm-up").asking("nvidia.com/gpu", "1"),
			[]fault{annotation("gpu-fraction", "0.5", "cannot go with spec.initContainers[0].resources.limits[nvidia.com/gpu]")},
		},

		{
			"a fraction and memory", pod().annotated("gpu-fraction", "0.5").annotated("gpu-memory", "8192"),
			[]fault{annotation("gpu-memory", "8192", `says otherwise than metadata.annotations[gpu-fraction], "0.5"; keep one of the two`)},
		},
		{
			"the same amount in two ways", pod().annotated("gpu-fraction", "0.5").annotated("sluice.dev/gpu", "500m"),
			[]fault{annotation("gpu-fraction", "0.5", `says the same again as metadata.annotations[sluice.dev/gpu], "500m"; keep one of the two`)},
		},
		{
			"three ways at once", pod().annotated("gpu-fraction", "0.5").annotated("sluice.dev/gpu", "2").annotated("gpu-memory", "1"),
			[]fault{annotation("gpu-fraction", "0.5", "says otherwise than"), annotation("gpu-memory", "1", "says otherwise than")},
		},

		{
			"whole GPUs on several devices", pod().annotated("sluice.dev/gpu", "2").annotated("gpu-fraction-num-devices", "2"),
			[]fault{annotation("gpu-fraction-num-devices", "2", `is for shares, and metadata.annotations[sluice.dev/gpu] asks for whole GPUs, "2"`)},
		},
		{
			"several devices of nothing", pod().annotated("gpu-fraction-num-devices", "2"),
			[]fault{annotation("gpu-fraction-num-devices", "2", "say the share too, by gpu-fraction, gpu-memory or sluice.dev/gpu")},
		},
		{
			"a container that is not there", pod().annotated("gpu-fraction", "0.5").annotated("gpu-fraction-container-name", "Main"),
			[]fault{annotation("gpu-fraction-container-name", "Main", "must be the name of one of the pod's containers or init containers")},
		},
		{
			"a share and a half", pod().annotated("sluice.dev/gpu", "1.5"),
			[]fault{annotation("sluice.dev/gpu", "1.5", `a part lies on one GPU; ask for 2, or for 750m with gpu-fraction-num-devices: "2"`)},
		},
		{
			"a third more than one", pod().annotated("sluice.dev/gpu", "1333m"),
			[]fault{annotation("sluice.dev/gpu", "1333m", `ask for 2, or for 667m with gpu-fraction-num-devices: "2"`)},
		},
		{
			"a profile as an amount", pod().annotated("sluice.dev/gpu", "3g.40gb"),
			[]fault{annotation("sluice.dev/gpu", "3g.40gb", "is a MIG profile, which is asked for in a container's limits: nvidia.com/mig-3g.40gb")},
		},
		{
			"a compute instance as an amount", pod().annotated("sluice.dev/gpu", "1c.3g.20gb"),
			[]fault{annotation("sluice.dev/gpu", "1c.3g.20gb", "1c.3g.20gb is a compute instance inside the GPU instance 3g.20gb; compute instances are not offered, ask for nvidia.com/mig-3g.20gb")},
		},
		{
			"more decimals than are counted", pod().annotated("gpu-fraction", "0.3333"),
			[]fault{annotation("gpu-fraction", "0.3333", "has more than three decimals; write for example 0.334")},
		},
		{
			"more than three quarters of a thousandth", pod().annotated("gpu-fraction", "0.00075"),
			[]fault{annotation("gpu-fraction", "0.00075", "has more than three decimals; write for example 0.001")},
		},

		{
			"a request without its limit", pod().request("nvidia.com/gpu", "1"),
			[]fault{request("nvidia.com/gpu", "1", "needs the same amount as limit, in spec.containers[0].resources.limits[nvidia.com/gpu]")},
		},
		{
			"a limit above its request", pod().asking("nvidia.com/gpu", "2").request("nvidia.com/gpu", "1"),
			[]fault{request("nvidia.com/gpu", "1", "must be the same as the limit, 2")},
		},
		{
			"a limit below its request", pod().asking("nvidia.com/mig-1g.5gb", "1").request("nvidia.com/mig-1g.5gb", "2"),
			[]fault{request("nvidia.com/mig-1g.5gb", "2", "must be the same as the limit, 1")},
		},
		{
			"more than a quota can hold", pod().asking("nvidia.com/gpu", "60000").container("second").asking("nvidia.com/gpu", "60000"),
			[]fault{limit("nvidia.com/gpu", "120000", "is the sum over the containers, and "+devices)},
		},
		{
			"more DRA devices than that", pod().request("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1e9"),
			[]fault{request("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1e9", devices)},
		},

		{
			"a compute instance", pod().asking("nvidia.com/mig-1c.3g.20gb", "1"),
			[]fault{limit("nvidia.com/mig-1c.3g.20gb", "1", "1c.3g.20gb is a compute instance inside the GPU instance 3g.20gb; compute instances are not offered, ask for nvidia.com/mig-3g.20gb")},
		},
		{
			"a compute instance with media engines", pod().asking("nvidia.com/mig-1c.1g.10gb.me", "1"),
			[]fault{limit("nvidia.com/mig-1c.1g.10gb.me", "1", "ask for nvidia.com/mig-1g.10gb.me")},
		},
		{
			"a replica of a slice", pod().asking("nvidia.com/mig-1g.5gb.shared", "1"),
			[]fault{limit("nvidia.com/mig-1g.5gb.shared", "1", "is a replica of a MIG slice, which is not offered; ask for the slice, nvidia.com/mig-1g.5gb")},
		},
		{
			"two profiles", pod().asking("nvidia.com/mig-1g.5gb", "2").asking("nvidia.com/mig-2g.10gb", "1"),
			[]fault{limit("nvidia.com/mig-2g.10gb", "1", "is a second MIG profile beside spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]; the slices of a pod are of one profile")},
		},
		{
			"an init container's other profile", pod().asking("nvidia.com/mig-2g.10gb", "1").init("warm-up").asking("nvidia.com/mig-1g.5gb", "1"),
			[]fault{limit("nvidia.com/mig-2g.10gb", "1", "is a second MIG profile beside spec.initContainers[0].resources.limits[nvidia.com/mig-1g.5gb]")},
		},
		{
			"whole GPUs and slices and replicas", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/mig-2g.10gb", "1").asking("nvidia.com/gpu.shared", "1"),
			[]fault{limit("nvidia.com/gpu.shared", "1", "is a second kind of GPU beside spec.containers[0].resources.limits[nvidia.com/gpu]"), limit("nvidia.com/mig-2g.10gb", "1", "is a second kind of GPU")},
		},

		{
			"HAMi's memory of how many GPUs", pod().asking("nvidia.com/gpumem", "8000"),
			[]fault{limit("nvidia.com/gpumem", "8000", "the same container must say how many, as nvidia.com/gpu")},
		},
		{
			"HAMi's memory of no GPUs", pod().asking("nvidia.com/gpu", "0").asking("nvidia.com/gpumem", "8000"),
			[]fault{limit("nvidia.com/gpumem", "8000", "must say how many")},
		},
		{
			"HAMi's memory of replicas", pod().asking("nvidia.com/gpu.shared", "1").asking("nvidia.com/gpumem", "8000"),
			[]fault{limit("nvidia.com/gpumem", "8000", "must say how many")},
		},
		{
			"Volcano's memory of NVIDIA's GPUs", pod().asking("nvidia.com/gpu", "1").asking("volcano.sh/vgpu-memory", "8000"),
			[]fault{limit("volcano.sh/vgpu-memory", "8000", "must say how many, as volcano.sh/vgpu-number")},
		},
		{
			"no memory of a GPU", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem", "0"),
			[]fault{limit("nvidia.com/gpumem", "0", "must be a whole number from 1 to 16777216")},
		},
		{
			"more than all its memory", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem-percentage", "101"),
			[]fault{limit("nvidia.com/gpumem-percentage", "101", "must be a whole number from 1 to 100")},
		},
		{
			"none of its cores", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpucores", "0"),
			[]fault{limit("nvidia.com/gpucores", "0", "must be a whole number from 1 to 100")},
		},
		{
			"memory in MiB and in percent", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem", "8000").asking("nvidia.com/gpumem-percentage", "50"),
			[]fault{limit("nvidia.com/gpu", "1", "has its memory both in MiB and in percent")},
		},
		{
			"containers with different shares", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem", "8000").
				container("second").asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem-percentage", "50").asking("nvidia.com/gpucores", "10"),
			[]fault{{"spec.containers[1].resources.limits[nvidia.com/gpu]", "1", "is for 50 % of each GPU's memory with 10 % of its compute, in spec.containers[0] for 8000 MiB of each GPU; all containers of a pod ask for the same"}},
		},
		{
			"a share in one container, whole GPUs in the other", pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpumem", "8000").
				container("second").asking("nvidia.com/gpu", "1"),
			[]fault{{"spec.containers[1].resources.limits[nvidia.com/gpu]", "1", "is for whole GPUs, in spec.containers[0] for 8000 MiB of each GPU"}},
		},
		{
			"Koordinator's one and a half", pod().asking("koordinator.sh/gpu", "150"),
			[]fault{limit("koordinator.sh/gpu", "150", "must be less than 100 or whole hundreds: a part lies on one GPU")},
		},
		{
			"Koordinator's finer resources", pod().asking("koordinator.sh/gpu-core", "50").request("koordinator.sh/gpu-memory", "8Gi"),
			[]fault{
				limit("koordinator.sh/gpu-core", "50", "is not read here; ask for whole GPUs as nvidia.com/gpu, for a part of one by the annotation sluice.dev/gpu"),
				request("koordinator.sh/gpu-memory", "8Gi", "needs the same amount as limit"),
			},
		},

		{"a GPU for the whole pod", pod().with(func(p *corev1.PodTemplateSpec) {
			p.Spec.Resources = &corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "rdma/hca": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")},
			}
		}), []fault{{"spec.resources.limits[nvidia.com/gpu]", "1", "ask for them in a container's resources"}}},
		{"a GPU for an ephemeral container", pod().with(func(p *corev1.PodTemplateSpec) {
			shell, debugger := corev1.EphemeralContainer{}, corev1.EphemeralContainer{}
			shell.Name, debugger.Name = "shell", "debugger"
			debugger.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
			debugger.Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("1")}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{shell, debugger}
		}), []fault{
			{"spec.ephemeralContainers[1].resources.limits[nvidia.com/mig-1g.5gb]", "1", "ephemeral containers cannot have GPUs"},
			{"spec.ephemeralContainers[1].resources.requests[nvidia.com/gpu]", "1", "ephemeral containers cannot have GPUs"},
		}},

		{"one name twice", pod().container("main"), []fault{
			{"spec.containers[1].name", "main", "it is that of spec.containers[0]; every container needs its own"},
		}},
		{"one name twice, in different lists", pod().init("main").sidecar("logs").with(func(p *corev1.PodTemplateSpec) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
			p.Spec.EphemeralContainers[0].Name = "logs"
		}), []fault{
			{"spec.initContainers[0].name", "main", "it is that of spec.containers[0]"},
			{"spec.ephemeralContainers[0].name", "logs", "it is that of spec.initContainers[1]"},
		}},
		{"no names", pod().container("").init("").with(func(p *corev1.PodTemplateSpec) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
		}), []fault{
			{"spec.containers[1].name", "", "every container needs a name"},
			{"spec.initContainers[0].name", "", "every container needs a name"},
			{"spec.ephemeralContainers[0].name", "", "every container needs a name"},
		}},
		{"a long name twice", pod().container(strings.Repeat("a", 500)).container(strings.Repeat("a", 500)), []fault{
			{"spec.containers[2].name", strings.Repeat("a", 500), "it is that of spec.containers[1]"},
		}},

		{
			"a limit below the memory", pod().annotated("gpu-memory", "8192").annotated("sluice.dev/gpu-memory-limit", "8191"),
			[]fault{annotation("sluice.dev/gpu-memory-limit", "8191", "must not be below the 8192 MiB that are asked for")},
		},
		{
			"a limit below the memory, in bytes", pod().annotated("gpu-memory", "8192").env("RUNAI_GPU_MEMORY_LIMIT", "8192M"),
			[]fault{{"spec.containers[0].env[0].value", "8192M", "must not be below the 8192 MiB that are asked for"}},
		},
		{
			"a limit below the fraction", pod().annotated("gpu-fraction", "0.5").annotated("gpu-fraction.limit", "0.4"),
			[]fault{annotation("gpu-fraction.limit", "0.4", "must not be below the 0.5 of a GPU that is asked for")},
		},
		{
			"a limit above the GPU", pod().annotated("gpu-fraction", "0.5").annotated("gpu-fraction.limit", "1.1"),
			[]fault{annotation("gpu-fraction.limit", "1.1", "must be a decimal from 0.001 to 1 with at most three decimals")},
		},
		{
			"two limits", pod().annotated("gpu-memory", "8192").annotated("gpu-memory.limit", "16Gi").annotated("sluice.dev/gpu-memory-limit", "16384").env("RUNAI_GPU_MEMORY_LIMIT", "20Gi"),
			[]fault{
				annotation("gpu-memory.limit", "16Gi", "says the same again as metadata.annotations[sluice.dev/gpu-memory-limit]"),
				{"spec.containers[0].env[0].value", "20Gi", "says otherwise than metadata.annotations[sluice.dev/gpu-memory-limit]"},
			},
		},
		{
			"a limit of nothing", pod().annotated("sluice.dev/gpu-memory-limit", "16384"),
			[]fault{annotation("sluice.dev/gpu-memory-limit", "16384", "limits the memory of a share of a GPU; ask for one, by gpu-fraction, gpu-memory or sluice.dev/gpu, or take the limit out")},
		},
		{
			"a limit of a slice", pod().asking("nvidia.com/mig-1g.5gb", "1").annotated("gpu-memory.limit", "5000"),
			[]fault{annotation("gpu-memory.limit", "5000", "limits the memory of a share of a GPU")},
		},
		{
			"a limit of a share that is none: one fault, not two", pod().annotated("gpu-fraction", "x").annotated("gpu-fraction.limit", "0.5"),
			[]fault{annotation("gpu-fraction", "x", decimal)},
		},
		{
			"a limit in gigabytes", pod().annotated("gpu-memory", "8192").annotated("sluice.dev/gpu-memory-limit", "16Gi"),
			[]fault{annotation("sluice.dev/gpu-memory-limit", "16Gi", "must be MiB of one GPU's memory, a whole number")},
		},
		{
			"KAI's limit in bytes", pod().annotated("gpu-memory", "8192").annotated("gpu-memory.limit", "17592186044416000"),
			[]fault{annotation("gpu-memory.limit", "17592186044416000", "or a quantity with its unit such as 16Gi, at most 16Ti")},
		},
		{
			"Run:ai's limit of a fraction as memory", pod().annotated("gpu-fraction", "0.5").env("X", "y").env("RUNAI_GPU_MEMORY_LIMIT", "20Gi"),
			[]fault{{"spec.containers[0].env[1].value", "20Gi", "RUNAI_GPU_MEMORY_LIMIT must be a decimal from 0.001 to 1"}},
		},
		{
			"Run:ai's limit of memory as a fraction", pod().annotated("gpu-memory", "8192").env("RUNAI_GPU_MEMORY_LIMIT", "0.9"),
			[]fault{{"spec.containers[0].env[0].value", "0.9", "RUNAI_GPU_MEMORY_LIMIT must be, of memory, a quantity of bytes"}},
		},
		{"Run:ai's limit from elsewhere", pod().annotated("gpu-memory", "8192").with(func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "RUNAI_GPU_MEMORY_LIMIT", ValueFrom: &corev1.EnvVarSource{}}}
		}), []fault{{"spec.containers[0].env[0].value", "", "must be written out, not taken from elsewhere by valueFrom"}}},

		{
			"KAI's own word instead of the author's", pod().annotated("nvidia.com/container.main.gpu-memory.request", "8Gi").annotated("nvidia.com/container.main.gpu-memory.limit", "9Gi"),
			[]fault{
				annotation("nvidia.com/container.main.gpu-memory.limit", "9Gi", "is for KAI-Scheduler to write; say it by gpu-memory.limit instead"),
				annotation("nvidia.com/container.main.gpu-memory.request", "8Gi", "is for KAI-Scheduler to write; say it by gpu-memory instead"),
			},
		},
		{
			"KAI's own word beside a fraction", pod().annotated("gpu-fraction", "0.1").annotated("nvidia.com/container.main.gpu-memory.request", "80Gi"),
			[]fault{annotation("nvidia.com/container.main.gpu-memory.request", "80Gi", "say it by gpu-memory instead")},
		},
		{
			"KAI's own word beside the author's", pod().annotated("gpu-memory", "8192").annotated("nvidia.com/container.main.gpu-memory.request", "8Gi"),
			[]fault{annotation("nvidia.com/container.main.gpu-memory.request", "8Gi", "take it out, metadata.annotations[gpu-memory] says it")},
		},

		{"an empty pool", pod().annotated("sluice.dev/node-pools", "a,,b"), []fault{annotation("sluice.dev/node-pools", "a,,b", "has a name that is empty")}},
		{"no pools", pod().annotated("sluice.dev/node-pools", ""), []fault{annotation("sluice.dev/node-pools", "", "has a name that is empty")}},
		{"a pool twice", pod().annotated("sluice.dev/node-pools", "a,b, a"), []fault{annotation("sluice.dev/node-pools", "a", "is named twice")}},
		{"names that no pool has", pod().annotated("sluice.dev/node-pools", "A100,-a,a-,a.b,"+strings.Repeat("a", 54)), []fault{
			annotation("sluice.dev/node-pools", "A100", "lower-case letters, digits and hyphens, at most 53"), annotation("sluice.dev/node-pools", "-a", "lower-case"),
			annotation("sluice.dev/node-pools", "a-", "lower-case"), annotation("sluice.dev/node-pools", "a.b", "lower-case"),
			annotation("sluice.dev/node-pools", strings.Repeat("a", 54), "lower-case"),
		}},
		{"too many pools", pod().annotated("sluice.dev/node-pools", "a,b,c,d,e,f,g,h,i,j,k"), []fault{annotation("sluice.dev/node-pools", "a,b,c,d,e,f,g,h,i,j,k", "names 11 node pools; at most 10 can be named")}},
		{"all at once", pod().asking("nvidia.com/gpu", "-1").annotated("gpu-fraction", "2").labelled("sluice.dev/workload-type", "batch").annotated("sluice.dev/max-runtime", "1w"), []fault{
			limit("nvidia.com/gpu", "-1", devices),
			annotation("gpu-fraction", "2", decimal),
			{"metadata.labels[sluice.dev/workload-type]", "batch", "must be one of train, interactive, inference"},
			annotation("sluice.dev/max-runtime", "1w", "must be whole numbers of d, h, m and s in this order, longer than zero, such as 30m, 6h or 1d12h"),
		}},
	}
	add := func(name string, p template, want fault) {
		tests = append(tests, refusal{fmt.Sprintf("%s %.20q", name, want.value), p, []fault{want}})
	}
	for _, text := range []string{
		"", "0", "0.0", "0.000", "1", "1.0", "1.7", "2", "-0.5", "+0.5", "abc", "NaN", "inf", "1e-3", "5E-1", "0x1p-1", "0.5 ", " 0.5", "0.5\n", "0,5", "500m", "0.5Gi", ".", "0.5.5", "٠.٥", "1_0",
		"99999999999999999999999999", strings.Repeat("9", 60),
	} {
		add("fraction", pod().annotated("gpu-fraction", text), annotation("gpu-fraction", text, decimal))
	}
	for _, text := range []string{
		"", "0", "0m", "-1", "-500m", "+1", "m", "0.5m", "500 m", "500M", "1k", "1Ki", "1e3", "500u", "0.0001", "0.3333", "1.0001", "abc", "NaN", "100000", "99999001m", strings.Repeat("9", 40), "3g", "3g.40", "9g.40gb",
	} {
		add("sluice.dev/gpu", pod().annotated("sluice.dev/gpu", text), annotation("sluice.dev/gpu", text, quantity))
	}
	for _, text := range []string{"", "0", "-1", "+1", "8192.0", "8Gi", "8192Mi", "20G", "abc", "NaN", "1e3", " 8192", "16777217", "17179869184", strings.Repeat("9", 30)} {
		add("memory", pod().annotated("gpu-memory", text), annotation("gpu-memory", text, mebibytes))
	}
	for _, text := range []string{"", "0", "-1", "1.0", "two", "100000", "1e1"} {
		add("devices", pod().annotated("gpu-fraction", "0.5").annotated("gpu-fraction-num-devices", text), annotation("gpu-fraction-num-devices", text, "must be a number of GPUs from 1 to 99999"))
	}
	for _, text := range []string{"-1", "500m", "1.5", "100000", "1e18", "-1e18", "9e30", "1n"} {
		q := resource.MustParse(text)
		add("GPUs", pod().asking("nvidia.com/gpu", text), limit("nvidia.com/gpu", q.String(), devices))
	}
	for _, text := range []string{"", "foo", "3g", "3g.40", "0g.5gb", "9g.5gb", "3g.40GB", "3g.gb", "3g.12345gb", "3g.40gb.", "3g.40gb+me", "3g.40gbme", "3g.40gb-gfx", "3g.40gb.me.all.x", "3g.40gb.aaaaaaaaaaaaaaaaaaaa", "c.3g.20gb", "xc.3g.20gb", "1c.9g.20gb", "gpu"} {
		name := "nvidia.com/mig-" + text
		tests = append(tests, refusal{"slice " + name, pod().asking(corev1.ResourceName(name), "1"), []fault{limit(name, "1", notASlice)}})
	}
	for _, text := range []string{"", "Train", "training", " train", "*"} {
		add("type", pod().labelled("sluice.dev/workload-type", text), fault{"metadata.labels[sluice.dev/workload-type]", text, "must be one of train, interactive, inference"})
	}
	for _, text := range []string{"", "0", "6", "6x", "-6h", "1.5h", "500ms", "PT6H", "6h "} {
		add("time", pod().annotated("sluice.dev/max-runtime", text), annotation("sluice.dev/max-runtime", text, "must be whole numbers of d, h, m and s"))
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := workload.Parse(tc.pod.PodTemplateSpec)
			var malformed workload.Malformed
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
				if has.Field != want.field || has.BadValue != value || !strings.Contains(has.Detail, want.says) {
					t.Errorf("fault %d:\n got %v\nwant %s: %q: %s", i, has, want.field, value, want.says)
				}
			}
		})
	}
}
