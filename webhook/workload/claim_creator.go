// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// ClaimMutator records the creators of new volume claims, also of those that controllers create, and marks those of users who
// change only own objects as not shared. It refuses a claim that clones another user's, and names that are another's (see claimName).
type ClaimMutator struct {
	// Claims reads claims and the creators of their owners.
	Claims *ClaimReader
	// Rights knows who may change what others created.
	Rights Rights
}

// Rights are the rights of users; validation.Reviewer implements it.
type Rights interface {
	// ChangesOthers reports whether a user may change what others created in a namespace.
	ChangesOthers(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error)
}

var _ admission.Handler = (*ClaimMutator)(nil)

// Handle implements admission.Handler.
func (m *ClaimMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	var claim corev1.PersistentVolumeClaim
	if err := json.Unmarshal(req.Object.Raw, &claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode claim: %w", err))
	}
	creator, err := m.creator(ctx, &req, &claim)
	if err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("find the creator of the claim: %w", err))
	}
	for _, source := range clonedClaims(&claim) {
		finding, err := m.Claims.problem(ctx, req.Namespace, source.name, creator)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if finding != "" {
			return admission.Denied(source.field + ": " + finding)
		}
	}
	if creator == "" { // the claim is of an unknown user, as its workload is
		return admission.Allowed("")
	}
	after, warnings := recordCreator(object, creator)
	ownOnly, err := m.changesOnlyOwn(ctx, &req, creator)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if ownOnly {
		name := claimName{m.Claims.Creators, req.Namespace, claim.Name, creator}
		finding, err := name.problem(ctx, claim.Labels[v1alpha1.SharedClaimLabel] != "true")
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if finding != "" {
			return admission.Denied("metadata.name: " + finding)
		}
	}
	// Its author may have decided that. Claims of ServiceAccounts are shared, as those of users who change what others created.
	if _, decided := claim.Labels[v1alpha1.SharedClaimLabel]; ownOnly && !decided && !strings.HasPrefix(creator, "system:") {
		if changed, ok := copyWithValue(after, []string{"metadata", "labels", v1alpha1.SharedClaimLabel}, "false"); ok {
			after = changed
		}
	}
	response := admission.Allowed("")
	for _, warning := range warnings {
		response.Warnings = append(response.Warnings, warning.Field+": "+warning.Message)
	}
	if err := evaluation.SetPatch(&response, object, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}

// creator returns who created a new claim: the user of the request, or the creator of the workload for which a controller creates it;
// empty if no object says who that is.
func (m *ClaimMutator) creator(ctx context.Context, req *admission.Request, claim *corev1.PersistentVolumeClaim) (string, error) {
	user := req.UserInfo.Username
	isController, err := m.Claims.Creators.Controllers.IsControllerOf(ctx, user, &statefulSet)
	if err != nil {
		return "", err
	}
	if !isController || metav1.GetControllerOfNoCopy(claim) != nil {
		_, creator, err := m.Claims.Creators.labelOf(ctx, req, &metav1.PartialObjectMetadata{ObjectMeta: claim.ObjectMeta})
		return creator, err
	}
	// The claim of a StatefulSet has only the name, which the controller has from the template, the set and the ordinal.
	sets, err := claimName{m.Claims.Creators, req.Namespace, claim.Name, ""}.statefulSets(ctx)
	if len(sets) == 0 || err != nil {
		return "", err
	}
	creator, err := m.Claims.Creators.Of(ctx, sets[0])
	if errors.Is(err, errUnknownCreator) {
		return "", nil
	}
	return creator, err
}

// statefulSet stands for an owner of the kind.
var statefulSet = metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet"}

// changesOnlyOwn reports whether a creator may not change what others created.
func (m *ClaimMutator) changesOnlyOwn(ctx context.Context, req *admission.Request, creator string) (bool, error) {
	user := authenticationv1.UserInfo{Username: creator}
	if creator == req.UserInfo.Username {
		user = req.UserInfo
	}
	changesOthers, err := m.Rights.ChangesOthers(ctx, user, req.Namespace)
	return !changesOthers, err
}

// claimReference is a field of an object that names a claim.
type claimReference struct{ field, name string }

// clonedClaims returns the fields by which a claim gets the content of another one of its namespace.
func clonedClaims(claim *corev1.PersistentVolumeClaim) (references []claimReference) {
	if source := claim.Spec.DataSource; source != nil && source.Kind == "PersistentVolumeClaim" {
		references = append(references, claimReference{"spec.dataSource", source.Name})
	}
	if source := claim.Spec.DataSourceRef; source != nil && source.Kind == "PersistentVolumeClaim" {
		references = append(references, claimReference{"spec.dataSourceRef", source.Name})
	}
	return references
}
