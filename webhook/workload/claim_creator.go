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
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
	"sluice.dev/webhook/evaluation"
)

// ClaimMutator records the creators of new volume claims, also of those that controllers create, and marks those of users who
// change only own objects as not shared. It refuses a claim that clones another user's, and a name that is another's already.
type ClaimMutator struct {
	// Claims reads claims and the creators of their owners.
	Claims *ClaimReader
	// Rights knows who may change what others created.
	Rights Rights
	// Scans limits the projects in which waiting pods are looked for at a time: these are large, and many.
	Scans *evaluation.Slots
}

// Rights are the rights of users; validation.Reviewer implements it.
type Rights interface {
	// ChangesOnlyOwn reports whether a role lets a user change what he created in a namespace, and none what others created.
	ChangesOnlyOwn(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error)
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
	ownOnly, err := m.changesOnlyOwn(ctx, &req, creator)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if ownOnly {
		isPrivate := creator != "" && claim.Labels[v1alpha1.SharedClaimLabel] != "true"
		finding, err := m.nameProblem(ctx, req.Namespace, claim.Name, creator, isPrivate)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if finding != "" {
			return admission.Denied("metadata.name: " + finding)
		}
	}
	after, warnings := object, []merge.Finding(nil)
	if _, exists := lookupPath(object, createdByPath); creator != "" {
		after, warnings = recordCreator(object, creator)
	} else if exists { // the claim is of an unknown user, as its workload is, and what the annotation says is not true
		after = copyWithout(object, createdByPath)
	}
	// Its author may have decided that. Claims of ServiceAccounts are shared, as those of users who change what others created.
	_, decided := claim.Labels[v1alpha1.SharedClaimLabel]
	if ownOnly && !decided && creator != "" && !strings.HasPrefix(creator, "system:") {
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

// nameProblem says whose the name of a new claim is already; empty if it is free. With a private claim, nothing of others may wait for it.
func (m *ClaimMutator) nameProblem(ctx context.Context, namespace, name, creator string, isPrivate bool) (string, error) {
	if finding, err := m.Claims.nameOfSet(ctx, namespace, name, creator, ""); finding != "" || err != nil || !isPrivate {
		return finding, err
	}
	release, err := m.Scans.Acquire(ctx, namespace)
	if err != nil {
		return "", err
	}
	defer release()
	return m.Claims.waiting(ctx, namespace, name, creator)
}

// creator returns who created a new claim: the user of the request, or the creator of the workload for which a controller creates it;
// empty if no object says who that is.
func (m *ClaimMutator) creator(ctx context.Context, req *admission.Request, claim *corev1.PersistentVolumeClaim) (string, error) {
	isOfSet, err := m.Claims.Creators.Controllers.IsControllerOf(ctx, req.UserInfo.Username, &statefulSet)
	if isOfSet && err == nil {
		isEphemeral, failure := m.isEphemeral(ctx, req.Namespace, claim)
		isOfSet, err = !isEphemeral, failure
	}
	if err != nil {
		return "", err
	}
	if !isOfSet {
		_, creator, err := m.Claims.Creators.labelOf(ctx, req, &metav1.PartialObjectMetadata{ObjectMeta: claim.ObjectMeta})
		return creator, err
	}
	// The claim of a StatefulSet has only the name, which the controller has from the template, the set and the ordinal. Its other metadata
	// is what the author of the template wrote, references to owners included.
	sets, err := m.Claims.statefulSets(ctx, req.Namespace, claim.Name)
	if len(sets) == 0 || err != nil {
		return "", err
	}
	creator, err := m.Claims.Creators.Of(ctx, sets[0])
	if errors.Is(err, errUnknownCreator) {
		return "", nil
	}
	return creator, err
}

// isEphemeral reports whether a claim is that of an ephemeral volume of the pod that controls it.
func (m *ClaimMutator) isEphemeral(ctx context.Context, namespace string, claim *corev1.PersistentVolumeClaim) (bool, error) {
	reference := metav1.GetControllerOfNoCopy(claim)
	if reference == nil || reference.APIVersion != "v1" || reference.Kind != "Pod" {
		return false, nil
	}
	var pod corev1.Pod
	err := m.Claims.Creators.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: reference.Name}, &pod)
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim.Name
	}), client.IgnoreNotFound(err)
}

// statefulSet stands for an owner of the kind.
var statefulSet = metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet"}

// changesOnlyOwn reports whether a creator may not change what others created. Of a creator who did not make the request, roles by a
// group are not known: that user counts as one who may not.
func (m *ClaimMutator) changesOnlyOwn(ctx context.Context, req *admission.Request, creator string) (bool, error) {
	if creator == req.UserInfo.Username {
		return m.Rights.ChangesOnlyOwn(ctx, req.UserInfo, req.Namespace)
	}
	if creator == "" {
		return true, nil
	}
	changesOthers, err := m.Rights.ChangesOthers(ctx, authenticationv1.UserInfo{Username: creator}, req.Namespace)
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
