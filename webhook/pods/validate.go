// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
)

// Validator answers when nobody changes the pod any more.
type Validator struct {
	Desk
	known memory
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !asked(&req) {
		return admission.Allowed("")
	}
	return v.answered(ctx, &req, &v.known, v.check)
}

func (v *Validator) check(ctx context.Context, q judge.Question) (admission.Response, bool, error) {
	judged, err := v.Judge.Check(ctx, q)
	// What its author is warned of was said when the pod was changed.
	judged.Warnings = nil
	return answer.Of(judged), !judged.Failed, err
}
