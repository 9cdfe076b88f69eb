// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var workloads = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_waiting_workloads",
	Help: "Workloads that wait for the GPU quota of a project, outside or in a queue, by project; projects of which none waits are left out.",
}, []string{"project"})

var wakes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_wakes_total",
	Help: "Times that a workload's controller was made to try again since there was room in its project's GPU quota, by the object's kind.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(workloads, wakes, waited) }

func observe(project string, waiting int) {
	if waiting == 0 {
		workloads.DeleteLabelValues(project)
		return
	}
	workloads.WithLabelValues(project).Set(float64(waiting))
}
