// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
)

// Reasons of events on nodes and GPUNodes; pods get eventRepartitionStarted.
const (
	eventRepartitionScheduled = "MIGRepartitionScheduled"
	eventRepartitionStarted   = "MIGRepartitionStarted"
	eventRepartitionCompleted = "MIGRepartitionCompleted"
	eventRepartitionCanceled  = "MIGRepartitionCanceled"
	eventRepartitionFailed    = "MIGRepartitionFailed"
	eventClientsPaused        = "MIGClientsPaused"
	eventClientsResumed       = "MIGClientsResumed"
)

// recordEvents records an action as events on the node, the GPUNode and the requesting pods,
// and in metrics.
func (r *Reconciler) recordEvents(s *observedState, a *action, node *corev1.Node, gpuNode *v1alpha1.GPUNode, now time.Time) {
	record := func(kind, reason, verb, note string, args ...any) {
		r.Events.Eventf(node, nil, kind, reason, verb, note, args...)
		if gpuNode != nil {
			r.Events.Eventf(gpuNode, nil, kind, reason, verb, note, args...)
		}
	}
	switch a.verb {
	case addTaint:
		record(
			corev1.EventTypeNormal, eventRepartitionScheduled, "Taint",
			"the node's GPUs will be repartitioned; it accepts no new pods until then",
		)
	case pauseClients:
		record(
			corev1.EventTypeNormal, eventClientsPaused, "Pause", "paused %s on the node, since a change of the MIG mode needs unused GPUs",
			clientNames(clientsOf(node).pausePatch()),
		)
	case resumeClients:
		record(corev1.EventTypeNormal, eventClientsResumed, "Resume", "resumed %s on the node", clientNames(clientsOf(node).resumePatch()))
	case writeSpec:
		repartitionsTotal.WithLabelValues(map[bool]string{false: "written", true: "restored"}[a.restoresCurrent]).Inc()
		for _, i := range a.requests {
			w := &s.requests[i]
			pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid}
			r.Events.Eventf(pod, nil, corev1.EventTypeNormal, eventRepartitionStarted, "Repartition",
				"node %s is being repartitioned to create %s for this pod", node.Name, w.describe())
		}
	case removeTaint:
		repartitionsTotal.WithLabelValues(outcomeLabels[a.outcome]).Inc()
		took := now.Sub(a.taintedSince)
		switch a.outcome {
		case outcomeDone:
			repartitionSeconds.Observe(took.Seconds())
			record(
				corev1.EventTypeNormal, eventRepartitionCompleted, "Untaint", "the GPUs were repartitioned as planned in %s",
				took.Round(time.Second),
			)
		case outcomeAbandoned, outcomePaused:
			record(corev1.EventTypeNormal, eventRepartitionCanceled, "Untaint", "the GPUs were not changed: %s", a.reason)
		case outcomeFailed, outcomeTimedOut:
			record(corev1.EventTypeWarning, eventRepartitionFailed, "Untaint", "%s", a.reason)
		}
	}
}

var (
	repartitionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_mig_repartitions_total",
		Help: "Repartitions of nodes by result: written or restored, then done, abandoned, paused, failed or timed-out.",
	}, []string{"result"})
	demandGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_mig_requested_instances", Help: "MIG instances requested by pending pods, by profile.",
	}, []string{"profile"})
	repartitionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sluice_mig_repartition_duration_seconds", Help: "Time that a node was tainted while its GPUs were repartitioned, in machine time.",
		Buckets: []float64{5, 6, 7, 8, 10, 15, 20, 30, 60, 120, 240},
	})
	nodesRepartitioning = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mig_repartitioning_nodes", Help: "Nodes that are tainted while their GPUs are repartitioned.",
	})
)

// outcomeLabels holds the values of the metric label result.
var outcomeLabels = map[outcome]string{
	outcomeDone: "done", outcomeAbandoned: "abandoned", outcomePaused: "paused", outcomeFailed: "failed", outcomeTimedOut: "timed-out",
}

func init() { //nolint:gochecknoinits // controller-runtime's registry is filled by init functions
	metrics.Registry.MustRegister(repartitionsTotal, demandGauge, repartitionSeconds, nodesRepartitioning)
	// A query of the increase ignores the first value of a series, so each begins at 0.
	for _, result := range outcomeLabels {
		repartitionsTotal.WithLabelValues(result)
	}
}

// recordMetrics sets the gauges from a decision.
func recordMetrics(d *decision) {
	demandGauge.Reset()
	for profile, n := range d.requested {
		demandGauge.WithLabelValues(string(profile)).Set(float64(n))
	}
	changing := 0
	for at := range d.draft.nodes {
		if d.draft.nodes[at].taint != nil {
			changing++
		}
	}
	nodesRepartitioning.Set(float64(changing))
}
