// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// Validator judges the pod templates of workloads.
type Validator struct {
	// Evaluator asks the policies.
	Evaluator *evaluation.Evaluator
	// Tenants knows whose a namespace is.
	Tenants *evaluation.TenantResolver
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler.
func (h *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.SubResource != "" || (req.Operation != admissionv1.Create && req.Operation != admissionv1.Update) {
		return admission.Allowed("")
	}
	found, err := templatesToEvaluate(&req, kind)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if len(found) == 0 && !hasRolloutPlanChanged(&req) {
		return admission.Allowed("")
	}
	owner, err := h.Tenants.Resolve(ctx, req.Namespace)
	if err != nil || owner == nil {
		// The pod is the gate; it will say what is wrong.
		return admission.Allowed("")
	}
	review, err := pod.ReviewDocument(&req)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	var all evaluation.Result
	each := make(map[string]evaluation.Result, len(found))
	for _, t := range found {
		judged, err := h.evaluateTemplate(ctx, t, req.Namespace, kind, owner, review)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		all.Denials = append(all.Denials, judged.Denials...)
		all.Warnings = append(all.Warnings, judged.Warnings...)
		each[t.Path] = judged
	}
	never, err := h.evaluateRollout(ctx, &req, owner, review, each)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	all.Warnings = append(all.Warnings, never...)
	return evaluation.NewResponse(all)
}

// templatesToEvaluate are the templates that are still to be judged.
func templatesToEvaluate(req *admission.Request, kind schema.GroupKind) ([]workloadkind.Template, error) {
	var object, before map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if _, controlled := workloadkind.ControllerOf(object); controlled {
		return nil, nil // it was judged when its author wrote what it is of
	}
	found := workloadkind.Templates(kind, object)
	if len(req.OldObject.Raw) == 0 {
		return found, nil
	}
	if err := utiljson.Unmarshal(req.OldObject.Raw, &before); err != nil {
		return nil, fmt.Errorf("reading the object before the change: %w", err)
	}
	return changedTemplates(found, workloadkind.Templates(kind, before)), nil
}

// evaluateTemplate asks about one template as if it were a pod that is coming in.
func (h *Validator) evaluateTemplate(ctx context.Context, t workloadkind.Template, namespace string, kind schema.GroupKind, owner *evaluation.Tenant, review document.Document) (evaluation.Result, error) {
	judged, err := h.Evaluator.MutateTemplate(ctx, t, namespace, evaluation.Request{
		Review: review, Tenant: owner, Owner: workload.Owner{Group: kind.Group, Kind: kind.Kind},
	})
	judged.Warnings = append(judged.Warnings, warnNodeName(t)...)
	return judged, err
}

// changedTemplates are those of the templates that an older object did not have, or had
// otherwise.
func changedTemplates(now, before []workloadkind.Template) []workloadkind.Template {
	old := make(map[string]map[string]any, len(before))
	for _, t := range before {
		old[t.Path] = t.Body
	}
	return slices.DeleteFunc(now, func(t workloadkind.Template) bool {
		body, ok := old[t.Path]
		return ok && mergeschema.Equal(body, t.Body)
	})
}

// warnNodeName warns of a template whose pods name their node. No policy refuses
// such pods: a door does, which sees them only when they are made, and tells
// their controller and not their author.
func warnNodeName(t workloadkind.Template) []merge.Finding {
	node := mergeschema.AsString(mergeschema.AsMap(t.Body["spec"])["nodeName"])
	if node == "" {
		return nil
	}
	return []merge.Finding{{
		Field:   t.Path + ".spec.nodeName",
		Message: fmt.Sprintf("%s: a pod of a project does not choose its node, and these will be refused", node),
		Fix:     "take it out, and name node pools with the annotation sluice.dev/node-pools",
	}}
}

// deploymentKind is the kind whose pods are replaced by rolling updates.
var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// requestedRolloutPlan is how the Deployment of a request replaces its pods; false where the
// request is about another kind, or the API server will say what is wrong with it.
func requestedRolloutPlan(req *admission.Request) (RolloutPlan, bool) {
	if (schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}) != deploymentKind {
		return RolloutPlan{}, false
	}
	plan, err := ParseRolloutPlan(req.Object.Raw)
	return plan, err == nil
}

// hasRolloutPlanChanged tells whether a Deployment was changed in how it replaces its pods.
func hasRolloutPlanChanged(req *admission.Request) bool {
	plan, ok := requestedRolloutPlan(req)
	if !ok || len(req.OldObject.Raw) == 0 {
		return ok
	}
	before, err := ParseRolloutPlan(req.OldObject.Raw)
	return err != nil || before != plan
}

// evaluateRollout is what a Deployment is warned of. Where its template was judged
// already it is not asked about again; of one that did not change nothing else
// is said.
func (h *Validator) evaluateRollout(ctx context.Context, req *admission.Request, owner *evaluation.Tenant, review document.Document, judged map[string]evaluation.Result) ([]merge.Finding, error) {
	plan, ok := requestedRolloutPlan(req)
	if !ok {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return nil, err
	}
	if _, controlled := workloadkind.ControllerOf(object); controlled {
		return nil, nil
	}
	var warnings []merge.Finding
	for _, t := range workloadkind.Templates(deploymentKind, object) {
		became, known := judged[t.Path]
		if !known {
			var err error
			if became, err = h.evaluateTemplate(ctx, t, req.Namespace, deploymentKind, owner, review); err != nil {
				return nil, err
			}
		}
		if len(became.Denials) == 0 {
			warnings = append(warnings, WarnRollout(plan, became.Merged.Object, owner.Project, owner.NodePools)...)
		}
	}
	return warnings, nil
}
