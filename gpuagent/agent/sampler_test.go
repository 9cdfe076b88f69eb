// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/gpuagent/utilization"
)

// sampledTestNode is a simulated node whose sampler the test drives.
type sampledTestNode struct {
	*testing.T
	*simulator.Node
	sampler *sampler
	gpus    []v1alpha1.ObservedGPU
	pods    []corev1.Pod
	proc    string

	assignments devices.Assignments

	exporterOutdated   bool
	exporterReloadedAt time.Time
}

const sampledGPU = "GPU-00000000-0000-0000-0000-00000000000%d"

// newSampledNode returns a node with GPUs of these models, of which those after the first slash are in MIG
// mode with one instance each.
func newSampledNode(t *testing.T, models ...string) *sampledTestNode {
	t.Helper()
	var config simulator.Config
	for i, model := range models {
		name, mig := strings.CutSuffix(model, "/mig")
		config.GPUs = append(config.GPUs, simulator.GPU{Model: name, UUID: fmt.Sprintf(sampledGPU, i), Mode: nvml.Mode(mig)})
	}
	node, err := simulator.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Init(); err != nil {
		t.Fatal(err)
	}
	n := &sampledTestNode{T: t, Node: node, proc: t.TempDir()}
	for i, gpu := range config.GPUs {
		o := v1alpha1.ObservedGPU{UUID: v1alpha1.GPUUUID(gpu.UUID), Index: int32(i), Health: v1alpha1.GPUHealthy}
		if gpu.Mode == nvml.Enabled {
			o.MIG.Current = v1alpha1.MIGModeEnabled
			o.Instances = []v1alpha1.ObservedInstance{{Profile: "1g", Start: 0, Size: 1, UUID: n.newInstance(gpu.UUID)}}
		}
		n.gpus = append(n.gpus, o)
	}
	n.sampler = &sampler{
		exporter: &exporterReader{interval: 30 * time.Second},
		library:  node, resolver: host.PodResolver{Proc: n.proc}, published: func() *v1alpha1.GPUNode { return nil },
		instances: func(gpu string) map[uint32]int {
			starts := map[uint32]int{}
			instances, _ := node.Instances(gpu)
			for _, it := range instances {
				starts[it.ID] = it.Placement.Start
			}
			return starts
		},
	}
	return n
}

func (n *sampledTestNode) newInstance(gpu string) string {
	n.Helper()
	profiles, err := n.Profiles(gpu)
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range profiles {
		if p.Compute != 1 || p.Attribute != "" {
			continue
		}
		made, err := n.CreateInstance(gpu, p.ID, nvml.Placement{Start: 0, Size: p.Memory})
		if err != nil {
			n.Fatal(err)
		}
		compute, err := n.CreateComputeInstance(gpu, made.ID)
		if err != nil {
			n.Fatal(err)
		}
		return compute.UUID
	}
	n.Fatal("no profile")
	return ""
}

// addPod adds a pod without processes.
func (n *sampledTestNode) addPod(name string) {
	n.pods = append(n.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "h2", UID: podUID(name), Labels: map[string]string{v1alpha1.LabelProject: "thesis"},
	}})
}

func podUID(name string) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012x", name))
}

// addProcess adds a process of a pod, or outside of pods, on a device.
func (n *sampledTestNode) addProcess(pid uint32, pod, device string, memoryMiB int64, busy int) {
	n.Helper()
	cgroup := "0::/system.slice/docker.service\n"
	if pod != "" {
		cgroup = "0::/kubepods/burstable/pod" + string(podUID(pod)) + "/x\n"
	}
	folder := filepath.Join(n.proc, strconv.FormatUint(uint64(pid), 10))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "cgroup"), []byte(cgroup), 0o600); err != nil {
		n.Fatal(err)
	}
	if err := n.Attach(pid, device, memoryMiB, busy); err != nil {
		n.Fatal(err)
	}
}

// sample returns the sample after the next ones: a process counts from its second sample on, and an
// instance has a utilization from the second on.
func (n *sampledTestNode) sample() *utilization.Result {
	n.Helper()
	o := n.observation()
	n.sampler.observed.Store(&o)
	for range 3 {
		time.Sleep(time.Second)
		n.sampler.sample()
	}
	return n.sampler.latest.Load()
}

// observation returns what the reconciler observed.
func (n *sampledTestNode) observation() observation {
	holders := devices.KubeletSnapshot(n.assignments)
	holders.Pods = n.pods
	return observation{
		gpus: n.gpus, holders: holders, exporterOutdated: n.exporterOutdated, exporterReloadedAt: n.exporterReloadedAt,
	}
}

// Each kind of GPU has the source that a real one has, and pods get the use of their own processes.
func TestSampleSources(t *testing.T) { synctest.Test(t, testSampleSources) }

func testSampleSources(t *testing.T) {
	n := newSampledNode(t, "H100-80GB", "H100-80GB/mig", "A100-40GB/mig", "A100-40GB")
	instance := func(gpu int) string { return n.gpus[gpu].Instances[0].UUID }
	for i, pod := range []string{"a", "b", "c", "d", "e"} {
		n.addPod(pod)
		device := []string{string(n.gpus[0].UUID), instance(1), instance(2), string(n.gpus[3].UUID), string(n.gpus[3].UUID)}[i]
		n.addProcess(uint32(5_000_001+i), pod, device, int64(100*(i+1)), 10*(i+1))
	}
	n.addProcess(5_000_009, "", string(n.gpus[3].UUID), 7, 1)
	got := n.sample()
	for gpu, want := range []v1alpha1.UtilizationSource{"NVML", "GPM", "Unavailable", "NVML"} {
		if source := got.Sources[string(n.gpus[gpu].UUID)]; source != want {
			t.Errorf("GPU %d has the source %q, want %s", gpu, source, want)
		}
	}
	for i, pod := range []string{"a", "b", "c", "d", "e"} {
		use := got.Pods[podUID(pod)]
		if use.MemoryMiB == nil || *use.MemoryMiB != int64(100*(i+1)) || len(use.Devices) != 1 {
			t.Errorf("pod %s has %+v", pod, use)
			continue
		}
		busy, known := use.Devices[0].Busy, pod != "c"
		if (busy != nil) != known || known && *busy != 10*(i+1) || (use.LastActive != nil) != known {
			t.Errorf("pod %s: %v %%, last active %v", pod, busy, use.LastActive)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(useCollector{})
	want := strings.NewReplacer("DEVICE", instance(1), "GPU1", string(n.gpus[1].UUID), "GPU3", string(n.gpus[3].UUID), "\t", "").Replace(`
	# HELP sluice_gpu_instance_utilization_ratio Utilization of a MIG device, 0 to 1; absent if unknown.
	# TYPE sluice_gpu_instance_utilization_ratio gauge
	sluice_gpu_instance_utilization_ratio{device="DEVICE",gpu="1",uuid="GPU1"} 0.2
	# HELP sluice_gpu_other_memory_used_bytes GPU memory that processes outside of pods use on a device, as far as it is known.
	# TYPE sluice_gpu_other_memory_used_bytes gauge
	sluice_gpu_other_memory_used_bytes{device="GPU3",gpu="3",kind="Service",uuid="GPU3"} 7.340032e+06
	# HELP sluice_gpu_other_processes Processes outside of pods on a device.
	# TYPE sluice_gpu_other_processes gauge
	sluice_gpu_other_processes{device="GPU3",gpu="3",kind="Service",uuid="GPU3"} 1
	`)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sluice_gpu_instance_utilization_ratio",
		"sluice_gpu_other_memory_used_bytes", "sluice_gpu_other_processes"); err != nil {
		t.Error(err)
	}
	for metric, want := range map[string]int{
		"sluice_gpu_pod_memory_used_bytes": 5, "sluice_gpu_pod_utilization_ratio": 4, "sluice_gpu_pod_last_active_timestamp_seconds": 4,
	} {
		if count, err := testutil.GatherAndCount(registry, metric); err != nil || count != want {
			t.Errorf("%d series of %s, %v; want %d", count, metric, err, want)
		}
	}
	// Without a driver or a kubelet nothing is known, and what was known no longer counts.
	if use := n.sampler.observe(observation{}); use != nil {
		t.Errorf("without a driver the use is %+v", use)
	}
	if count, err := testutil.GatherAndCount(registry); err != nil || count != 0 {
		t.Errorf("without a driver there are %d series, %v", count, err)
	}
}

// A GPU that hangs or is reported as unhealthy delays no sample of the others, and its pods' use is
// unknown. Guards invariant 11.
func TestSampleWithHungGPU(t *testing.T) { synctest.Test(t, testSampleWithHungGPU) }

func testSampleWithHungGPU(t *testing.T) {
	n := newSampledNode(t, "H100-80GB", "H100-80GB")
	n.addPod("a")
	n.addPod("b")
	n.addProcess(5_000_001, "a", string(n.gpus[0].UUID), 1, 50)
	n.addProcess(5_000_002, "b", string(n.gpus[1].UUID), 1, 50)
	if got := n.sample(); got.Pods[podUID("a")].LastActive == nil {
		t.Fatalf("%+v", got.Pods)
	}
	hang, calls := make(chan struct{}), make(chan string, 100)
	n.Hook(simulator.Hooks{Before: func(c simulator.Call) {
		if c.GPU == string(n.gpus[0].UUID) {
			calls <- c.Method
			<-hang
		}
	}})
	got := n.sample()
	count := len(calls)
	close(hang)
	if count != 1 {
		t.Errorf("%d calls to a GPU that hangs", count)
	}
	if got.Sources[string(n.gpus[0].UUID)] != v1alpha1.UtilizationUnavailable || got.Pods[podUID("b")].LastActive == nil {
		t.Errorf("%+v, %+v", got.Sources, got.Pods)
	}
	n.Hook(simulator.Hooks{})
	if err := n.Lose(string(n.gpus[0].UUID)); err != nil {
		t.Fatal(err)
	}
	n.gpus[0].Health = v1alpha1.GPULost
	if got := n.sample(); got.Sources[string(n.gpus[0].UUID)] != v1alpha1.UtilizationUnavailable || got.Pods[podUID("b")].LastActive == nil {
		t.Errorf("%+v, %+v", got.Sources, got.Pods)
	}
}

// The use that counts is that of the pod's share of its GPUs.
func TestPodShares(t *testing.T) {
	n := newSampledNode(t, "H100-80GB")
	holders := devices.KubeletSnapshot(devices.Assignments{Holders: map[string][]types.NamespacedName{
		string(n.gpus[0].UUID): {{Namespace: "h2", Name: "half"}, {Namespace: "h2", Name: "plain"}}, "MIG-1": {{Namespace: "h2", Name: "mig"}},
	}})
	for name, resource := range map[string]corev1.ResourceName{
		"half": v1alpha1.ResourceGPUMilliFor("dgx"), "mig": v1alpha1.ResourceGPUMilli, "plain": "nvidia.com/gpu",
	} {
		n.addPod(name)
		n.pods[len(n.pods)-1].Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{resource: *quantity.NewQuantity(500, quantity.DecimalSI)},
		}}}
	}
	holders.Pods = n.pods
	properties, _ := podProperties(holders)
	for name, want := range map[string]float64{"half": 0.5, "mig": 1, "plain": 1} {
		if got := properties[podUID(name)].Share; got != want {
			t.Errorf("pod %s has the share %v, want %v", name, got, want)
		}
	}
}

// What counts as active is a part of the pod's share, also if a scheduler and not the kubelet assigned the share.
func TestScheduledShares(t *testing.T) {
	n := newSampledNode(t, "H100-80GB")
	for name, tc := range map[string]struct {
		milli       string
		annotations map[string]string
		want        float64
	}{
		"fraction":  {"250", map[string]string{"gpu-fraction": "0.25"}, 0.25},
		"fractions": {"500", map[string]string{"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, 0.25},
		"memory":    {"100", map[string]string{"gpu-memory": "8000"}, 0.1},
		"above":     {"5000", map[string]string{"gpu-memory": "8000"}, 1},
		"uncharged": {"0", map[string]string{"gpu-fraction": "0.25"}, 1},
		"hostile":   {"250", map[string]string{"gpu-fraction": "much"}, 1},
		"none":      {"250", nil, 1},
	} {
		n.addPod(name)
		pod := &n.pods[len(n.pods)-1]
		pod.Annotations = tc.annotations
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{v1alpha1.ResourceGPUMilli: quantity.MustParse(tc.milli)},
			Requests: corev1.ResourceList{v1alpha1.ResourceGPUMilli: quantity.MustParse(tc.milli)},
		}}}
		holders := devices.KubeletSnapshot(devices.Assignments{})
		holders.Pods = n.pods
		properties, _ := podProperties(holders)
		if got := properties[podUID(name)].Share; got != tc.want {
			t.Errorf("pod %s has the share %v, want %v", name, got, tc.want)
		}
	}
}

// A pod has the threshold of its annotation as the cache keeps it. A value that the webhook would not write has no
// effect, whatever its size, and is logged once for each pod.
func TestPodThresholds(t *testing.T) {
	const long = 200_000
	want := map[string]utilization.Threshold{
		"absent":  utilization.DefaultThreshold,
		"lax":     {Percent: 1, Window: time.Hour},
		"strict":  {Percent: 50, Window: 90 * time.Second},
		"hostile": utilization.DefaultThreshold,
		"long":    utilization.DefaultThreshold,
		"empty":   utilization.DefaultThreshold,
	}
	values := map[string]string{
		"lax": "1%/1h", "strict": "50%/1m30s", "hostile": "0%/0s\x1b[2J\n", "long": "5%/5m" + strings.Repeat(" ", long), "empty": "",
	}
	n := newSampledNode(t, "H100-80GB")
	var lines []string
	n.sampler.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	for name := range want {
		n.addPod(name)
		pod := &n.pods[len(n.pods)-1]
		pod.Annotations = map[string]string{"other": strings.Repeat("x", long)}
		if value, found := values[name]; found {
			pod.Annotations[v1alpha1.AnnotationActive] = value
		}
		trimmed, err := trimPod(pod)
		if err != nil || len(trimmed.(*corev1.Pod).Annotations) > 1 || len(trimmed.(*corev1.Pod).Annotations[v1alpha1.AnnotationActive]) > 100 {
			t.Fatalf("%v, %v", trimmed, err)
		}
	}
	holders := devices.KubeletSnapshot(devices.Assignments{})
	holders.Pods = n.pods
	for range 3 {
		properties, invalid := podProperties(holders)
		for name, threshold := range want {
			if got := properties[podUID(name)].Threshold; got != threshold {
				t.Errorf("pod %s has the threshold %v, want %v", name, got, threshold)
			}
		}
		n.sampler.logInvalidThresholds(n.pods, invalid)
	}
	if len(lines) != 3 {
		t.Errorf("%d lines, want one of each invalid value: %q", len(lines), lines)
	}
	for _, line := range lines {
		if len(line) > 600 || strings.ContainsAny(line, "\x1b\n") {
			t.Errorf("logged %.700q", line)
		}
	}
}
