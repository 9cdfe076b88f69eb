// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// ClaimMutator records the creators of new volume claims, also of those that controllers create, and marks those of users who
// change only own objects as not shared. It refuses a claim that clones another user's.
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
	private, err := m.isPrivate(ctx, &req, &claim, creator)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if private {
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
	set, err := m.statefulSetOf(ctx, req.Namespace, claim.Name)
	if set == nil || err != nil {
		return "", err
	}
	creator, err := m.Claims.Creators.Of(ctx, set)
	if errors.Is(err, errUnknownCreator) {
		return "", nil
	}
	return creator, err
}

// statefulSet stands for an owner of the kind.
var statefulSet = metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet"}

var ordinalSuffix = regexp.MustCompile(`-[0-9]+$`)

// statefulSetOf returns the metadata of the StatefulSet that has a claim template for a name; nil if none has.
func (m *ClaimMutator) statefulSetOf(ctx context.Context, namespace, claim string) (*metav1.PartialObjectMetadata, error) {
	prefix := ordinalSuffix.ReplaceAllString(claim, "")
	for i := range prefix {
		if prefix[i] != '-' {
			continue
		}
		var set appsv1.StatefulSet
		err := m.Claims.Creators.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: prefix[i+1:]}, &set)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get StatefulSet %s: %w", prefix[i+1:], err)
		}
		if isClaimOf(&set, claim) {
			metadata := &metav1.PartialObjectMetadata{ObjectMeta: set.ObjectMeta}
			metadata.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(statefulSet.Kind))
			return metadata, nil
		}
	}
	return nil, nil
}

// isPrivate reports whether only pods of its creator mount a new claim. Its author may have decided that. Claims of ServiceAccounts are
// shared, as those of users who change what others created.
func (m *ClaimMutator) isPrivate(
	ctx context.Context, req *admission.Request, claim *corev1.PersistentVolumeClaim, creator string,
) (bool, error) {
	if _, decided := claim.Labels[v1alpha1.SharedClaimLabel]; decided || strings.HasPrefix(creator, "system:") {
		return false, nil
	}
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
