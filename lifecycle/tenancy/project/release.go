// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// reconcileDelete revokes the members' rights of a project that is being deleted, then
// releases its namespace, then removes the finalizer.
func (r *Reconciler) reconcileDelete(ctx context.Context, project *v1alpha1.Project) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(project, v1alpha1.FinalizerProject) {
		return reconcile.Result{}, nil
	}
	// Members create nothing more in what is about to be deleted.
	if err := r.Access.Revoke(ctx, project); err != nil {
		return reconcile.Result{}, err
	}
	done, err := r.releaseNamespace(ctx, project)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !done {
		// The events of the namespace enqueue the project again.
		return reconcile.Result{}, r.updateStatus(ctx, project, Outcome{})
	}
	// The queues outlast the pods, which they count.
	if err := r.applier().Remove(ctx, apply.ClusterTarget(apply.SubjectProject, project.Name)); err != nil {
		return reconcile.Result{}, err
	}
	before := project.DeepCopy()
	controllerutil.RemoveFinalizer(project, v1alpha1.FinalizerProject)
	err = r.Client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove the finalizer of project %s: %w", project.Name, err)
	}
	return reconcile.Result{}, nil
}

// releaseNamespace deletes or orphans the namespace and reports whether that is done.
func (r *Reconciler) releaseNamespace(ctx context.Context, project *v1alpha1.Project) (bool, error) {
	namespace, err := r.getNamespace(ctx, project.NamespaceName())
	if err != nil || namespace == nil {
		return err == nil, err
	}
	switch claim, _ := tenancy.DecideExistingClaim(project, namespace); claim {
	case tenancy.ClaimCreated:
		return r.releaseCreatedNamespace(ctx, project, namespace)
	case tenancy.ClaimAdopted:
		return true, r.orphanNamespace(ctx, project, namespace)
	default:
		// The namespace never was this project's.
		return true, nil
	}
}

func (r *Reconciler) releaseCreatedNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) (bool, error) {
	if !namespace.DeletionTimestamp.IsZero() {
		return false, nil
	}
	reason, err := r.retentionReason(ctx, project, namespace)
	if err != nil {
		return false, err
	}
	if reason != "" {
		if err := r.orphanNamespace(ctx, project, namespace); err != nil {
			return false, err
		}
		r.Events.Eventf(namespace, project, corev1.EventTypeWarning, "NamespaceKept", "ReleaseNamespace",
			"project %s was deleted; the namespace stays without governance because %s: delete it yourself, or let another project adopt it",
			project.Name, reason)
		return true, nil
	}
	err = r.Client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
	}
	return false, nil
}

// orphanNamespace removes the project's labels and objects from the namespace. The
// quotas go last: they hold the limit while the label is there.
func (r *Reconciler) orphanNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) error {
	if err := r.unlabelNamespace(ctx, project, namespace); err != nil {
		return err
	}
	return r.applier().Remove(ctx, apply.ProjectTarget(project))
}

// retentionReason returns why a namespace that Sluice created is not deleted, or "".
func (r *Reconciler) retentionReason(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) (string, error) {
	if namespace.Annotations[v1alpha1.AnnotationCreatedFor] != string(project.UID) {
		// A user removes the annotation to keep the namespace.
		return "its annotation " + v1alpha1.AnnotationCreatedFor + " was removed", nil
	}
	volumes, err := r.countVolumeClaims(ctx, namespace.Name)
	if err != nil || volumes == 0 {
		return "", err
	}
	return fmt.Sprintf("it holds %d volume claims", volumes), nil
}

// countVolumeClaims counts on the API server: a claim that a cache does not have yet would
// be deleted with the namespace. Only a claim that is created between this count and
// the deletion is; the members have lost their rights before.
func (r *Reconciler) countVolumeClaims(ctx context.Context, namespace string) (int, error) {
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := r.Live.List(ctx, claims, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("list the volume claims in namespace %s: %w", namespace, err)
	}
	return len(claims.Items), nil
}
