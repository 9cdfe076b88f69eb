// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/input"
)

// reconcileNamespace is the project's namespace, made where there was none, and how the
// project came by it; or why it cannot have it.
func (r *Reconciler) reconcileNamespace(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, tenancy.Claim, *tenancy.ClaimError, error) {
	var seen corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.NamespaceName()}, &seen)
	switch {
	case apierrors.IsNotFound(err):
		// Where a cache is behind, the API server refuses to make a second one.
		namespace, refusal, err := r.createNamespaceIfAllowed(ctx, project)
		if namespace != nil || refusal != nil || !apierrors.IsAlreadyExists(err) {
			return namespace, tenancy.ClaimCreate, refusal, err
		}
	case err != nil:
		return nil, "", nil, fmt.Errorf("reading namespace %s: %w", project.NamespaceName(), err)
	case ownsNamespace(project, &seen):
		claim, refusal := tenancy.DecideClaim(project, &seen)
		return &seen, claim, refusal, nil
	}
	namespace, err := r.getNamespace(ctx, project.NamespaceName())
	if err != nil {
		return nil, "", nil, err
	}
	if namespace == nil {
		namespace, refusal, err := r.createNamespaceIfAllowed(ctx, project)
		return namespace, tenancy.ClaimCreate, refusal, err
	}
	claim, refusal := tenancy.DecideClaim(project, namespace)
	return namespace, claim, refusal, nil
}

// createNamespaceIfAllowed makes the namespace, where the project may have one of that name.
func (r *Reconciler) createNamespaceIfAllowed(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, *tenancy.ClaimError, error) {
	if _, refusal := tenancy.DecideClaim(project, nil); refusal != nil {
		return nil, refusal, nil
	}
	namespace, err := r.createNamespace(ctx, project)
	return namespace, nil, err
}

// ownsNamespace tells whether the project has this namespace for good: by its UID, so that
// no annotation matters of which a cache does not know yet.
func ownsNamespace(project *v1alpha1.Project, namespace *corev1.Namespace) bool {
	return project.Status.Namespace != nil && project.Status.Namespace.UID == namespace.UID && namespace.DeletionTimestamp.IsZero()
}

// checkNamespaceConflict refuses the project where another that came first names the same
// namespace. Admission refuses the second of two that come one after the other;
// two at the same instant both pass it, and meet here.
func (r *Reconciler) checkNamespaceConflict(ctx context.Context, project *v1alpha1.Project) (*tenancy.ClaimError, error) {
	var rivals v1alpha1.ProjectList
	if err := r.Client.List(ctx, &rivals, client.MatchingFields{inventory.ProjectsByNamespace: project.NamespaceName()}); err != nil {
		return nil, fmt.Errorf("listing the projects of namespace %s: %w", project.NamespaceName(), err)
	}
	for i := range rivals.Items {
		if rival := &rivals.Items[i]; rival.UID != project.UID && hasPrecedence(rival, project) {
			return tenancy.NewNamespaceTakenError(project.NamespaceName(), rival.Name), nil
		}
	}
	return nil, nil
}

// hasPrecedence orders two projects that name one namespace: who has it keeps it,
// else the older, else the one whose name sorts first.
func hasPrecedence(a, b *v1alpha1.Project) bool {
	if hasA, hasB := a.Status.Namespace != nil, b.Status.Namespace != nil; hasA != hasB {
		return hasA
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// getNamespace reads one from the API server; nil where there is none. The cache
// would do on most days, but a claim must not rest on an annotation or a
// deletion that it has not seen yet.
func (r *Reconciler) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return &namespace, nil
}

// createNamespace makes it with the mark by which a later start knows it for the
// project's, and without the labels that would put it under governance.
func (r *Reconciler) createNamespace(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        project.NamespaceName(),
		Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedFor: string(project.UID)},
	}}
	if err := r.Client.Create(ctx, namespace, client.FieldOwner(v1alpha1.FieldManagerLifecycle)); err != nil {
		// Somebody made one of that name just now: the next try judges it.
		return nil, fmt.Errorf("making namespace %s: %w", namespace.Name, err)
	}
	r.Events.Eventf(project, namespace, corev1.EventTypeNormal, "NamespaceMade", "MakeNamespace", "made namespace %s", namespace.Name)
	return namespace, nil
}

func (r *Reconciler) recordNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, claim tenancy.Claim) error {
	record := &v1alpha1.ProjectNamespace{Name: namespace.Name, UID: namespace.UID, Origin: claim.Origin()}
	if equality.Semantic.DeepEqual(project.Status.Namespace, record) {
		return nil
	}
	project.Status.Namespace = record
	if err := r.Client.Status().Update(ctx, project); err != nil {
		return fmt.Errorf("recording the namespace of project %s: %w", project.Name, err)
	}
	return nil
}

// labelNamespace puts the namespace under the project's governance, and holds it to the
// level of Pod Security that the project and its department want.
func (r *Reconciler) labelNamespace(ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, pools []input.NodePool, namespace *corev1.Namespace, claim tenancy.Claim) error {
	level := input.EffectivePodSecurity(project, department)
	if hasStricterPodSecurity(namespace, level) {
		// Whose word that is, a cache does not keep.
		live, err := r.getNamespace(ctx, namespace.Name)
		if err != nil || live == nil {
			return err // once it is gone, there is nothing to label
		}
		namespace = live
	}
	before := namespace.DeepCopy()
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[v1alpha1.LabelProject] = project.Name
	namespace.Labels[v1alpha1.LabelDepartment] = project.Spec.Department
	setPodSecurity(namespace, level)
	setQueuedLabel(namespace, pools)
	if equality.Semantic.DeepEqual(before.Labels, namespace.Labels) {
		return nil
	}
	if err := r.patchNamespace(ctx, before, namespace); err != nil {
		return fmt.Errorf("labeling namespace %s: %w", namespace.Name, err)
	}
	if claim.Origin() == v1alpha1.NamespaceAdopted && before.Labels[v1alpha1.LabelProject] == "" {
		r.Events.Eventf(project, namespace, corev1.EventTypeNormal, "NamespaceAdopted", "AdoptNamespace", "adopted namespace %s", namespace.Name)
	}
	return nil
}

// unlabelNamespace takes back what lifecycle wrote on the namespace, and the consent to
// the adoption with it: it was given to this project, not to a later one of the
// same name.
func (r *Reconciler) unlabelNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) error {
	before := namespace.DeepCopy()
	if namespace.Labels[v1alpha1.LabelProject] == project.Name {
		delete(namespace.Labels, v1alpha1.LabelProject)
		delete(namespace.Labels, v1alpha1.LabelDepartment)
		delete(namespace.Labels, v1alpha1.LabelQueued)
		removePodSecurity(namespace)
	}
	if namespace.Annotations[v1alpha1.AnnotationAdoptBy] == project.Name {
		delete(namespace.Annotations, v1alpha1.AnnotationAdoptBy)
	}
	if namespace.Annotations[v1alpha1.AnnotationCreatedFor] == string(project.UID) {
		delete(namespace.Annotations, v1alpha1.AnnotationCreatedFor)
		delete(namespace.Labels, v1alpha1.LabelManagedBy)
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, namespace.ObjectMeta) {
		return nil
	}
	if err := r.patchNamespace(ctx, before, namespace); err != nil {
		return fmt.Errorf("taking the labels off namespace %s: %w", namespace.Name, err)
	}
	return nil
}

func (r *Reconciler) patchNamespace(ctx context.Context, before, after *corev1.Namespace) error {
	return r.Client.Patch(ctx, after,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}
