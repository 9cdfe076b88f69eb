// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
)

// change changes the pod added last.
func (n *sampledTestNode) change(change func(*corev1.Pod)) { change(&n.pods[len(n.pods)-1]) }

// requestGPU makes a pod request a GPU resource.
func requestGPU(name corev1.ResourceName) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		list := corev1.ResourceList{name: *resource.NewQuantity(1, resource.DecimalSI)}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}
	}
}

func annotate(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
}

// findings returns the findings after a minute of further samples.
func (n *sampledTestNode) findings() []string {
	n.Helper()
	n.sample()
	o := n.observation()
	n.sampler.observed.Store(&o)
	for range 60 {
		time.Sleep(time.Second)
		n.sampler.sample()
	}
	var list []string
	for _, f := range n.sampler.latest.Load().Findings {
		list = append(list, fmt.Sprintf("%s %s %d", f.PodUID, f.Reason, f.ExcessMiB))
	}
	return list
}

// The agent compares use with share: of replicas, of shares that a scheduler assigned, of whole GPUs and of MIG
// devices. It finds who uses a GPU without any.
func TestSampledShares(t *testing.T) { synctest.Test(t, testSampledShares) }

func testSampledShares(t *testing.T) {
	n := newSampledNode(t, "H100-80GB", "H100-80GB/mig", "A100-40GB", "A100-40GB")
	for i := range n.gpus {
		n.gpus[i].MemoryMiB, n.gpus[i].Model = 40960, "NVIDIA A100-SXM4-40GB"
		n.gpus[i].DeviceID = "0x20B010DE"
		if len(n.gpus[i].Instances) > 0 {
			n.gpus[i].Instances[0].Profile = "1g.5gb"
		}
	}
	gpu, instance := func(i int) string { return string(n.gpus[i].UUID) }, n.gpus[1].Instances[0].UUID
	pod := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "h2", Name: name} }
	n.assignments = devices.Assignments{
		Holders: map[string][]types.NamespacedName{
			gpu(0): {pod("greedy"), pod("fair"), pod("two"), pod("two")}, instance: {pod("mig")}, gpu(3): {pod("whole")},
		},
		Counts: map[types.NamespacedName]map[corev1.ResourceName]int{}, Replicas: map[string]int{gpu(0): 4},
	}
	for name, device := range map[string]string{"greedy": gpu(0), "fair": gpu(0), "two": gpu(0), "mig": instance, "whole": gpu(3)} {
		n.assignments.Counts[pod(name)] = map[corev1.ResourceName]int{"nvidia.com/gpu": 1}
		n.addPod(name)
		n.change(requestGPU("nvidia.com/gpu"))
		memory := map[string]int64{"greedy": 20000, "fair": 9000, "two": 20000, "mig": 4000, "whole": 40000}[name]
		n.addProcess(5_000_000+uint32(memory/100)+uint32(len(name)), name, device, memory, 50)
	}
	n.addPod("part")
	n.change(annotate("gpu-fraction", "0.25"))
	n.addProcess(5_100_001, "part", gpu(2), 12000, 50)
	n.addPod("strng")
	n.addProcess(5_100_002, "strng", gpu(2), 300, 1)
	n.addPod("monit")
	n.change(func(pod *corev1.Pod) { pod.Labels = nil })
	n.addProcess(5_100_003, "monit", gpu(2), 300, 1)
	want := []string{
		fmt.Sprintf("%s ShareExceeded %d", podUID("greedy"), 20000-10240),
		fmt.Sprintf("%s ShareExceeded %d", podUID("part"), 12000-10240),
		fmt.Sprintf("%s NotAllocated 300", podUID("strng")),
	}
	if got := n.findings(); !slices.Equal(got, want) {
		t.Errorf("findings\n%v, want\n%v", got, want)
	}
	result := n.sampler.latest.Load()
	for name, share := range map[string]int64{
		"greedy": 10240, "fair": 10240, "two": 20480, "mig": 5120, "whole": 40960, "part": 10240, "strng": 0, "monit": 0,
	} {
		if got := result.Pods[podUID(name)].ShareMiB; got != share {
			t.Errorf("pod %s may use %d MiB, want %d", name, got, share)
		}
	}
	o := n.observation()
	var reported []string
	for _, use := range withUnassignedPods(o.holders.PodUses(), o.holders, result) {
		reported = append(reported, use.Name)
	}
	slices.Sort(reported)
	if got := strings.Join(reported, " "); got != "fair greedy mig part strng two whole" {
		t.Errorf("the GPUNode reports %s", got)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(useCollector{})
	for metric, want := range map[string]int{"sluice_gpu_pod_memory_share_bytes": 6, "sluice_gpu_pod_finding_excess_bytes": 3} {
		if count, err := testutil.GatherAndCount(registry, metric); err != nil || count != want {
			t.Errorf("%d series of %s, %v; want %d", count, metric, err, want)
		}
	}
}

// A pod is on a foreign device only if nothing but the kubelet could have assigned it one.
func TestNotAllocatedIsCertain(t *testing.T) { synctest.Test(t, testNotAllocatedIsCertain) }

func testNotAllocatedIsCertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		held   string // the device that the kubelet assigned
		want   bool
	}{
		"no request":                    {annotate("x", "y"), "", true},
		"another GPU":                   {requestGPU("nvidia.com/gpu"), "other", true},
		"its own GPU":                   {requestGPU("nvidia.com/gpu"), "own", false},
		"a share":                       {annotate("gpu-fraction", "0.5"), "", false},
		"memory":                        {annotate("gpu-memory", "50000"), "", false},
		"an unknown request":            {annotate("gpu-fraction", "much"), "", false},
		"a GPU of an init container":    {requestGPU("nvidia.com/gpu"), "", false},
		"another GPU's init containers": {func(p *corev1.Pod) { requestGPU("nvidia.com/gpu")(p); p.Spec.InitContainers = p.Spec.Containers }, "other", false},
		"an unknown kind of device":     {requestGPU("example.com/gpu"), "", false},
		"a resource claim": {func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, "", false},
		"a pod outside of projects": {func(p *corev1.Pod) { p.Labels = nil }, "", false},
	} {
		n := newSampledNode(t, "A100-40GB", "A100-40GB")
		n.gpus[0].MemoryMiB, n.gpus[1].MemoryMiB = 40960, 40960
		n.addPod("a")
		n.change(tt.change)
		n.addProcess(5_000_001, "a", string(n.gpus[0].UUID), 300, 1)
		key := types.NamespacedName{Namespace: "h2", Name: "a"}
		n.assignments = devices.Assignments{Holders: map[string][]types.NamespacedName{}, Counts: map[types.NamespacedName]map[corev1.ResourceName]int{}}
		if tt.held != "" {
			device := string(n.gpus[map[string]int{"own": 0, "other": 1}[tt.held]].UUID)
			n.assignments.Holders[device] = []types.NamespacedName{key}
			n.assignments.Counts[key] = map[corev1.ResourceName]int{v1alpha1.ResourceNVIDIAGPU: 1}
		}
		got := n.findings()
		if (len(got) == 1) != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		n.assignments.Ambiguous = []types.NamespacedName{key}
		if got := n.findings(); len(got) > 0 {
			t.Errorf("%s, and the kubelet does not name the device: %v", name, got)
		}
	}
}
