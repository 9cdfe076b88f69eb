// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"encoding/json"
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
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/policies/input"
)

// reconcileNamespace returns the project's namespace, which it creates if there is none,
// and by which claim the project has it; or why it cannot have it.
func (r *Reconciler) reconcileNamespace(
	ctx context.Context, project *v1alpha1.Project,
) (*corev1.Namespace, tenancy.Claim, *tenancy.ClaimError, error) {
	var cached corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.NamespaceName()}, &cached)
	switch {
	case apierrors.IsNotFound(err):
		// If the cache is behind, the API server refuses to create a second one.
		namespace, refusal, err := r.createNamespaceIfAllowed(ctx, project)
		if namespace != nil || refusal != nil || !apierrors.IsAlreadyExists(err) {
			return namespace, tenancy.ClaimCreate, refusal, err
		}
	case err != nil:
		return nil, "", nil, fmt.Errorf("read namespace %s: %w", project.NamespaceName(), err)
	case ownsNamespace(project, &cached):
		claim, refusal := tenancy.DecideClaim(project, &cached)
		return &cached, claim, refusal, nil
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

// createNamespaceIfAllowed creates the namespace if the project may have one of that name.
func (r *Reconciler) createNamespaceIfAllowed(
	ctx context.Context, project *v1alpha1.Project,
) (*corev1.Namespace, *tenancy.ClaimError, error) {
	if _, refusal := tenancy.DecideClaim(project, nil); refusal != nil {
		return nil, refusal, nil
	}
	namespace, err := r.createNamespace(ctx, project)
	return namespace, nil, err
}

// ownsNamespace reports whether the status records this namespace. It compares the UID, so
// that annotations do not matter, which a cache may not have yet.
func ownsNamespace(project *v1alpha1.Project, namespace *corev1.Namespace) bool {
	return project.Status.Namespace != nil && project.Status.Namespace.UID == namespace.UID && namespace.DeletionTimestamp.IsZero()
}

// checkNamespaceConflict refuses the project if another with precedence names the same
// namespace. Admission refuses the second of two projects, but not of two that are
// created at the same time.
func (r *Reconciler) checkNamespaceConflict(ctx context.Context, project *v1alpha1.Project) (*tenancy.ClaimError, error) {
	var others v1alpha1.ProjectList
	if err := r.Client.List(ctx, &others, client.MatchingFields{inventory.ProjectsByNamespace: project.NamespaceName()}); err != nil {
		return nil, fmt.Errorf("list the projects of namespace %s: %w", project.NamespaceName(), err)
	}
	if len(others.Items) < 2 {
		return nil, nil
	}
	namespace, err := r.getNamespace(ctx, project.NamespaceName())
	if err != nil {
		return nil, err
	}
	for i := range others.Items {
		if other := &others.Items[i]; other.UID != project.UID && hasPrecedence(other, project, namespace) {
			return tenancy.NewNamespaceTakenError(project.NamespaceName(), other.Name), nil
		}
	}
	return nil, nil
}

// hasPrecedence orders two projects that name one namespace, which is nil if it does not
// exist: first the one that has it, then the older, then by name.
func hasPrecedence(a, b *v1alpha1.Project, namespace *corev1.Namespace) bool {
	if hasA, hasB := hasNamespace(a, namespace), hasNamespace(b, namespace); hasA != hasB {
		return hasA
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// hasNamespace reports whether the project has its namespace. The annotation is written when
// the namespace is created, the status only after that.
func hasNamespace(project *v1alpha1.Project, namespace *corev1.Namespace) bool {
	return project.Status.Namespace != nil ||
		namespace != nil && project.UID != "" && namespace.Annotations[v1alpha1.AnnotationCreatedFor] == string(project.UID)
}

// getNamespace reads a namespace from the API server, or returns nil. A claim must not
// depend on a stale annotation or deletion in a cache.
func (r *Reconciler) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return &namespace, nil
}

// createNamespace creates the namespace with the annotation that records its project and
// without the labels that would govern it.
func (r *Reconciler) createNamespace(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        project.NamespaceName(),
		Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedFor: string(project.UID)},
	}}
	if err := r.Client.Create(ctx, namespace, client.FieldOwner(v1alpha1.FieldManagerLifecycle)); err != nil {
		// A namespace that was created just now is checked by the next try.
		return nil, fmt.Errorf("create namespace %s: %w", namespace.Name, err)
	}
	r.Events.Eventf(project, namespace, corev1.EventTypeNormal, "NamespaceCreated", "CreateNamespace", "created namespace %s", namespace.Name)
	return namespace, nil
}

func (r *Reconciler) recordNamespace(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, claim tenancy.Claim,
) error {
	record := &v1alpha1.ProjectNamespace{Name: namespace.Name, UID: namespace.UID, Origin: claim.Origin()}
	if equality.Semantic.DeepEqual(project.Status.Namespace, record) {
		return nil
	}
	status := project.Status.DeepCopy()
	status.Namespace = record
	return r.applyStatus(ctx, project, status)
}

// labelNamespace labels the namespace as governed and sets the level of Pod Security of
// the project and its department.
func (r *Reconciler) labelNamespace(
	ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, pools []input.NodePool,
	namespace *corev1.Namespace, claim tenancy.Claim,
) error {
	level := input.EffectivePodSecurity(project, department)
	if hasStricterPodSecurity(namespace, level) {
		// Caches do not have the managed fields, which name the author of the label.
		live, err := r.getNamespace(ctx, namespace.Name)
		if err != nil || live == nil {
			return err // nil, nil: the namespace is gone
		}
		namespace = live
	}
	before := namespace.DeepCopy()
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[v1alpha1.LabelProject] = project.Name
	namespace.Labels[v1alpha1.LabelDepartment] = project.Spec.Department
	delete(namespace.Labels, v1alpha1.LabelFormerProject)
	delete(namespace.Annotations, v1alpha1.AnnotationFormerProject)
	setPodSecurity(namespace, level)
	setQueuedLabel(namespace, pools)
	if equality.Semantic.DeepEqual(before.ObjectMeta, namespace.ObjectMeta) {
		return nil
	}
	if err := r.patchNamespace(ctx, before, namespace); err != nil {
		return fmt.Errorf("label namespace %s: %w", namespace.Name, err)
	}
	if claim.Origin() == v1alpha1.NamespaceAdopted && before.Labels[v1alpha1.LabelProject] == "" {
		r.Events.Eventf(project, namespace, corev1.EventTypeNormal, "NamespaceAdopted", "AdoptNamespace", "adopted namespace %s", namespace.Name)
	}
	return nil
}

// unlabelNamespace removes what lifecycle wrote on the namespace, and the consent to the
// adoption: it was given to this project, not to a later one of the same name. In the same write it
// records the former project, unless the namespace never was governed and others work in it.
func (r *Reconciler) unlabelNamespace(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, former formerProject,
) error {
	record, err := json.Marshal(former)
	if err != nil {
		return fmt.Errorf("encode the former project of namespace %s: %w", namespace.Name, err)
	}
	before := namespace.DeepCopy()
	if namespace.Labels[v1alpha1.LabelProject] == project.Name || former.Cause != mail.CauseNamespaceAdopted {
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, v1alpha1.LabelFormerProject, project.Name)
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationFormerProject, string(record))
	}
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
		return fmt.Errorf("remove the labels of namespace %s: %w", namespace.Name, err)
	}
	return nil
}

func (r *Reconciler) patchNamespace(ctx context.Context, before, after *corev1.Namespace) error {
	return r.Client.Patch(ctx, after,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}
