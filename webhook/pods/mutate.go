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
type Mutator struct{ Desk }

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !asked(&req) {
		return admission.Allowed("")
	}
	q, refusal, err := m.question(ctx, &req)
	if err != nil {
		return answer.Failed(err)
	}
	if refusal != "" {
		return admission.Denied(refusal)
	}
	judged, err := m.Judge.Settle(ctx, q)
	if err != nil {
		return answer.Failed(err)
	}
	response := answer.Of(judged)
	if !response.Allowed {
		return response
	}
	if response.Patch, err = changes(judged); err != nil {
		return answer.Failed(err)
	}
	if response.Patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
	}
	return response
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
