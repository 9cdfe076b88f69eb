// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// ClaimRetentionValidator refuses a StatefulSet whose claims would have the names of another StatefulSet's, and one that would delete
// volume claims of others with itself or when it is scaled: its controller takes over claims by their names. It handles new StatefulSets
// with claim templates, and those with such a retention policy, of users who may not change what others created. [AdoptionValidator]
// refuses to take over claims that were created after the StatefulSet.
type ClaimRetentionValidator struct {
	// Claims lists the claims.
	Claims *ClaimReader
}

var _ admission.Handler = (*ClaimRetentionValidator)(nil)

// Handle implements admission.Handler.
func (v *ClaimRetentionValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	var set appsv1.StatefulSet
	if err := json.Unmarshal(req.Object.Raw, &set); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode StatefulSet: %w", err))
	}
	_, creator, err := v.Claims.Creators.labelOf(ctx, &req, &metav1.PartialObjectMetadata{ObjectMeta: set.ObjectMeta})
	if err != nil {
		return undecided(fmt.Errorf("find the creator of the StatefulSet: %w; its claims are compared with that user", err))
	}
	for i := 0; req.Operation == admissionv1.Create && i < len(set.Spec.VolumeClaimTemplates); i++ {
		first := fmt.Sprintf("%s-%s-0", set.Spec.VolumeClaimTemplates[i].Name, set.Name)
		finding, err := v.Claims.nameOfSet(ctx, req.Namespace, first, creator, set.Name)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if finding != "" {
			return admission.Denied(fmt.Sprintf("spec.volumeClaimTemplates[%d].metadata.name: %s", i, finding))
		}
	}
	if retention := set.Spec.PersistentVolumeClaimRetentionPolicy; retention == nil ||
		retention.WhenDeleted != appsv1.DeletePersistentVolumeClaimRetentionPolicyType &&
			retention.WhenScaled != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		return admission.Allowed("")
	}
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(claimKind)
	if err := v.Claims.Creators.Live.List(ctx, claims, client.InNamespace(req.Namespace)); err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("list the volume claims of the namespace: %w", err))
	}
	var ofOthers []string
	for i := range claims.Items {
		claim := &claims.Items[i]
		owner := claim.Annotations[v1alpha1.AnnotationCreatedBy]
		if (owner != creator || owner == "") && isClaimOf(&set, claim.Name) {
			ofOthers = append(ofOthers, fmt.Sprintf("%s (of %s)", claim.Name, describeCreator(owner)))
		}
	}
	if len(ofOthers) == 0 {
		return admission.Allowed("")
	}
	slices.Sort(ofOthers)
	more := ""
	if len(ofOthers) > maxNamedClaims {
		more = fmt.Sprintf(" and %d others", len(ofOthers)-maxNamedClaims)
		ofOthers = ofOthers[:maxNamedClaims]
	}
	return admission.Denied(fmt.Sprintf("spec.persistentVolumeClaimRetentionPolicy: with Delete the StatefulSet would delete volume claims "+
		"of others, which have the names of its own: %s%s; use Retain, or another name for the StatefulSet or its claim template",
		strings.Join(ofOthers, ", "), more))
}

// maxNamedClaims is the number of claims that a message names.
const maxNamedClaims = 5

// isClaimOf reports whether a StatefulSet takes a claim of this name for one of its own.
func isClaimOf(set *appsv1.StatefulSet, claim string) bool {
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(template corev1.PersistentVolumeClaim) bool {
		prefix := template.Name + "-" + set.Name
		return ordinalSuffix.MatchString(claim) && ordinalSuffix.ReplaceAllString(claim, "") == prefix
	})
}
