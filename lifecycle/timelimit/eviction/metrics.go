// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The values of the metric label outcome.
const (
	outcomeAnnounced = "announced"
	outcomeWithdrawn = "withdrawn"
	// outcomeBlocked counts each pod that a disruption budget holds, once.
	outcomeBlocked = "blocked"
	outcomeEvicted = "evicted"
	// outcomeDeleted: the budget period passed.
	outcomeDeleted = "deleted"
)

var evictionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_evictions_total",
	Help: "Evictions of pods by reason (ShareExceeded, Preempted) and outcome: announced, then withdrawn, blocked by a disruption budget, " +
		"evicted, or deleted after the budget period.",
}, []string{"reason", "outcome"})

func init() { //nolint:gochecknoinits // controller-runtime's registry is filled by init functions
	metrics.Registry.MustRegister(evictionsTotal)
}
