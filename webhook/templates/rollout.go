// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/intent"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/rollout"
	"sluice.dev/webhook/tenant"
)

// aDeployment is the kind whose pods are replaced by rolling updates.
var aDeployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// planOf is how the Deployment of a request replaces its pods; false where the
// request is about another kind, or the API server will say what is wrong with it.
func planOf(req *admission.Request) (rollout.Plan, bool) {
	if (schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}) != aDeployment {
		return rollout.Plan{}, false
	}
	plan, err := rollout.Read(req.Object.Raw)
	return plan, err == nil
}

// replanned tells whether a Deployment was changed in how it replaces its pods.
func replanned(req *admission.Request) bool {
	plan, ok := planOf(req)
	if !ok || len(req.OldObject.Raw) == 0 {
		return ok
	}
	before, err := rollout.Read(req.OldObject.Raw)
	return err != nil || before != plan
}

// rollout is what a Deployment is warned of. Where its template was judged
// already it is not asked about again; of one that did not change nothing else
// is said.
func (h *Handler) rollout(ctx context.Context, req *admission.Request, owner *tenant.Tenant, review engine.Document, judged map[string]judge.Judgement) ([]intent.Complaint, error) {
	plan, ok := planOf(req)
	if !ok {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return nil, err
	}
	if _, controlled := kinds.Controller(object); controlled {
		return nil, nil
	}
	var warnings []intent.Complaint
	for _, t := range kinds.Templates(aDeployment, object) {
		became, known := judged[t.Place]
		if !known {
			var err error
			if became, err = h.judge(ctx, t, req.Namespace, aDeployment, owner, review); err != nil {
				return nil, err
			}
		}
		if len(became.Denials) == 0 {
			warnings = append(warnings, rollout.Warn(plan, became.Result.Object, owner.Project, owner.Pools)...)
		}
	}
	return warnings, nil
}
