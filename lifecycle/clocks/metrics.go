// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	stops = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_workload_stops_total",
		Help: "Workloads that were stopped, by reason: MaxRuntime, Idle.",
	}, []string{"reason"})
	lag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_workload_deadline_lag_seconds",
		Help:    "How long after its deadline a workload was stopped, in policy time.",
		Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600},
	})
	brakeEngaged = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_brake_engaged",
		Help: "1 while the brake keeps all workloads from being stopped, until an administrator releases it.",
	})
)

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(stops, lag, brakeEngaged)
}
