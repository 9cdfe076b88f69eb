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

// NewRecorder wraps a handler: it logs and measures each request under the name of the webhook.
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
	duration := policytime.MachineNow().Sub(start)
	admissionDuration.WithLabelValues(r.name, string(req.Operation), strconv.FormatBool(response.Allowed)).Observe(duration.Seconds())
	r.logResponse(req, response, duration)
	return response
}

func (r *recorder) logResponse(req admission.Request, response admission.Response, duration time.Duration) {
	message := ""
	if response.Result != nil {
		message = response.Result.Message
	}
	r.logger.Info("Answered admission request",
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
		"durationMicroseconds", duration.Microseconds(),
	)
}

// durationBuckets range from 0.1 ms, a fast response, to 10 s, above the timeout of every webhook of Sluice.
var durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

var admissionDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "sluice_admission_duration_seconds",
	Help:    "Time from the arrival of an admission request at its handler to the response, by webhook, operation and whether it was allowed.",
	Buckets: durationBuckets,
}, []string{"webhook", "operation", "allowed"})

var policyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "sluice_policy_duration_seconds",
	Help: "Time to evaluate one policy on one object, by policy and result: passed, warned, denied, exempted, failed or timed-out. " +
		"Cached results of a policy count; an admission with a cached response evaluates no policy.",
	Buckets: durationBuckets,
}, []string{"policy", "result"})

func init() { metrics.Registry.MustRegister(admissionDuration, policyDuration) }

// ObservePolicy records the duration of a policy evaluation.
func ObservePolicy(evaluation engine.Evaluation) {
	policyDuration.WithLabelValues(evaluation.Policy, string(evaluation.Result)).Observe(evaluation.Duration.Seconds())
}
