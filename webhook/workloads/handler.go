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
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/merge/patch"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// Handler answers when a workload is made.
type Handler struct {
	// Judge asks the policies about Jobs, and about the pod templates of what waits in
	// a queue.
	Judge *judge.Judge
	// Tenants knows whose a namespace is.
	Tenants *tenant.Directory
	// Must refuses what cannot be judged. Else it comes in with its maker's name alone:
	// its pods are judged when they are made.
	Must bool
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
	after, judged, unasked := h.settle(ctx, &req, object)
	if unasked != nil {
		if h.Must {
			return answer.Failed(unasked)
		}
		after, judged = object, judge.Judgement{}
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

var errNobodys = errors.New("the policies were not asked: no project has the namespace")

// settle asks the policies about a Job, and about the templates of what is counted
// early. An error means that nobody could.
func (h *Handler) settle(ctx context.Context, req *admission.Request, object map[string]any) (map[string]any, judge.Judgement, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	row, _ := kinds.Of(kind)
	if kind != job && !row.CountedEarly {
		return object, judge.Judgement{}, nil
	}
	owner, err := h.Tenants.Of(ctx, req.Namespace)
	if err != nil {
		return nil, judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	if owner == nil {
		return nil, judge.Judgement{}, errNobodys
	}
	review, err := pods.Review(req)
	if err != nil {
		return nil, judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	q := judge.Question{Review: review, Tenant: owner, Operation: v1alpha1.OperationCreate}
	judged := judge.Judgement{}
	if kind == job {
		if judged, err = h.settleJob(ctx, req.Object.Raw, q); err != nil {
			return nil, judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
		}
		if judged.Result.Object != nil {
			object = judged.Result.Object
		}
	}
	after, templates, err := h.stamped(ctx, kind, object, req.Namespace, q)
	if err != nil {
		return nil, judge.Judgement{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	judged.Denials = slices.Concat(judged.Denials, templates.Denials)
	judged.Warnings = slices.Concat(judged.Warnings, templates.Warnings)
	judged.Result.Changes = join(judged.Result.Changes, templates.Result.Changes)
	return after, judged, nil
}

// job is the kind that policies are asked about.
var job = schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}

func (h *Handler) settleJob(ctx context.Context, raw []byte, q judge.Question) (judge.Judgement, error) {
	q.Raw, q.Job = raw, true
	return h.Judge.Settle(ctx, q)
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
