// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/tenant"
)

// Desk is what both answers need.
type Desk struct {
	// Judge asks the policies.
	Judge *judge.Judge
	// Tenants knows whose a namespace is.
	Tenants *tenant.Directory
}

// tenant is whose the pod of a request is; a text instead where it can be refused
// at once.
func (d *Desk) tenant(ctx context.Context, req *admission.Request) (*tenant.Tenant, string, error) {
	owner, err := d.Tenants.Of(ctx, req.Namespace)
	if err != nil || owner != nil {
		return owner, "", err
	}
	return nil, fmt.Sprintf(
		"namespace %s is governed, and no project has it: it may have been made or deleted just now, so try again in a moment; if that does not help, tell the cluster's administrators",
		req.Namespace), nil
}

// answered is the answer to a request: the one that was given to the same before,
// or a new one.
func (d *Desk) answered(ctx context.Context, req *admission.Request, known *memory,
	ask func(context.Context, judge.Question) (response admission.Response, lasting bool, err error),
) admission.Response {
	owner, refusal, err := d.tenant(ctx, req)
	if err != nil {
		return answer.Failed(err)
	}
	if refusal != "" {
		return admission.Denied(refusal)
	}
	set, err := d.Judge.Engine.Current()
	if err != nil {
		return answer.Failed(err)
	}
	// What is hidden from these policies, others might read.
	q := judge.Question{Policies: set, Tenant: owner, Operation: v1alpha1.PolicyOperation(req.Operation)}
	seen := known.readings.of(set, q.Subject())
	v := viewOf(req.Object.Raw, seen)
	q.Raw = v.raw
	review, err := bare(req, seen.name)
	if err != nil {
		return answer.Failed(err)
	}
	k := keyOf(&q, review)
	if !seen.moment {
		if response, ok := known.recent().Get(k); ok {
			return v.restore(response)
		}
	}
	if q.Review, err = engine.Decode(review); err != nil {
		return answer.Failed(err)
	}
	response, lasting, err := ask(ctx, q)
	if err != nil {
		return answer.Failed(err)
	}
	if !seen.moment && lasting {
		known.recent().Put(k, response, sizeOf(&response))
	}
	return v.restore(response)
}

// Review is a request as policies read it, without the objects, which join it
// later.
func Review(req *admission.Request) (engine.Document, error) {
	raw, err := bare(req, true)
	if err != nil {
		return engine.Document{}, err
	}
	return engine.Decode(raw)
}

// bare is a request's JSON without the objects, and without its UID: that differs
// at each try, and says nothing. Its name may be left out too.
func bare(req *admission.Request, named bool) ([]byte, error) {
	bare := req.AdmissionRequest
	bare.UID = ""
	if !named {
		bare.Name = ""
	}
	bare.Object, bare.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	return json.Marshal(&bare)
}

// asked tells whether pods are asked about at this operation: policies change and
// refuse pods only while they come in; later the API server's own policies guard
// them.
func asked(req *admission.Request) bool {
	return req.Operation == admissionv1.Create && req.SubResource == ""
}
