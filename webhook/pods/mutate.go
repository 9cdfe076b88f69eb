// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/merge/patch"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
)

// Mutator answers while a pod may still be changed.
type Mutator struct {
	Desk
	known memory
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !asked(&req) {
		return admission.Allowed("")
	}
	return m.answered(ctx, &req, &m.known, m.settle)
}

func (m *Mutator) settle(ctx context.Context, q judge.Question) (admission.Response, bool, error) {
	judged, err := m.Judge.Settle(ctx, q)
	if err != nil {
		return admission.Response{}, false, err
	}
	response := answer.Of(judged)
	if !response.Allowed {
		return response, !judged.Failed, nil
	}
	if response.Patch, err = changes(judged); err != nil {
		return admission.Response{}, false, err
	}
	if response.Patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
	}
	return response, !judged.Failed, nil
}

// changes is the patch from the pod that came to the pod as the policies made
// it, with the record of who changed what; nil where nothing is changed.
func changes(judged judge.Judgement) ([]byte, error) {
	if len(judged.Result.Changes) == 0 {
		return nil, nil
	}
	after, err := recorded(judged.Before, judged.Result)
	if err != nil {
		return nil, err
	}
	operations := patch.Between(judged.Before, after)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}
