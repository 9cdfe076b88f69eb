// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
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

// question is what a request asks; a text instead where it can be refused at
// once.
func (d *Desk) question(ctx context.Context, req *admission.Request) (judge.Question, string, error) {
	owner, err := d.Tenants.Of(ctx, req.Namespace)
	if err != nil {
		return judge.Question{}, "", err
	}
	if owner == nil {
		return judge.Question{}, fmt.Sprintf(
			"namespace %s is governed, and no project has it: it may have been made or deleted just now, so try again in a moment; if that does not help, tell the cluster's administrators",
			req.Namespace), nil
	}
	review, err := Review(req)
	if err != nil {
		return judge.Question{}, "", err
	}
	return judge.Question{
		Raw: req.Object.Raw, Review: review, Tenant: owner,
		Operation: v1alpha1.PolicyOperation(req.Operation),
	}, "", nil
}

// Review is a request as policies read it, without the objects, which join it
// later. Its UID is left out: it differs at each try, and says nothing.
func Review(req *admission.Request) (engine.Document, error) {
	bare := req.AdmissionRequest
	bare.UID = ""
	bare.Object, bare.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	return engine.FromGo(&bare)
}

// asked tells whether pods are asked about at this operation: policies change and
// refuse pods only while they come in; later the API server's own policies guard
// them.
func asked(req *admission.Request) bool {
	return req.Operation == admissionv1.Create && req.SubResource == ""
}
