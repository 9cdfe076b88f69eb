// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
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
	if controlled(object) {
		return nil, nil
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

// controlled tells whether a controller made the object of another, which was
// judged when its author wrote it.
func controlled(object map[string]any) bool {
	for _, reference := range value.List(value.Map(object["metadata"])["ownerReferences"]) {
		if is, _ := value.Map(reference)["controller"].(bool); is {
			return true
		}
	}
	return false
}

// judge asks about one template as if it were a pod that is coming in.
func (h *Handler) judge(ctx context.Context, t kinds.Template, namespace string, kind schema.GroupKind, owner *tenant.Tenant, review engine.Document) (judge.Judgement, error) {
	raw, err := pod(t, namespace)
	if err != nil {
		return judge.Judgement{}, fmt.Errorf("reading %s: %w", t.Place, err)
	}
	judged, err := h.Judge.Settle(ctx, judge.Question{
		Raw: raw, Review: review, Tenant: owner, Operation: v1alpha1.OperationCreate,
		Template: true, Owner: workload.Owner{Group: kind.Group, Kind: kind.Kind},
	})
	judged.Denials = under(t.Place, judged.Denials)
	judged.Warnings = under(t.Place, slices.Concat(judged.Warnings, chosenNode(t)))
	return judged, err
}

// under puts the template's place before the fields of its pod.
func under(place string, complaints []intent.Complaint) []intent.Complaint {
	placed := make([]intent.Complaint, len(complaints))
	for i, complaint := range complaints {
		if complaint.Field == "" {
			complaint.Field = place
		} else {
			complaint.Field = place + "." + complaint.Field
		}
		placed[i] = complaint
	}
	return placed
}
