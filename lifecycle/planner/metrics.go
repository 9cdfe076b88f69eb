// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	plans = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_mig_plans_total",
		Help: "Changes of nodes' GPUs, by what became of them: written, restored, then done, abandoned, failed, timed-out.",
	}, []string{"result"})
	demanded = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_mig_demand",
		Help: "MIG instances that pods wait for, by profile.",
	}, []string{"profile"})
	changeSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_mig_change_seconds",
		Help:    "How long a node was tainted while its GPUs were cut anew, in machine time.",
		Buckets: []float64{5, 6, 7, 8, 10, 15, 20, 30, 60, 120, 240},
	})
	nodesChanging = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mig_nodes_changing",
		Help: "Nodes that are tainted while their GPUs are cut anew.",
	})
)

// outcomes are the results of changes, as they stand in metrics.
var outcomes = map[outcome]string{done: "done", abandoned: "abandoned", failed: "failed", timedOut: "timed-out"}

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(plans, demanded, changeSeconds, nodesChanging)
}

// measure shows what a decision saw.
func measure(d *decision) {
	demanded.Reset()
	for profile, n := range d.asked {
		demanded.WithLabelValues(string(profile)).Set(float64(n))
	}
	changing := 0
	for at := range d.draft.nodes {
		if d.draft.nodes[at].taint != nil {
			changing++
		}
	}
	nodesChanging.Set(float64(changing))
}
