// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// admittedRequest returns the request of a pod that the webhook admitted.
func admittedRequest(t *testing.T, resources map[corev1.ResourceName]string, annotations ...string) *workload.Request {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1alpha1.LabelProject: "thesis"}, Annotations: map[string]string{},
	}}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	list := corev1.ResourceList{}
	for name, amount := range resources {
		list[name] = resource.MustParse(amount)
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}
	request, err := workload.ParsePod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return &request
}

func TestNewAllowance(t *testing.T) {
	type resources = map[corev1.ResourceName]string
	gpu := Device{UUID: "GPU-0", MemoryMiB: 40960, ReservedMiB: 960}
	shared := Device{UUID: "GPU-0", MemoryMiB: 40960, ReservedMiB: 960, Replicated: true, Replicas: 4}
	instance := Device{UUID: "MIG-0", MIG: true, MemoryMiB: 20096}
	for name, tt := range map[string]struct {
		resources   resources
		annotations []string
		device      Device
		held        int
		want        Allowance
	}{
		"a whole GPU":                      {resources{"nvidia.com/gpu": "1"}, nil, gpu, 1, Allowance{ShareMiB: 40960}},
		"one of several GPUs":              {resources{"nvidia.com/gpu": "4"}, nil, gpu, 1, Allowance{ShareMiB: 40960}},
		"an annotated whole GPU":           {resources{"nvidia.com/gpu": "1"}, []string{"sluice.dev/gpu", "1"}, gpu, 1, Allowance{ShareMiB: 40960}},
		"a GPU of another pod":             {resources{"nvidia.com/gpu": "1"}, nil, gpu, 0, Allowance{}},
		"a GPU of unknown memory":          {resources{"nvidia.com/gpu": "1"}, nil, Device{UUID: "GPU-0"}, 1, Allowance{}},
		"a GPU of negative memory":         {resources{"nvidia.com/gpu": "1"}, nil, Device{UUID: "GPU-0", MemoryMiB: -1}, 1, Allowance{}},
		"a MIG instance":                   {resources{"nvidia.com/mig-3g.20gb": "1"}, nil, instance, 1, Allowance{ShareMiB: 20096}},
		"a share that became a slice":      {resources{"nvidia.com/mig-3g.20gb": "1"}, []string{"gpu-fraction", "0.3"}, instance, 1, Allowance{ShareMiB: 20096}},
		"another pod's MIG instance":       {resources{"nvidia.com/mig-3g.20gb": "1"}, nil, instance, 0, Allowance{}},
		"a share, but a MIG instance":      {nil, []string{"gpu-fraction", "0.5"}, instance, 0, Allowance{}},
		"a replica of a MIG instance":      {resources{"nvidia.com/mig-3g.20gb": "1"}, nil, Device{MIG: true, MemoryMiB: 20000, Replicated: true, Replicas: 2}, 1, Allowance{ShareMiB: 10000}},
		"a replica":                        {resources{"nvidia.com/gpu": "1"}, nil, shared, 1, Allowance{ShareMiB: 10000, Shared: true}},
		"two replicas":                     {resources{"nvidia.com/gpu": "2"}, nil, shared, 2, Allowance{ShareMiB: 20000, Shared: true}},
		"all replicas":                     {resources{"nvidia.com/gpu": "4"}, nil, shared, 4, Allowance{ShareMiB: 40000}},
		"a renamed replica":                {resources{"nvidia.com/gpu.shared": "1"}, nil, shared, 1, Allowance{ShareMiB: 10000, Shared: true}},
		"a smaller share, as a replica":    {resources{"nvidia.com/gpu": "1"}, []string{"sluice.dev/gpu", "200m"}, shared, 1, Allowance{ShareMiB: 10000, Shared: true}},
		"a replica with a limit":           {resources{"nvidia.com/gpu": "1"}, []string{"gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "16384"}, shared, 1, Allowance{ShareMiB: 10000, LimitMiB: 16384, Shared: true}},
		"a replica with a part as limit":   {resources{"nvidia.com/gpu": "1"}, []string{"gpu-fraction", "0.2", "gpu-fraction.limit", "0.5"}, shared, 1, Allowance{ShareMiB: 10000, LimitMiB: 20000, Shared: true}},
		"a replica with a smaller limit":   {resources{"nvidia.com/gpu": "1"}, []string{"gpu-memory", "4096", "sluice.dev/gpu-memory-limit", "8192"}, shared, 1, Allowance{ShareMiB: 10000, Shared: true}},
		"all replicas, with a limit":       {resources{"nvidia.com/gpu": "4"}, []string{"gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "40960"}, shared, 4, Allowance{ShareMiB: 40000}},
		"a replica without their number":   {resources{"nvidia.com/gpu": "1"}, nil, Device{MemoryMiB: 40960, Replicated: true}, 1, Allowance{}},
		"more replicas than there are":     {resources{"nvidia.com/gpu": "3"}, nil, Device{MemoryMiB: 40960, Replicated: true, Replicas: 2}, 3, Allowance{}},
		"another pod's replica":            {resources{"nvidia.com/gpu": "1"}, nil, shared, 0, Allowance{}},
		"a replica by name only":           {resources{"nvidia.com/gpu.shared": "1"}, nil, gpu, 1, Allowance{}},
		"a fraction":                       {nil, []string{"gpu-fraction", "0.5"}, gpu, 0, Allowance{ShareMiB: 20000, Shared: true}},
		"a fraction, rounded up":           {nil, []string{"sluice.dev/gpu", "333m"}, Device{MemoryMiB: 1001}, 0, Allowance{ShareMiB: 334, Shared: true}},
		"a fraction in hundredths":         {nil, []string{"sluice.dev/gpu", "125m", "gpu-fraction", "0.13"}, gpu, 0, Allowance{ShareMiB: 5200, Shared: true}},
		"fractions of several GPUs":        {nil, []string{"gpu-fraction", "0.25", "gpu-fraction-num-devices", "2"}, gpu, 0, Allowance{ShareMiB: 10000, Shared: true}},
		"an unknown reserve":               {nil, []string{"gpu-fraction", "0.5"}, Device{MemoryMiB: 40960}, 0, Allowance{ShareMiB: 20480, Shared: true}},
		"an impossible reserve":            {nil, []string{"gpu-fraction", "0.5"}, Device{MemoryMiB: 10, ReservedMiB: 20}, 0, Allowance{Shared: true}},
		"memory":                           {nil, []string{"gpu-memory", "8192"}, gpu, 0, Allowance{ShareMiB: 8192, Shared: true}},
		"more memory than the GPU has":     {nil, []string{"gpu-memory", "81920"}, gpu, 0, Allowance{ShareMiB: 40000, Shared: true}},
		"memory with a limit":              {nil, []string{"gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "16384"}, gpu, 0, Allowance{ShareMiB: 8192, LimitMiB: 16384, Shared: true}},
		"memory with KAI's limit":          {nil, []string{"gpu-memory", "8192", "gpu-memory.limit", "16Gi"}, gpu, 0, Allowance{ShareMiB: 8192, LimitMiB: 16384, Shared: true}},
		"a limit above the GPU":            {nil, []string{"gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "81920"}, gpu, 0, Allowance{ShareMiB: 8192, LimitMiB: 40000, Shared: true}},
		"a limit that is the share":        {nil, []string{"gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "8192"}, gpu, 0, Allowance{ShareMiB: 8192, Shared: true}},
		"a fraction with a limit":          {nil, []string{"gpu-fraction", "0.25", "sluice.dev/gpu-memory-limit", "20000"}, gpu, 0, Allowance{ShareMiB: 10000, LimitMiB: 20000, Shared: true}},
		"no GPU":                           {nil, nil, gpu, 0, Allowance{}},
		"a negative number of assignments": {nil, []string{"gpu-fraction", "0.5"}, gpu, -1, Allowance{}},
	} {
		if got := NewAllowance(admittedRequest(t, tt.resources, tt.annotations...), tt.device, tt.held); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if got := NewAllowance(&workload.Request{}, gpu, 0); got != (Allowance{}) {
		t.Errorf("a request that cannot be parsed: %+v", got)
	}
}

// No values of a device or a request give a share above the device or a limit below the share.
func FuzzNewAllowance(f *testing.F) {
	f.Add(int64(40960), int64(960), 4, 1, int64(500), int64(0), int64(0), int64(0), false, true)
	f.Add(int64(math.MaxInt32), int64(-5), -1, 9, int64(1000), int64(1<<24), int64(1<<24), int64(1000), true, false)
	f.Fuzz(func(t *testing.T, memory, reserved int64, replicas, held int, share, mib, limit, shareLimit int64, isMIG, isReplicated bool) {
		if memory > 1<<32 || held > 1<<16 {
			return
		}
		device := Device{MIG: isMIG, MemoryMiB: memory, ReservedMiB: reserved, Replicas: replicas, Replicated: isReplicated}
		for _, form := range []workload.Form{workload.FormShare, workload.FormMemory, workload.FormWhole, workload.FormNone} {
			request := &workload.Request{
				Form: form, Share: workload.Milli(max(0, min(share, 1000))), MemoryMiB: max(0, mib), MemoryLimitMiB: limit,
				ShareLimit: workload.Milli(max(0, min(shareLimit, 1000))),
			}
			a := NewAllowance(request, device, held)
			if a.ShareMiB < 0 || a.ShareMiB > max(0, memory) || a.LimitMiB != 0 && (a.LimitMiB <= a.ShareMiB || a.LimitMiB > memory) {
				t.Errorf("%+v of %+v: %+v", request, device, a)
			}
		}
	})
}
