// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/policies/engine"
)

// buckets go from 0.1 ms, a fast answer, to 10 s, beyond every time-out that a
// webhook configuration may have here.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

var duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_admission_duration_seconds",
	Help:    "Time from an admission request's arrival at its handler to the answer, by webhook, operation and whether it was allowed.",
	Buckets: buckets,
}, []string{"webhook", "operation", "allowed"})

var perPolicy = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_policy_duration_seconds",
	Help:    "Time that one policy took to answer about one object, by policy and what came of it: passed, warned, denied, failed or timed-out. A policy's remembered answers count too; an admission whose whole answer was remembered asks no policy.",
	Buckets: buckets,
}, []string{"policy", "verdict"})

func init() { metrics.Registry.MustRegister(duration, perPolicy) }

// Policy measures the asking of one policy.
func Policy(asked engine.Evaluation) {
	perPolicy.WithLabelValues(asked.Policy, string(asked.Verdict)).Observe(asked.Took.Seconds())
}

func observe(webhook, operation string, allowed bool, took time.Duration) {
	duration.WithLabelValues(webhook, operation, strconv.FormatBool(allowed)).Observe(took.Seconds())
}
