// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/status"
)

// The collector exports a series for each observed object, and none for removed ones.
func TestStatusCollector(t *testing.T) {
	last := lastStatus.Load()
	t.Cleanup(func() { lastStatus.Store(last) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(statusCollector{})
	lastStatus.Store(nil)
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("before the first observation: %d, %v", n, err)
	}
	lastStatus.Store(&status.Node{
		GPUs: []status.GPU{
			{Index: 0, UUID: "GPU-a", Health: v1alpha1.GPUHealthy, MemoryMiB: 2, UsedMiB: ptr.To[int64](1), Instances: []status.Instance{
				{Profile: "1g.5gb", State: v1alpha1.InstanceIdle},
				{Profile: "1g.5gb", State: v1alpha1.InstanceIdle},
				{Profile: "1g.5gb", State: v1alpha1.InstanceActive},
			}},
			{Index: 1, UUID: "GPU-b", Health: v1alpha1.GPULost, MemoryMiB: 2, Utilization: ptr.To(50)},
		},
	})
	want := `
# HELP sluice_gpu_healthy 1 if the driver reports the GPU as healthy, else 0.
# TYPE sluice_gpu_healthy gauge
sluice_gpu_healthy{gpu="0",uuid="GPU-a"} 1
sluice_gpu_healthy{gpu="1",uuid="GPU-b"} 0
# HELP sluice_gpu_memory_total_bytes Total memory of a GPU.
# TYPE sluice_gpu_memory_total_bytes gauge
sluice_gpu_memory_total_bytes{gpu="0",uuid="GPU-a"} 2.097152e+06
sluice_gpu_memory_total_bytes{gpu="1",uuid="GPU-b"} 2.097152e+06
# HELP sluice_gpu_memory_used_bytes Used memory of a GPU.
# TYPE sluice_gpu_memory_used_bytes gauge
sluice_gpu_memory_used_bytes{gpu="0",uuid="GPU-a"} 1.048576e+06
# HELP sluice_gpu_utilization_ratio Utilization of a GPU, 0 to 1; absent in MIG mode.
# TYPE sluice_gpu_utilization_ratio gauge
sluice_gpu_utilization_ratio{gpu="1",uuid="GPU-b"} 0.5
# HELP sluice_mig_instances GPU instances on the node by profile and state.
# TYPE sluice_mig_instances gauge
sluice_mig_instances{profile="1g.5gb",state="Active"} 1
sluice_mig_instances{profile="1g.5gb",state="Idle"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestCallMetrics(t *testing.T) {
	callErrors.DeletePartialMatch(prometheus.Labels{"call": "Test"})
	count := func(code string) float64 { return testutil.ToFloat64(callErrors.WithLabelValues("Test", code)) }
	for _, err := range []error{
		nil, nvml.ErrNotSupported, fmt.Errorf("reset: %w", nvml.ErrGPULost), errors.New("broken"),
		errors.Join(nil, nvml.ErrInUse),
	} {
		recordCall("Test", time.Millisecond, err)
	}
	for code, want := range map[string]float64{"3": 0, "15": 1, "19": 1, "other": 1} {
		if got := count(code); got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}
