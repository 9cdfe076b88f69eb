// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/evaluation"
)

// Mutator handles pods in the mutating phase of admission.
type Mutator struct {
	evaluation.Base

	responses responseCache
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	set, err := m.Evaluator.Engine.Current()
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	answer := handle(ctx, &m.Base, set, &req, &m.responses, m.mutate)
	m.Evaluator.Count(answer.origin, answer.violations)
	return answer.response
}

// answer is the response to a pod, with its violations and where they are counted.
type answer struct {
	response   admission.Response
	violations evaluation.Violations
	origin     *evaluation.Origin
}

// evaluateFunc evaluates a pod. It reports whether the response can be cached.
type evaluateFunc func(context.Context, *podRequest) (response cachedResponse, cacheable bool, err error)

// handle decodes a request, evaluates the pod under a set of policies unless the cache has a response for the same
// view, and responds.
func handle(
	ctx context.Context, base *evaluation.Base, set *engine.Set, req *admission.Request, responses *responseCache, evaluate evaluateFunc,
) answer {
	// Policies apply at creation. Later changes are restricted by admission policies of the API server.
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return answer{response: admission.Allowed("")}
	}
	tenant, err := base.Tenants.ResolveForPod(ctx, req)
	if err != nil {
		return answer{response: evaluation.ErrorResponse(err)}
	}
	if tenant == nil {
		if evaluation.IsRepeated(req) {
			return answer{response: retryResponse(req.UserInfo, "another replica of the webhook knows the project of namespace "+req.Namespace)}
		}
		return answer{response: admission.Denied(fmt.Sprintf("namespace %s is governed, but no project owns it: "+
			"the project may have been created or deleted a moment ago, so try again; if the error persists, contact the cluster administrators",
			req.Namespace))}
	}
	failed := func(err error) answer {
		return answer{response: base.Evaluator.ErrorResponse(req.UserInfo, tenant, err)}
	}
	trace := evaluation.TraceOf(ctx)
	trace.Restart(tenant, set)
	p, err := decode(set, req, tenant, responses)
	if err != nil {
		return failed(err)
	}
	answered := func(cached cachedResponse) answer {
		return answer{p.view.restore(cached.response), cached.violations, evaluation.NewOrigin(req, tenant)}
	}
	if p.cacheable = p.cacheable && !trace.IsObserved(); p.cacheable {
		if cached, ok := responses.store().Get(p.key); ok && !cached.violations.IsPartial() {
			trace.UseCached(cached.decided, base.Evaluator.Clock)
			return answered(cached)
		}
	}
	if p.request.Review, err = document.Decode(p.review); err != nil {
		return failed(err)
	}
	response, cacheable, err := evaluate(ctx, &p)
	if err != nil {
		return failed(err)
	}
	response.decided = trace.Taken()
	if p.cacheable && cacheable {
		responses.store().Put(p.key, response, responseSize(&response.response)+response.violations.Size()+response.decided.Size())
	}
	return answered(response)
}

// podRequest is a decoded request.
type podRequest struct {
	// request has no Review yet, because a cached response needs none. review is the JSON of the Review.
	request decision.Request
	review  []byte
	view    podView
	user    authenticationv1.UserInfo
	stamp   stamp
	key     cacheKey
	// cacheable reports whether the response depends only on what the key covers.
	cacheable bool
}

func decode(set *engine.Set, req *admission.Request, tenant *decision.Tenant, responses *responseCache) (p podRequest, err error) {
	// The whole request uses one set of policies: another set might read the fields that the view omits.
	p.request = decision.Request{Policies: set, Tenant: tenant, Operation: v1alpha1.PolicyOperation(req.Operation)}
	reads := responses.fieldReads.get(p.request.Policies, p.request.Subject())
	p.view = newPodView(req.Object.Raw, reads)
	p.request.Raw = p.view.raw
	if p.review, err = decision.EncodeReview(&req.AdmissionRequest, reads.name); err != nil {
		return p, err
	}
	p.user, p.stamp = req.UserInfo, newStamp(&p.request, req.Namespace)
	p.key, p.cacheable = newCacheKey(&p), !reads.timeOrUse
	return p, nil
}

func (m *Mutator) mutate(ctx context.Context, p *podRequest) (cachedResponse, bool, error) {
	result, err := m.Evaluator.Mutate(ctx, p.request)
	if err != nil {
		return cachedResponse{}, false, err
	}
	response := evaluation.NewResponse(result)
	if !response.Allowed {
		refused, cacheable := p.refusal(&result, response)
		return refused, cacheable, nil
	}
	changes := len(result.Merged.ChangedPaths)
	if changes > 0 && !p.stamp.isAlone(result.Original) { // the pod would be a blend of both
		return cachedResponse{response: retryResponse(p.user, "Sluice would now set other fields of the pod than a moment ago")}, false, nil
	}
	after := result.Merged.Object
	if changes+len(result.Paused)+len(result.Exempted) > 0 {
		if after, err = recordDecisions(result); err != nil {
			return cachedResponse{}, false, err
		}
	}
	if err := evaluation.SetPatch(&response, result.Original, p.stamp.addTo(after)); err != nil {
		return cachedResponse{}, false, err
	}
	return cachedResponse{response: response, violations: result.Violations}, !result.Transient, nil
}
