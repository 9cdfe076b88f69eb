// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge/jsonpatch"
	"sluice.dev/webhook/evaluation"
)

// Base is what both answers need.
type Base struct {
	// Evaluator asks the policies.
	Evaluator *evaluation.Evaluator
	// Tenants knows whose a namespace is.
	Tenants *evaluation.TenantResolver
}

// resolveTenant is whose the pod of a request is; a text instead where it can be refused
// at once.
func (d *Base) resolveTenant(ctx context.Context, req *admission.Request) (*evaluation.Tenant, string, error) {
	owner, err := d.Tenants.Resolve(ctx, req.Namespace)
	if err != nil || owner != nil {
		return owner, "", err
	}
	return nil, fmt.Sprintf(
		"namespace %s is governed, and no project has it: it may have been made or deleted just now, so try again in a moment; if that does not help, tell the cluster's administrators",
		req.Namespace), nil
}

// respond is the answer to a request: the one that was given to the same before,
// or a new one.
func (d *Base) respond(ctx context.Context, req *admission.Request, known *responseCache,
	ask func(context.Context, evaluation.Request) (response admission.Response, lasting bool, err error),
) admission.Response {
	owner, refusal, err := d.resolveTenant(ctx, req)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if refusal != "" {
		return admission.Denied(refusal)
	}
	set, err := d.Evaluator.Engine.Current()
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	// What is hidden from these policies, others might read.
	q := evaluation.Request{Policies: set, Tenant: owner, Operation: v1alpha1.PolicyOperation(req.Operation)}
	seen := known.fieldUsages.get(set, q.Subject())
	v := newPodView(req.Object.Raw, seen)
	q.Raw = v.raw
	review, err := encodeReview(req, seen.name)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	k := newCacheKey(&q, review)
	if !seen.timeOrUse {
		if response, ok := known.store().Get(k); ok {
			return v.restore(response)
		}
	}
	if q.Review, err = document.Decode(review); err != nil {
		return evaluation.ErrorResponse(err)
	}
	response, lasting, err := ask(ctx, q)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if !seen.timeOrUse && lasting {
		known.store().Put(k, response, responseSize(&response))
	}
	return v.restore(response)
}

// ReviewDocument is a request as policies read it, without the objects, which join it
// later.
func ReviewDocument(req *admission.Request) (document.Document, error) {
	raw, err := encodeReview(req, true)
	if err != nil {
		return document.Document{}, err
	}
	return document.Decode(raw)
}

// encodeReview is a request's JSON without the objects, and without its UID: that differs
// at each try, and says nothing. Its name may be left out too.
func encodeReview(req *admission.Request, named bool) ([]byte, error) {
	bare := req.AdmissionRequest
	bare.UID = ""
	if !named {
		bare.Name = ""
	}
	bare.Object, bare.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	return json.Marshal(&bare)
}

// isPodCreation tells whether pods are asked about at this operation: policies change and
// refuse pods only while they come in; later the API server's own policies guard
// them.
func isPodCreation(req *admission.Request) bool {
	return req.Operation == admissionv1.Create && req.SubResource == ""
}

// Mutator answers while a pod may still be changed.
type Mutator struct {
	Base
	responses responseCache
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !isPodCreation(&req) {
		return admission.Allowed("")
	}
	return m.respond(ctx, &req, &m.responses, m.mutate)
}

func (m *Mutator) mutate(ctx context.Context, q evaluation.Request) (admission.Response, bool, error) {
	judged, err := m.Evaluator.Mutate(ctx, q)
	if err != nil {
		return admission.Response{}, false, err
	}
	response := evaluation.NewResponse(judged)
	if !response.Allowed {
		return response, !judged.PolicyFailed, nil
	}
	if response.Patch, err = createPatch(judged); err != nil {
		return admission.Response{}, false, err
	}
	if response.Patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
	}
	return response, !judged.PolicyFailed, nil
}

// createPatch is the patch from the pod that came to the pod as the policies made
// it, with the record of who changed what; nil where nothing is changed.
func createPatch(judged evaluation.Result) ([]byte, error) {
	if len(judged.Merged.ChangedPaths) == 0 {
		return nil, nil
	}
	after, err := recordDecisions(judged.Original, judged.Merged)
	if err != nil {
		return nil, err
	}
	operations := jsonpatch.Diff(judged.Original, after)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// Validator answers when nobody changes the pod any more.
type Validator struct {
	Base
	responses responseCache
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !isPodCreation(&req) {
		return admission.Allowed("")
	}
	return v.respond(ctx, &req, &v.responses, v.validate)
}

func (v *Validator) validate(ctx context.Context, q evaluation.Request) (admission.Response, bool, error) {
	judged, err := v.Evaluator.Validate(ctx, q)
	// What its author is warned of was said when the pod was changed.
	judged.Warnings = nil
	return evaluation.NewResponse(judged), !judged.PolicyFailed, err
}
