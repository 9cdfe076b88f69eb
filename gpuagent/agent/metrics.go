// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	clientmetrics "k8s.io/client-go/tools/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

var (
	callSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_nvml_call_duration_seconds",
		Help:    "Duration of NVML calls.",
		Buckets: []float64{0.0001, 0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 120},
	}, []string{"call"})
	callErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_nvml_errors_total",
		Help: "Failed NVML calls by call and NVML error code, without those that a GPU model does not support.",
	}, []string{"call", "code"})
	layoutChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_mig_layout_changes_total",
		Help: "MIG layout changes of a GPU by result: Applied, RolledBack, Invalid, ResetRequired, Denied, Lost, Unhealthy, " +
			"JournalFailed, Interrupted.",
	}, []string{"result"})
	pluginSignals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_device_plugin_reloads_total",
		Help: "Attempts to reload the device plugin by result: sent, failed.",
	}, []string{"result"})
	apiRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	exporterSignals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_dcgm_exporter_reloads_total",
		Help: "Attempts to reload dcgm-exporter by result: sent, failed.",
	}, []string{"result"})
)

// lastStatus is the state that the gauges report.
var lastStatus atomic.Pointer[status.Node]

// newRegistry returns a registry with all metrics of the agent, of Go and of the process.
func newRegistry() *prometheus.Registry {
	clientmetrics.Register(clientmetrics.RegisterOpts{RequestResult: requestCounter{apiRequests}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(callSeconds, callErrors, layoutChanges, pluginSignals, exporterSignals, statusCollector{}, useCollector{}, apiRequests,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	return registry
}

// requestCounter counts client-go's requests.
type requestCounter struct{ *prometheus.CounterVec }

// Increment implements metrics.ResultMetric of client-go.
func (c requestCounter) Increment(_ context.Context, code, method, host string) {
	c.WithLabelValues(code, method, host).Inc()
}

// recordCall records a driver call in the metrics.
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

// countResults counts the results of a pass. GPUs that needed no change or wait for their users do not count.
func countResults(results []partition.Result) {
	for i := range results {
		if r := &results[i]; r.Changed || (r.State != partition.Applied && r.State != partition.Reclaiming) {
			layoutChanges.WithLabelValues(string(r.State)).Inc()
		}
	}
}

// statusCollector collects the gauges from lastStatus. A removed GPU, pod or profile so has no series.
type statusCollector struct{}

var (
	gpuLabels      = []string{"gpu", "uuid"}
	memoryUsed     = prometheus.NewDesc("sluice_gpu_memory_used_bytes", "Used memory of a GPU.", gpuLabels, nil)
	memoryTotal    = prometheus.NewDesc("sluice_gpu_memory_total_bytes", "Total memory of a GPU.", gpuLabels, nil)
	gpuUtilization = prometheus.NewDesc("sluice_gpu_utilization_ratio", "Utilization of a GPU, 0 to 1; absent in MIG mode.", gpuLabels, nil)
	gpuHealthy     = prometheus.NewDesc("sluice_gpu_healthy", "1 if the driver reports the GPU as healthy, else 0.", gpuLabels, nil)
	migInstances   = prometheus.NewDesc("sluice_mig_instances", "GPU instances on the node by profile and state.",
		[]string{"profile", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (statusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{memoryUsed, memoryTotal, gpuUtilization, gpuHealthy, migInstances} {
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
			gauge(gpuUtilization, float64(*gpu.Utilization)/100, index, gpu.UUID)
		}
		for j := range gpu.Instances {
			counts[kind{string(gpu.Instances[j].Profile), string(gpu.Instances[j].State)}]++
		}
	}
	for key, n := range counts {
		gauge(migInstances, float64(n), key.profile, key.state)
	}
}
