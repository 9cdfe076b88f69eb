// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notices_total",
		Help: "Attempts at Notices and what became of them, by kind; result: sent, retried, failed, superseded.",
	}, []string{"kind", "result"})
	waitingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_waiting",
		Help: "Notices that are not sent yet and will be.",
	})
	oldestGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_oldest_seconds",
		Help: "How long ago the oldest Notice was recorded that is due and not sent, in machine time; 0 without one.",
	})
	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mail_paused",
		Help: "1 while no mail is sent: somebody paused it, or its configuration does not work.",
	})
	seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_mail_seconds",
		Help:    "How long the mail server took over one mail, from dialling to its answer.",
		Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300},
	})
)

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(results, waitingGauge, oldestGauge, pausedGauge, seconds)
}
