// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/webhook/answer"
)

// Validator answers when nobody changes the pod any more.
type Validator struct{ Desk }

// Handle implements admission.Handler.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !asked(&req) {
		return admission.Allowed("")
	}
	q, refusal, err := v.question(ctx, &req)
	if err != nil {
		return answer.Failed(err)
	}
	if refusal != "" {
		return admission.Denied(refusal)
	}
	judged, err := v.Judge.Check(ctx, q)
	if err != nil {
		return answer.Failed(err)
	}
	// What its author is warned of was said when the pod was changed.
	judged.Warnings = nil
	return answer.Of(judged)
}
