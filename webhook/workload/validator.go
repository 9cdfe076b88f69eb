// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// Validator evaluates the pod templates of workloads.
type Validator struct {
	evaluation.Base
	// Claims reads the volume claims that templates name; nil for a replay, which has no cluster.
	Claims *ClaimReader
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || (req.Operation != admissionv1.Create && req.Operation != admissionv1.Update) {
		return admission.Allowed("")
	}
	tenant, err := v.Tenants.Resolve(ctx, req.Namespace)
	if err != nil || tenant == nil {
		// The pod's admission is the gate, and reports what is wrong.
		return admission.Allowed("")
	}
	change, err := decodeChange(&req, tenant)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if len(change.changed) == 0 && !change.rolloutChanged {
		return admission.Allowed("")
	}
	if change.review, err = decision.ReviewDocument(&req.AdmissionRequest); err != nil {
		return evaluation.ErrorResponse(err)
	}
	result, err := v.evaluate(ctx, change)
	if err != nil {
		return v.Evaluator.ErrorResponse(req.UserInfo, tenant, err)
	}
	if len(result.Denials) > 0 {
		result.DenialPrefix = decision.DenialPrefix(change.object)
		v.Evaluator.CountDenials(evaluation.NewOrigin(&req, change.tenant), v.Evaluator.DeniedBy(result.Denials, change.object))
	}
	return evaluation.NewResponse(result)
}

// workloadChange is the creation or update of a workload.
type workloadChange struct {
	kind      schema.GroupKind
	namespace string
	object    map[string]any
	tenant    *decision.Tenant
	review    document.Document
	// templates are all pod templates, and changed the new and changed ones. Both are empty for an object that a
	// controller creates: its templates were evaluated with the owner's.
	templates, changed []workloadkind.Template
	// rollout is the plan of a Deployment; nil for other kinds, and for a plan that the API server denies.
	// rolloutChanged reports whether it is new or changed.
	rollout        *RolloutPlan
	rolloutChanged bool
}

// deploymentKind is the kind whose pods are replaced by rolling updates.
var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

func decodeChange(req *admission.Request, tenant *decision.Tenant) (change *workloadChange, err error) {
	change = &workloadChange{kind: schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, namespace: req.Namespace, tenant: tenant}
	if change.object, err = evaluation.DecodeObject(req.Object.Raw); err != nil {
		return nil, err
	}
	if _, controlled := workloadkind.ControllerOf(change.object); controlled {
		return change, nil
	}
	before, err := evaluation.DecodeObject(req.OldObject.Raw)
	if err != nil {
		return nil, fmt.Errorf("old object: %w", err)
	}
	change.templates = workloadkind.EvaluatedTemplates(change.kind, change.object, tenant.AddedTemplates)
	change.changed = changedTemplates(change.templates, workloadkind.EvaluatedTemplates(change.kind, before, tenant.AddedTemplates))
	if change.kind == deploymentKind {
		if plan, err := ParseRolloutPlan(req.Object.Raw); err == nil {
			change.rollout = &plan
			old, err := ParseRolloutPlan(req.OldObject.Raw)
			change.rolloutChanged = err != nil || old != plan
		}
	}
	return change, nil
}

// changedTemplates returns the templates that are not among the old ones.
func changedTemplates(templates, old []workloadkind.Template) []workloadkind.Template {
	bodies := make(map[string]map[string]any, len(old))
	for _, t := range old {
		bodies[t.Path] = t.Body
	}
	return slices.DeleteFunc(slices.Clone(templates), func(t workloadkind.Template) bool {
		body, ok := bodies[t.Path]
		return ok && mergeschema.Equal(body, t.Body)
	})
}

// evaluate evaluates the changed templates. For a Deployment it evaluates the unchanged ones as well, only to warn
// of the rollout.
func (v *Validator) evaluate(ctx context.Context, change *workloadChange) (evaluation.Result, error) {
	var all evaluation.Result
	results := make(map[string]evaluation.Result, len(change.changed))
	for _, t := range change.changed {
		result, err := v.evaluateTemplate(ctx, t, change)
		if err != nil {
			return all, err
		}
		all.Denials = append(all.Denials, result.Denials...)
		all.Warnings = append(all.Warnings, result.Warnings...)
		results[t.Path] = result
	}
	if change.rollout == nil {
		return all, nil
	}
	for _, t := range change.templates {
		result, ok := results[t.Path]
		if !ok {
			var err error
			if result, err = v.evaluateTemplate(ctx, t, change); err != nil {
				return all, err
			}
		}
		if len(result.Denials) == 0 {
			warnings := WarnRollout(*change.rollout, result.Merged.Object, change.tenant.Project, change.tenant.NodePools)
			all.Warnings = append(all.Warnings, warnings...)
		}
	}
	return all, nil
}

// evaluateTemplate evaluates a template as a new pod.
func (v *Validator) evaluateTemplate(ctx context.Context, t workloadkind.Template, change *workloadChange) (evaluation.Result, error) {
	result, err := v.Evaluator.MutateTemplate(ctx, t, change.namespace, decision.Request{
		Review: change.review, Tenant: change.tenant, Owner: workload.Owner{Group: change.kind.Group, Kind: change.kind.Kind},
	})
	var undecodable *decision.DecodeError
	if errors.As(err, &undecodable) {
		return evaluation.Result{Result: decision.Result{Warnings: []merge.Finding{warnTemplate(t, undecodable)}}}, nil
	}
	creator, _ := lookupPath(change.object, createdByPath)
	ofClaims := v.Claims.warnings(ctx, change.namespace, t, mergeschema.AsString(creator))
	result.Warnings = slices.Concat(result.Warnings, warnNodeName(t), warnAffinity(t.Body, t.Field), ofClaims)
	return result, err
}

// warnTemplate warns of a field that is not the pod template that it should be. The schema of its kind allows it, so its
// controller may not make pods of it.
func warnTemplate(t workloadkind.Template, err error) merge.Finding {
	return merge.Finding{Field: t.Path, Message: fmt.Sprintf("it is no pod template, so no policy was evaluated: %v", err)}
}

// warnNodeName warns of a template with a node name. An admission policy denies its pods, but the API server
// reports that to their controller and not to the author.
func warnNodeName(t workloadkind.Template) []merge.Finding {
	node := mergeschema.AsString(mergeschema.AsMap(t.Body["spec"])["nodeName"])
	if node == "" {
		return nil
	}
	return []merge.Finding{{
		Field:   t.Field("spec.nodeName"),
		Message: fmt.Sprintf("%s: a pod of a project does not choose its node, and these pods will be denied", node),
		Fix:     "remove it, and name node pools with the annotation sluice.dev/node-pools",
	}}
}
