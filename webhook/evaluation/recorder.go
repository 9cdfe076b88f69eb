// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies/engine"
)

// NewRecorder is handler under the name by which logs and metrics know it.
func NewRecorder(name string, logger logr.Logger, handler admission.Handler) admission.Handler {
	return &recorder{name: name, logger: logger.WithName("admission"), handler: handler}
}

type recorder struct {
	name    string
	logger  logr.Logger
	handler admission.Handler
}

// Handle implements admission.Handler.
func (r *recorder) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := policytime.MachineNow()
	response := r.handler.Handle(ctx, req)
	took := policytime.MachineNow().Sub(start)
	observeRequest(r.name, string(req.Operation), response.Allowed, took)
	r.logDecision(req, response, took)
	return response
}

func (r *recorder) logDecision(req admission.Request, response admission.Response, took time.Duration) {
	message := ""
	if response.Result != nil {
		message = response.Result.Message
	}
	r.logger.Info("decided",
		"webhook", r.name,
		"uid", string(req.UID),
		"operation", string(req.Operation),
		"resource", req.Resource.Resource,
		"subresource", req.SubResource,
		"namespace", req.Namespace,
		"name", req.Name,
		"user", req.UserInfo.Username,
		"dryRun", req.DryRun != nil && *req.DryRun,
		"allowed", response.Allowed,
		"message", message,
		"warnings", len(response.Warnings),
		"patchBytes", len(response.Patch),
		"decisions", response.AuditAnnotations,
		"durationMicroseconds", took.Microseconds(),
	)
}

// durationBuckets go from 0.1 ms, a fast answer, to 10 s, beyond every time-out that a
// webhook configuration may have here.
var durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

var admissionDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_admission_duration_seconds",
	Help:    "Time from an admission request's arrival at its handler to the answer, by webhook, operation and whether it was allowed.",
	Buckets: durationBuckets,
}, []string{"webhook", "operation", "allowed"})

var policyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_policy_duration_seconds",
	Help:    "Time that one policy took to answer about one object, by policy and what came of it: passed, warned, denied, failed or timed-out. A policy's remembered answers count too; an admission whose whole answer was remembered asks no policy.",
	Buckets: durationBuckets,
}, []string{"policy", "verdict"})

func init() { metrics.Registry.MustRegister(admissionDuration, policyDuration) }

// ObservePolicy measures the asking of one policy.
func ObservePolicy(asked engine.Evaluation) {
	policyDuration.WithLabelValues(asked.Policy, string(asked.Result)).Observe(asked.Duration.Seconds())
}

func observeRequest(webhook, operation string, allowed bool, took time.Duration) {
	admissionDuration.WithLabelValues(webhook, operation, strconv.FormatBool(allowed)).Observe(took.Seconds())
}
