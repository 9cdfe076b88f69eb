// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	workloadStops = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_workload_stops_total",
		Help: "Stopped workloads, by reason: MaxRuntime, Idle, StartTimeout, ProjectSuspended, ProjectDeleted.",
	}, []string{"reason"})
	deadlineLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_workload_deadline_lag_seconds",
		Help:    "Time between the deadline of a workload and its stop, in policy time.",
		Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600},
	})
	stopLimiterEngaged = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_stop_limiter_engaged",
		Help: "1 while the stop limiter is engaged in a department: ends that were brought forward wait until an administrator releases it.",
	}, []string{"department"})
	startTimeoutsHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_start_timeouts_held",
		Help: "1 while the start timeouts in a node pool are held, because those of several people fell due together, as in an outage.",
	}, []string{"pool"})
	unstoppableWorkloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_workload_unstoppable_total",
		Help: "Workloads that ran although Sluice stopped them, by reason: StopWithoutEffect, RestartedAfterStop, Forbidden, UnknownKind.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(workloadStops, deadlineLag, stopLimiterEngaged, startTimeoutsHeld, unstoppableWorkloads)
	// A query of the increase ignores the first value of a series, so each begins at 0.
	for _, reason := range []string{reasonNoEffect, reasonFlapping, reasonUnsupported, reasonForbidden} {
		unstoppableWorkloads.WithLabelValues(reason)
	}
}
