// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// namespace reads one from the API server; nil where there is none. The cache
// would do on most days, but a claim must not rest on an annotation or a
// deletion that it has not seen yet.
func (r *Reconciler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
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

// makeNamespace makes it with the mark by which a later start knows it for the
// project's, and without the labels that would put it under governance.
func (r *Reconciler) makeNamespace(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        project.NamespaceName(),
		Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
		Annotations: map[string]string{v1alpha1.AnnotationMadeFor: string(project.UID)},
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

// label puts the namespace under the project's governance, and holds it to the
// level of Pod Security that the project and its department want.
func (r *Reconciler) label(ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, pools []facts.Pool, namespace *corev1.Namespace, claim tenancy.Claim) error {
	level := facts.PodSecurity(project, department)
	if stricterThan(namespace, level) {
		// Whose word that is, a cache does not keep.
		live, err := r.namespace(ctx, namespace.Name)
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
	secure(namespace, level)
	markQueued(namespace, pools)
	if equality.Semantic.DeepEqual(before.Labels, namespace.Labels) {
		return nil
	}
	if err := r.patchNamespace(ctx, before, namespace); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", namespace.Name, err)
	}
	if claim.Origin() == v1alpha1.NamespaceAdopted && before.Labels[v1alpha1.LabelProject] == "" {
		r.Events.Eventf(project, namespace, corev1.EventTypeNormal, "NamespaceAdopted", "AdoptNamespace", "adopted namespace %s", namespace.Name)
	}
	return nil
}

// unlabel takes back what lifecycle wrote on the namespace, and the consent to
// the adoption with it: it was given to this project, not to a later one of the
// same name.
func (r *Reconciler) unlabel(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) error {
	before := namespace.DeepCopy()
	if namespace.Labels[v1alpha1.LabelProject] == project.Name {
		delete(namespace.Labels, v1alpha1.LabelProject)
		delete(namespace.Labels, v1alpha1.LabelDepartment)
		delete(namespace.Labels, v1alpha1.LabelQueued)
		unsecure(namespace)
	}
	if namespace.Annotations[v1alpha1.AnnotationAdoptBy] == project.Name {
		delete(namespace.Annotations, v1alpha1.AnnotationAdoptBy)
	}
	if namespace.Annotations[v1alpha1.AnnotationMadeFor] == string(project.UID) {
		delete(namespace.Annotations, v1alpha1.AnnotationMadeFor)
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
