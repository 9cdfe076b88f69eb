// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/evaluation"
)

// Validator handles pods in the validating phase of admission, after all mutating webhooks.
type Validator struct {
	evaluation.Base
	// Replicas observes the other replicas of the webhook, if it is set.
	Replicas Replicas

	responses responseCache
}

// Replicas observes the other replicas of the webhook.
type Replicas interface {
	// Difference returns how those replicas that may have mutated a pod differ from this one with a set of policies.
	Difference(ctx context.Context, set *engine.Set) replica.Difference
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler.
//
// A change of the policies, or of the data that they read, between the two phases refuses no pod wrongly: it is enough that the present policies allow
// the pod, or those that were replaced within the last half minute, or those that come within [replicaLag]. Where another
// replica may have mutated the pod under policies or data that this one does not know, the client repeats the request.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	set, err := v.Evaluator.Engine.Current()
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	answer := v.handle(ctx, set, &req)
	// The Mutator counted what it refused. It did not refuse this pod.
	v.Evaluator.CountDenials(answer.origin, answer.violations)
	return answer.response
}

// HandleAlone answers as Handle under the present policies alone: it waits for no other replica, and counts nothing.
func (v *Validator) HandleAlone(ctx context.Context, req admission.Request) admission.Response {
	set, err := v.Evaluator.Engine.Current()
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	return handle(ctx, &v.Base, set, &req, &v.responses, v.validate).response
}

func (v *Validator) handle(ctx context.Context, set *engine.Set, req *admission.Request) answer {
	policyEngine := v.Evaluator.Engine
	denied := handle(ctx, &v.Base, set, req, &v.responses, v.validate)
	if !isDenied(&denied.response) {
		return denied
	}
	for _, former := range policyEngine.Former(set) {
		if other := handle(ctx, &v.Base, former, req, &v.responses, v.validate); other.response.Allowed {
			return other
		}
	}
	if v.difference(ctx, set) == replica.OtherProgram {
		return retry(denied, replica.OtherProgram)
	}
	timer := time.NewTimer(replicaLag) //nolint:forbidigo // machine time
	defer timer.Stop()
	for waiting := true; waiting && isDenied(&denied.response); {
		select {
		case <-policyEngine.Replaced(set):
			if newer, err := policyEngine.Current(); err == nil {
				set, denied = newer, handle(ctx, &v.Base, newer, req, &v.responses, v.validate)
			}
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	if difference := v.difference(ctx, set); difference != replica.NoDifference && isDenied(&denied.response) {
		return retry(denied, difference)
	}
	return denied
}

// replicaLag is the time for which a denial of the final pod waits for a change of the policies, in machine time: another replica
// of the webhook, which mutated the pod, may already know it. Such denials are rare, since the policies already allowed
// the pod when they mutated it.
const replicaLag = time.Second

// isDenied reports whether policies denied the pod.
func isDenied(response *admission.Response) bool {
	return !response.Allowed && response.Result != nil && response.Result.Code == http.StatusForbidden
}

func (v *Validator) difference(ctx context.Context, set *engine.Set) replica.Difference {
	if v.Replicas == nil {
		return replica.NoDifference
	}
	return v.Replicas.Difference(ctx, set)
}

// retry returns the answer to a pod that only this replica may deny. The client repeats the request, and the pod is mutated
// again. It counts as no violation.
func retry(denied answer, difference replica.Difference) answer {
	reason := "have different policies, since a policy was just changed"
	switch difference {
	case replica.OtherProgram:
		reason = "run different versions, since an upgrade is in progress"
	case replica.OtherData:
		reason = "have different data, since an object or a ConfigMap that policies read just changed"
	case replica.OtherPolicies, replica.NoDifference:
	}
	retries.WithLabelValues(string(difference)).Inc()
	return answer{response: evaluation.RetryResponse("the replicas of Sluice's webhook " + reason + ", and may not agree on this pod: " +
		"try again in a moment, as kubectl and controllers do by themselves\n" + denied.response.Result.Message), origin: denied.origin}
}

var retries = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_admission_retries_total",
	Help: "Pods whose creation the client is asked to repeat, because another replica of the webhook, which may have mutated them, " +
		"has another version of the program, other policies or other data, by reason: program, policies or data.",
}, []string{"reason"})

func init() { metrics.Registry.MustRegister(retries) }

func (v *Validator) validate(ctx context.Context, request decision.Request) (cachedResponse, bool, error) {
	result, err := v.Evaluator.Validate(ctx, request)
	result.Warnings = nil // the Mutator already returned them
	return cachedResponse{response: evaluation.NewResponse(result), violations: result.Violations}, !result.Transient, err
}
