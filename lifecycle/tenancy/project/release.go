// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/apply"
)

// reconcileLiveDelete ends a project that still exists. A cache can have it for a moment after its end, and
// what was removed would come back for ever.
func (r *Reconciler) reconcileLiveDelete(ctx context.Context, cached *v1alpha1.Project) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), &project)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read project %s: %w", cached.Name, err)
	case project.UID != cached.UID:
		return reconcile.Result{}, nil
	}
	return r.reconcileDelete(ctx, &project)
}

// reconcileDelete ends a project in an order that leaves nothing ungoverned and loses no volume: rights,
// new volume claims, GPU work, the Notice, the namespace, the queues, and last the Project itself. Each
// step can be repeated.
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
	kept, plan := retention{}, removal{}
	if namespace != nil {
		if !namespace.DeletionTimestamp.IsZero() {
			// The events of the namespace enqueue the project again.
			return reconcile.Result{}, r.updateStatus(ctx, project, Outcome{DeletionWaits: describeTermination(namespace)})
		}
		var waits *problem
		if kept, plan, waits, err = r.prepareNamespace(ctx, project, namespace, claim); waits != nil || err != nil {
			return r.wait(ctx, project, waits, err)
		}
	}
	if err := r.recordDeletion(ctx, project, namespace, kept, plan); err != nil {
		return reconcile.Result{}, err
	}
	if namespace != nil {
		if waits, err := r.removeWorkloads(ctx, project, plan, namespace.Name); waits != nil || err != nil {
			return r.wait(ctx, project, waits, err)
		}
		if done, err := r.releaseNamespace(ctx, project, namespace, kept, plan); !done || err != nil {
			return reconcile.Result{}, errors.Join(err, r.updateStatus(ctx, project, Outcome{}))
		}
	}
	return reconcile.Result{}, r.removeProject(ctx, project)
}

// prepareNamespace ends rights, new volume claims and GPU work in the namespace, and returns what becomes of
// it, or what it waits for. Of an adopted namespace that never was governed nothing is the project's.
func (r *Reconciler) prepareNamespace(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, claim tenancy.Claim,
) (kept retention, plan removal, waits *problem, err error) {
	released := r.isReleased(project, namespace)
	governed := namespace.Labels[v1alpha1.LabelProject] == project.Name || released
	if claim == tenancy.ClaimAdopted && !governed {
		kept, err = r.decideRetention(ctx, project, namespace, claim)
		return kept, plan, nil, err
	}
	if err := r.Access.RevokeNamespace(ctx, project, namespace.Name); err != nil {
		return kept, plan, nil, err
	}
	// A cache that still has the Project, which is gone, must not bring back the quota of a released namespace.
	if !released {
		if waits, err := r.refuseVolumeClaims(ctx, project, namespace.Name); waits != nil || err != nil {
			return kept, plan, waits, err
		}
	}
	if kept, err = r.decideRetention(ctx, project, namespace, claim); err != nil || kept.cause == "" {
		return kept, plan, nil, err
	}
	if waits, err := r.waitForGPUWork(ctx, project, namespace.Name); waits != nil || err != nil {
		return kept, plan, waits, err
	}
	plan, waits, err = r.planRemoval(ctx, project, namespace.Name)
	return kept, plan, waits, err
}

// removeProject removes the queues, which outlast the pods that they count, and then the finalizer.
func (r *Reconciler) removeProject(ctx context.Context, project *v1alpha1.Project) error {
	if err := r.applier().Remove(ctx, apply.ClusterTarget(apply.SubjectProject, project.Name)); err != nil {
		return err
	}
	before := project.DeepCopy()
	controllerutil.RemoveFinalizer(project, v1alpha1.FinalizerProject)
	err := r.Client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of project %s: %w", project.Name, err)
	}
	r.claimsRefused.forget(project.UID)
	return nil
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
	claims, err := r.listVolumeClaims(ctx, namespace.Name)
	if err != nil {
		return retention{}, err
	}
	volumes := len(claims)
	switch {
	case r.isReleased(project, namespace):
		return retention{readFormerProject(namespace).Cause, volumes}, nil
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
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, kept retention, plan removal,
) (bool, error) {
	if kept.cause == "" {
		err := r.Client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
		}
		return false, nil
	}
	if err := r.orphanNamespace(ctx, project, namespace, kept); err != nil {
		return false, err
	}
	r.Events.Eventf(namespace, project, corev1.EventTypeWarning, "NamespaceKept", "ReleaseNamespace",
		"project %s was deleted; the namespace stays because %s, and accepts no pods with GPUs: delete it, or let another project adopt it",
		project.Name, kept.describe())
	if rest := plan.describe(); rest != "" {
		r.Events.Eventf(namespace, project, corev1.EventTypeWarning, "WorkloadsKept", "ReleaseNamespace",
			"project %s was deleted; these stay: %s", project.Name, rest)
	}
	return true, nil
}

// describe returns why a namespace is not deleted.
func (k retention) describe() string {
	switch k.cause {
	case mail.CauseNamespaceAdopted:
		return "it is older than the project"
	case mail.CauseNamespaceUnmarked:
		return "its annotation " + v1alpha1.AnnotationCreatedFor + " was removed"
	case mail.CauseVolumeClaims:
		return fmt.Sprintf("it holds %d volume claims", k.volumes)
	}
	return ""
}

// orphanNamespace removes the project's labels and objects from the namespace, which it marks in the same
// write: by the mark the API server refuses pods with GPUs. The quota goes last: it holds the limit while
// the label is there.
func (r *Reconciler) orphanNamespace(ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, kept retention) error {
	if err := r.unlabelNamespace(ctx, project, namespace, r.formerProject(project, kept)); err != nil {
		return err
	}
	return r.applier().Remove(ctx, apply.ProjectTarget(project))
}

// formerProject is the record of a deleted project on the namespace that stays: the value of
// AnnotationFormerProject.
type formerProject struct {
	Project      string    `json:"project"`
	Department   string    `json:"department"`
	DeletedAt    time.Time `json:"deletedAt"`
	ApprovedBy   string    `json:"approvedBy,omitempty"`
	Cause        string    `json:"cause"`
	VolumeClaims int       `json:"volumeClaims"`
}

func (r *Reconciler) formerProject(project *v1alpha1.Project, kept retention) formerProject {
	return formerProject{
		Project: project.Name, Department: project.Spec.Department, DeletedAt: r.deletedAt(project), ApprovedBy: approvedBy(project),
		Cause: kept.cause, VolumeClaims: kept.volumes,
	}
}

// readFormerProject returns the record on a namespace. It is empty if there is none, or an invalid one.
func readFormerProject(namespace *corev1.Namespace) (record formerProject) {
	if json.Unmarshal([]byte(namespace.Annotations[v1alpha1.AnnotationFormerProject]), &record) != nil {
		return formerProject{}
	}
	return record
}

// isReleased reports whether the namespace was released before lifecycle was killed.
func (r *Reconciler) isReleased(project *v1alpha1.Project, namespace *corev1.Namespace) bool {
	former := readFormerProject(namespace)
	return former.Project == project.Name && former.DeletedAt.Equal(r.deletedAt(project)) && former.Cause != ""
}

// deletedAt returns when the deletion of the project began, in policy time.
func (r *Reconciler) deletedAt(project *v1alpha1.Project) time.Time {
	return policytime.FromTimestamp(r.Clock, project.DeletionTimestamp.Time).UTC().Truncate(time.Second)
}

// approvedBy returns who approved the deletion; empty for a project that was deleted by hand.
func approvedBy(project *v1alpha1.Project) string {
	if project.Status.Expiry == nil || project.Status.Expiry.Deletion == nil {
		return ""
	}
	return project.Status.Expiry.Deletion.ApprovedBy
}
