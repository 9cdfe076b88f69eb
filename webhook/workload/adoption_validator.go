// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/webhook/evaluation"
)

// AdoptionValidator refuses that a controller takes over a pod or a ReplicaSet that another user created without a
// controller: a ReplicaSet whose selector matches it would scale it away. The same holds for a volume claim, which goes with
// a StatefulSet that has its name. It handles updates of these kinds.
type AdoptionValidator struct {
	// Cache has the AdmissionParameters, which name the controllers.
	Cache client.Reader
	// Creators resolves the creators of the owners of claims.
	Creators *CreatorResolver
}

var _ admission.Handler = (*AdoptionValidator)(nil)

// Handle implements admission.Handler. It refuses with the status 404: the controllers of Kubernetes take that for an
// object that is gone, and work without it. Any other error would keep them from their own pods, so that a pod with
// the labels of another user's ReplicaSet would stop that ReplicaSet.
func (v *AdoptionValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	before, err := evaluation.DecodeObject(req.OldObject.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	after, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if _, controlled := workloadkind.ControllerOf(before); controlled {
		return admission.Allowed("")
	}
	controller, controlled := workloadkind.ControllerOf(after)
	if !controlled {
		return admission.Allowed("")
	}
	value, _ := lookupPath(before, createdByPath)
	creator, _ := value.(string)
	if req.Kind.Kind == claimKind.Kind {
		return v.validateClaim(ctx, &req, creator)
	}
	var parameters v1alpha1.AdmissionParameters
	if err := v.Cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("get admission parameters: %w", err))
	}
	if slices.ContainsFunc(parameters.Spec.Controllers, func(p v1alpha1.UserPattern) bool { return p.Matches(creator) }) {
		return admission.Allowed("")
	}
	response := admission.Denied(fmt.Sprintf("%s %s was created by %s without a controller, and no %s takes it over; "+
		"change the selector of the %s, or the labels of the %s", req.Kind.Kind, req.Name, describeCreator(creator), controller.Kind,
		controller.Kind, req.Kind.Kind))
	response.Result.Code, response.Result.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
	return response
}

// validateClaim allows that the workloads of its creator take over a claim, and StatefulSets without controller if they are newer:
// [ClaimRetentionValidator] judged these.
func (v *AdoptionValidator) validateClaim(ctx context.Context, req *admission.Request, creator string) admission.Response {
	var claim metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode metadata of claim: %w", err))
	}
	reference := metav1.GetControllerOfNoCopy(&claim)
	owner, err := v.Creators.owner(ctx, req.Namespace, reference)
	if err != nil {
		return undecided(fmt.Errorf("find the new owner of the claim: %w", err))
	}
	user, root, err := v.Creators.rootOf(ctx, owner)
	if err != nil && !errors.Is(err, errUnknownCreator) {
		return undecided(fmt.Errorf("find the creator of the claim's new owner: %w", err))
	}
	isJudged := root != nil && root.Kind == statefulSet.Kind && metav1.GetControllerOfNoCopy(root) == nil &&
		claim.CreationTimestamp.Before(&root.CreationTimestamp)
	if user == creator || isJudged {
		return admission.Allowed("")
	}
	return admission.Denied(fmt.Sprintf("volume claim %s was created by %s, and no %s of %s takes it over; use another name for the "+
		"workload or its claim template, or the retention policy Retain", claim.Name, describeCreator(creator), reference.Kind, describeCreator(user)))
}

func describeCreator(user string) string {
	if user == "" {
		return "an unknown user"
	}
	return user
}
