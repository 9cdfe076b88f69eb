// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/decisionlog"
)

// NewRecorder wraps a handler: it records and measures each request under the name of the webhook. The log may be nil.
func NewRecorder(name string, log *decisionlog.Log, handler admission.Handler) admission.Handler {
	return &recorder{name: name, log: log, handler: handler}
}

type recorder struct {
	name    string
	log     *decisionlog.Log
	handler admission.Handler
}

// Handle implements admission.Handler.
func (r *recorder) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := policytime.MachineNow()
	var trace Trace
	response := r.handler.Handle(WithTrace(ctx, &trace), req)
	duration := policytime.MachineNow().Sub(start)
	admissionDuration.WithLabelValues(r.name, string(req.Operation), strconv.FormatBool(response.Allowed)).Observe(duration.Seconds())
	entry := NewEntry(r.name, &req, &response, &trace)
	entry.Record.Time, entry.Record.Microseconds = start.UTC(), duration.Microseconds()
	r.log.Add(entry)
	return response
}

// mutatedPods is the name of the webhook that may still change pods.
const mutatedPods = "pods"

// NewEntry returns the entry of an answer in the log, without its time and duration.
func NewEntry(webhook string, req *admission.Request, response *admission.Response, trace *Trace) decisionlog.Entry {
	record := decisionlog.Record{
		Webhook: webhook, UID: string(req.UID), Operation: string(req.Operation),
		Resource: req.Resource.Resource, Subresource: req.SubResource, ObjectKind: req.Kind.Kind, ObjectGroup: req.Kind.Group,
		Namespace: req.Namespace, Name: req.Name, User: req.UserInfo.Username, DryRun: req.DryRun != nil && *req.DryRun,
		Allowed: response.Allowed, Warnings: response.Warnings, PatchBytes: len(response.Patch),
	}
	if record.Name == "" {
		record.Name = gjson.GetBytes(req.Object.Raw, "metadata.name").Str
	}
	if record.Name == "" {
		record.GenerateName = gjson.GetBytes(req.Object.Raw, "metadata.generateName").Str
	}
	record.Repeated = webhook == mutatedPods && IsRepeated(req)
	if response.Result != nil {
		record.Message = response.Result.Message
		if !response.Allowed {
			record.Code = response.Result.Code
		}
	}
	if denied := response.AuditAnnotations[AuditDeniedBy]; denied != "" {
		record.DeniedBy = strings.Split(denied, ",")
	}
	trace.complete(&record)
	return decisionlog.Entry{Record: record, Request: &req.AdmissionRequest, Patch: response.Patch, Tenant: trace.Tenant, Set: trace.set}
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

// ObservePolicy records the duration of a policy evaluation, and counts one that took too long.
func ObservePolicy(evaluation engine.Evaluation, counter *replica.Counter) {
	policyDuration.WithLabelValues(evaluation.Policy, string(evaluation.Result)).Observe(evaluation.Duration.Seconds())
	if evaluation.Result == engine.ResultTimedOut {
		counter.AddTimeOut(evaluation.Version, evaluation.Project)
	}
}
