// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
)

var used = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_usage_gpu_seconds_total",
	Help: "Use of GPUs that was added to the usage records, in GPUs times seconds of policy time, by department and type of workload.",
}, []string{"department", "type"})

func init() { metrics.Registry.MustRegister(used) } //nolint:gochecknoinits // how controller-runtime's registry is filled

// observe counts what was added, in thousandths.
func observe(department string, sums map[v1alpha1.WorkloadType]int64) {
	for kind, milliSeconds := range sums {
		used.WithLabelValues(department, string(kind)).Add(float64(milliSeconds) / 1000)
	}
}
