// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// Handler judges the pod templates of workloads.
type Handler struct {
	// Judge asks the policies.
	Judge *judge.Judge
	// Tenants knows whose a namespace is.
	Tenants *tenant.Directory
}

var _ admission.Handler = (*Handler)(nil)

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.SubResource != "" || (req.Operation != admissionv1.Create && req.Operation != admissionv1.Update) {
		return admission.Allowed("")
	}
	found, err := open(&req, kind)
	if err != nil {
		return answer.Failed(err)
	}
	if len(found) == 0 && !replanned(&req) {
		return admission.Allowed("")
	}
	owner, err := h.Tenants.Of(ctx, req.Namespace)
	if err != nil || owner == nil {
		// The pod is the gate; it will say what is wrong.
		return admission.Allowed("")
	}
	review, err := pods.Review(&req)
	if err != nil {
		return answer.Failed(err)
	}
	var all judge.Judgement
	each := make(map[string]judge.Judgement, len(found))
	for _, t := range found {
		judged, err := h.judge(ctx, t, req.Namespace, kind, owner, review)
		if err != nil {
			return answer.Failed(err)
		}
		all.Denials = append(all.Denials, judged.Denials...)
		all.Warnings = append(all.Warnings, judged.Warnings...)
		each[t.Place] = judged
	}
	never, err := h.rollout(ctx, &req, owner, review, each)
	if err != nil {
		return answer.Failed(err)
	}
	all.Warnings = append(all.Warnings, never...)
	return answer.Of(all)
}

// open are the templates that are still to be judged.
func open(req *admission.Request, kind schema.GroupKind) ([]kinds.Template, error) {
	var object, before map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if _, controlled := kinds.Controller(object); controlled {
		return nil, nil // it was judged when its author wrote what it is of
	}
	found := kinds.Templates(kind, object)
	if len(req.OldObject.Raw) == 0 {
		return found, nil
	}
	if err := utiljson.Unmarshal(req.OldObject.Raw, &before); err != nil {
		return nil, fmt.Errorf("reading the object before the change: %w", err)
	}
	return changed(found, kinds.Templates(kind, before)), nil
}

// judge asks about one template as if it were a pod that is coming in.
func (h *Handler) judge(ctx context.Context, t kinds.Template, namespace string, kind schema.GroupKind, owner *tenant.Tenant, review engine.Document) (judge.Judgement, error) {
	judged, err := h.Judge.SettleTemplate(ctx, t, namespace, judge.Question{
		Review: review, Tenant: owner, Owner: workload.Owner{Group: kind.Group, Kind: kind.Kind},
	})
	judged.Warnings = append(judged.Warnings, chosenNode(t)...)
	return judged, err
}
