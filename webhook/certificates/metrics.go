// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The reasons of failures.
const (
	reasonMissing    = "missing"
	reasonUnreadable = "unreadable"
	reasonInvalid    = "invalid"
	reasonIssue      = "not-issued"
)

var (
	expiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_certificate_expiry_timestamp_seconds",
		Help: "Unix time at which the certificate that this replica serves expires, or its authority.",
	}, []string{"certificate"})
	rotations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_certificate_rotations_total",
		Help: "Certificates that this replica issued: certificate, or authority with a certificate.",
	}, []string{"issued"})
	replacements = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_certificate_replacements_total",
		Help: "Times that this replica replaced the certificate that it serves.",
	})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_certificate_failures_total",
		Help: "Failures to use or to issue a certificate, by reason. A failure that lasts counts once.",
	}, []string{"reason"})
	problemGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_certificate_problem",
		Help: "1 while the source of the certificate is unusable and the last good certificate is served.",
	})
)

func init() {
	metrics.Registry.MustRegister(expiry, rotations, replacements, failures, problemGauge)
}

func recordExpiry(b *bundle) {
	expiry.WithLabelValues("serving").Set(float64(b.certificate.Leaf.NotAfter.Unix()))
	expiry.WithLabelValues("authority").Set(float64(b.root.NotAfter.Unix()))
}
