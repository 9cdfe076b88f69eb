// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge/patch"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// Handler answers when a workload is made.
type Handler struct {
	// Judge asks the policies about Jobs.
	Judge *judge.Judge
	// Tenants knows whose a namespace is.
	Tenants *tenant.Directory
}

var _ admission.Handler = (*Handler)(nil)

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	var object map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return answer.Failed(fmt.Errorf("reading the object: %w", err))
	}
	if object == nil {
		return admission.Allowed("")
	}
	judged, unasked := judge.Judgement{}, error(nil)
	if req.Kind == job {
		judged, unasked = h.settle(ctx, &req)
	}
	after := object
	if judged.Result.Object != nil {
		object, after = judged.Before, judged.Result.Object
	}
	after, warnings := signed(after, req.UserInfo.Username)
	judged.Warnings = slices.Concat(warnings, judged.Warnings)
	response := answer.Of(judged)
	if !response.Allowed {
		return response
	}
	if unasked != nil { // for the log
		response.Result = &metav1.Status{Code: response.Result.Code, Message: unasked.Error()}
	}
	return withPatch(response, object, after)
}

// job is the kind that policies are asked about.
var job = metav1.GroupVersionKind{Group: batchv1.GroupName, Version: batchv1.SchemeGroupVersion.Version, Kind: "Job"}

var errNobodys = errors.New("the policies were not asked: no project has the namespace")

// settle asks the policies about a Job. An error means that nobody could: its
// pods are judged when they are made.
func (h *Handler) settle(ctx context.Context, req *admission.Request) (judge.Judgement, error) {
	owner, err := h.Tenants.Of(ctx, req.Namespace)
	if err != nil {
		return judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	if owner == nil {
		return judge.Judgement{}, errNobodys
	}
	review, err := pods.Review(req)
	if err != nil {
		return judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	judged, err := h.Judge.Settle(ctx, judge.Question{
		Raw: req.Object.Raw, Job: true, Review: review, Tenant: owner, Operation: v1alpha1.OperationCreate,
	})
	if err != nil {
		return judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	return judged, nil
}

func withPatch(response admission.Response, before, after map[string]any) admission.Response {
	operations := patch.Between(before, after)
	if len(operations) == 0 {
		return response
	}
	written, err := json.Marshal(operations)
	if err != nil {
		return answer.Failed(fmt.Errorf("writing the patch: %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = written, &kind
	return response
}
