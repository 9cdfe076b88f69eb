// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
)

// ClaimReader reads volume claims and their creators from the API server.
type ClaimReader struct {
	// Creators reads the objects, and resolves the creators of pods.
	Creators *CreatorResolver
}

var claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

// problem says why a pod or a claim of a user does not get the content of a claim; empty if it does.
func (r *ClaimReader) problem(ctx context.Context, namespace, name, user string) (string, error) {
	claim, err := r.Creators.get(ctx, claimKind, namespace, name)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("there is no volume claim %s; create the claim first: else the pod would mount a later claim of that name", name), nil
	}
	if err != nil {
		return "", fmt.Errorf("get volume claim %s: %w", name, err)
	}
	if claim.DeletionTimestamp != nil {
		return fmt.Sprintf("volume claim %s is being deleted; create it again first: "+
			"else the pod would mount a later claim of that name", name), nil
	}
	shared, labeled := claim.Labels[v1alpha1.SharedClaimLabel]
	creator := claim.Annotations[v1alpha1.AnnotationCreatedBy]
	if !labeled || shared == "true" || creator == user {
		return "", nil
	}
	return fmt.Sprintf("volume claim %s was created by %s, and only that user's pods mount it; it is shared by its label: "+
		"kubectl label pvc %s -n %s --overwrite %s=true, which its creator, an L1 researcher or an editor may do",
		name, describeCreator(creator), name, namespace, v1alpha1.SharedClaimLabel), nil
}

// claimsOf returns the fields of a pod or a template that name a claim.
func claimsOf(pod map[string]any) (references []claimReference) {
	for i, volume := range mergeschema.AsList(mergeschema.AsMap(pod["spec"])["volumes"]) {
		if source := mergeschema.AsMap(mergeschema.AsMap(volume)["persistentVolumeClaim"]); source != nil {
			field := fmt.Sprintf("spec.volumes[%d].persistentVolumeClaim.claimName", i)
			references = append(references, claimReference{field, mergeschema.AsString(source["claimName"])})
		}
	}
	return references
}

// warnings say for which claims the pods of a user's template would be refused now.
func (r *ClaimReader) warnings(ctx context.Context, namespace string, t workloadkind.Template, user string) (warnings []merge.Finding) {
	if r == nil {
		return nil
	}
	for _, reference := range claimsOf(t.Body) {
		// The pods are the gate, so without an answer there is no warning.
		if problem, err := r.problem(ctx, namespace, reference.name, user); err == nil && problem != "" {
			warnings = append(warnings, merge.Finding{Field: t.Field(reference.field), Message: problem})
		}
	}
	return warnings
}
