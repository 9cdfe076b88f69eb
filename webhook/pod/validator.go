// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/webhook/evaluation"
)

// Validator handles pods in the validating phase of admission, after all mutating webhooks.
type Validator struct {
	evaluation.Base

	responses responseCache
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler. A change of the policies, of the data that they read, of the project or of its node pools between
// the two phases refuses no pod in the name of its author: see stamp.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	set, err := v.Evaluator.Engine.Current()
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	answer := handle(ctx, &v.Base, set, &req, &v.responses, v.validate)
	// The Mutator counted what it refused. It did not refuse this pod.
	v.Evaluator.CountDenials(answer.origin, answer.violations)
	return answer.response
}

func (v *Validator) validate(ctx context.Context, p *podRequest) (cachedResponse, bool, error) {
	result, err := v.Evaluator.Validate(ctx, p.request)
	if err != nil {
		return cachedResponse{}, false, err
	}
	result.Warnings = nil // the Mutator already returned them
	response := evaluation.NewResponse(result)
	if !response.Allowed {
		refused, cacheable := p.refusal(&result, response)
		return refused, cacheable, nil
	}
	return cachedResponse{response: response, violations: result.Violations}, !result.Transient, nil
}
