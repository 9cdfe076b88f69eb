// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/status"
)

var (
	callSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_nvml_call_seconds",
		Help:    "How long calls of the driver took.",
		Buckets: []float64{0.0001, 0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 120},
	}, []string{"call"})
	callErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_nvml_errors_total",
		Help: "Calls of the driver that it refused, by its number for the reason; what a board does not support is no error.",
	}, []string{"call", "code"})
	layoutChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_mig_changes_total",
		Help: "Changes of a GPU's layout by what became of them: Applied, RolledBack, Invalid, ResetRequired, Denied, Lost, Unhealthy, JournalFailed, Interrupted.",
	}, []string{"result"})
	pluginSignals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_device_plugin_signals_total",
		Help: "Attempts to have the device plugin enumerate its devices again: sent, failed.",
	}, []string{"result"})
)

// lastStatus is the picture from which the gauges are made.
var lastStatus atomic.Pointer[status.Node]

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(callSeconds, callErrors, layoutChanges, pluginSignals, statusCollector{})
}

// recordCall counts a call of the driver.
func recordCall(call string, took time.Duration, err error) {
	callSeconds.WithLabelValues(call).Observe(took.Seconds())
	if err == nil || errors.Is(err, nvml.ErrNotSupported) {
		return
	}
	code := "other"
	if reason := nvml.Error(0); errors.As(err, &reason) {
		code = strconv.FormatUint(uint64(reason), 10)
	}
	callErrors.WithLabelValues(call, code).Inc()
}

// statusCollector are made when they are asked for, so that a GPU, a pod or a profile that is
// gone has no series.
type statusCollector struct{}

var (
	gpuLabels    = []string{"gpu", "uuid"}
	memoryUsed   = prometheus.NewDesc("sluice_gpu_memory_used_bytes", "Memory of a GPU that is in use.", gpuLabels, nil)
	memoryTotal  = prometheus.NewDesc("sluice_gpu_memory_total_bytes", "Memory of a GPU.", gpuLabels, nil)
	utilization  = prometheus.NewDesc("sluice_gpu_utilization_ratio", "How busy a GPU is, 0 to 1; none of a GPU that is cut.", gpuLabels, nil)
	gpuHealthy   = prometheus.NewDesc("sluice_gpu_healthy", "1 while the driver answers for a GPU.", gpuLabels, nil)
	podMemory    = prometheus.NewDesc("sluice_gpu_pod_memory_used_bytes", "Memory of a GPU that a pod's processes hold.", append(gpuLabels[:2:2], "pod"), nil)
	migInstances = prometheus.NewDesc("sluice_mig_instances", "GPU instances of the node.", []string{"profile", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (statusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{memoryUsed, memoryTotal, utilization, gpuHealthy, podMemory, migInstances} {
		to <- desc
	}
}

const mebibyte = 1 << 20

// Collect implements prometheus.Collector.
func (statusCollector) Collect(to chan<- prometheus.Metric) {
	node := lastStatus.Load()
	if node == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	type kind struct{ profile, state string }
	counts := map[kind]int{}
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		index := strconv.Itoa(gpu.Index)
		up := 0.0
		if gpu.Health == v1alpha1.GPUHealthy {
			up = 1
		}
		gauge(gpuHealthy, up, index, gpu.UUID)
		gauge(memoryTotal, float64(gpu.MemoryMiB)*mebibyte, index, gpu.UUID)
		if gpu.UsedMiB != nil {
			gauge(memoryUsed, float64(*gpu.UsedMiB)*mebibyte, index, gpu.UUID)
		}
		if gpu.Utilization != nil {
			gauge(utilization, float64(*gpu.Utilization)/100, index, gpu.UUID)
		}
		for pod, used := range podMemoryUse(node.Processes, gpu.Index) {
			gauge(podMemory, float64(used)*mebibyte, index, gpu.UUID, pod)
		}
		for j := range gpu.Instances {
			counts[kind{string(gpu.Instances[j].Profile), string(gpu.Instances[j].State)}]++
		}
	}
	for of, n := range counts {
		gauge(migInstances, float64(n), of.profile, of.state)
	}
}

// podMemoryUse is the memory that each pod's processes hold on a GPU, in MiB.
func podMemoryUse(processes []status.Process, gpu int) map[string]int64 {
	use := map[string]int64{}
	for _, p := range processes {
		if p.GPU == gpu && p.Pod != "" && p.MemoryMiB != nil {
			use[p.Pod] += *p.MemoryMiB
		}
	}
	return use
}
