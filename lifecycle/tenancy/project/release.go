// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/apply"
)

// reconcileDelete revokes the members' rights of a project that is being deleted, waits for its
// GPU work if its namespace stays, records the Notice, releases the namespace, and removes the
// finalizer.
func (r *Reconciler) reconcileDelete(ctx context.Context, project *v1alpha1.Project) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(project, v1alpha1.FinalizerProject) {
		return reconcile.Result{}, nil
	}
	// Members create nothing more in what is about to be deleted.
	if err := r.Access.Revoke(ctx, project); err != nil {
		return reconcile.Result{}, err
	}
	namespace, claim, err := r.ownNamespace(ctx, project)
	if err != nil {
		return reconcile.Result{}, err
	}
	if namespace != nil && claim == tenancy.ClaimCreated && !namespace.DeletionTimestamp.IsZero() {
		// The events of the namespace enqueue the project again.
		return reconcile.Result{}, r.updateStatus(ctx, project, Outcome{})
	}
	kept := retention{}
	if namespace != nil {
		if kept, err = r.decideRetention(ctx, project, namespace, claim); err != nil {
			return reconcile.Result{}, err
		}
	}
	if kept.cause != "" {
		waits, err := r.waitForGPUWork(ctx, project, namespace.Name)
		if err != nil {
			return reconcile.Result{}, err
		}
		if waits != nil {
			return r.wait(ctx, project, waits)
		}
	}
	if err := r.recordDeletion(ctx, project, namespace, kept); err != nil {
		return reconcile.Result{}, err
	}
	if namespace != nil {
		if done, err := r.releaseNamespace(ctx, project, namespace, kept); !done || err != nil {
			return reconcile.Result{}, errors.Join(err, r.updateStatus(ctx, project, Outcome{}))
		}
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

// ownNamespace returns the project's namespace and the claim to it, or nil if it does not exist or
// never was the project's.
func (r *Reconciler) ownNamespace(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, tenancy.Claim, error) {
	namespace, err := r.getNamespace(ctx, project.NamespaceName())
	if err != nil || namespace == nil {
		return nil, "", err
	}
	claim, _ := tenancy.DecideExistingClaim(project, namespace)
	if claim != tenancy.ClaimCreated && claim != tenancy.ClaimAdopted {
		return nil, "", nil
	}
	return namespace, claim, nil
}

// retention is why a namespace is not deleted with its project. The zero value means that it is
// deleted.
type retention struct {
	// cause is a code of the mail.
	cause string
	// volumes is the number of volume claims in the namespace.
	volumes int
}

// decideRetention decides whether the namespace stays.
func (r *Reconciler) decideRetention(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, claim tenancy.Claim,
) (retention, error) {
	volumes, err := r.countVolumeClaims(ctx, namespace.Name)
	if err != nil {
		return retention{}, err
	}
	switch {
	case claim == tenancy.ClaimAdopted:
		return retention{mail.CauseNamespaceAdopted, volumes}, nil
	case namespace.Annotations[v1alpha1.AnnotationCreatedFor] != string(project.UID):
		// A user removes the annotation to keep the namespace.
		return retention{mail.CauseNamespaceUnmarked, volumes}, nil
	case volumes > 0:
		return retention{mail.CauseVolumeClaims, volumes}, nil
	}
	return retention{}, nil
}

// releaseNamespace deletes or orphans the namespace and reports whether that is done.
func (r *Reconciler) releaseNamespace(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, kept retention,
) (bool, error) {
	if kept.cause == "" {
		err := r.Client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
		}
		return false, nil
	}
	if err := r.orphanNamespace(ctx, project, namespace); err != nil {
		return false, err
	}
	if reason := kept.describe(); reason != "" {
		r.Events.Eventf(namespace, project, corev1.EventTypeWarning, "NamespaceKept", "ReleaseNamespace",
			"project %s was deleted; the namespace stays without governance because %s: delete it yourself, or let another project adopt it",
			project.Name, reason)
	}
	return true, nil
}

// describe returns why a namespace that Sluice created is not deleted, or "".
func (k retention) describe() string {
	switch k.cause {
	case mail.CauseNamespaceUnmarked:
		return "its annotation " + v1alpha1.AnnotationCreatedFor + " was removed"
	case mail.CauseVolumeClaims:
		return fmt.Sprintf("it holds %d volume claims", k.volumes)
	}
	return ""
}

// orphanNamespace removes the project's labels and objects from the namespace. The
// quotas go last: they hold the limit while the label is there.
func (r *Reconciler) orphanNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace) error {
	if err := r.unlabelNamespace(ctx, project, namespace); err != nil {
		return err
	}
	return r.applier().Remove(ctx, apply.ProjectTarget(project))
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
