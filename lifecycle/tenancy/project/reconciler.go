// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project gives each Project its namespace and the quotas in it.
//
// Enters: Projects, Departments, NodePools and Namespaces, as watched, and the
// objects that policies render for each project. Leaves: the namespace, made or
// adopted; the rendered objects in it, and the project's queues outside; then, once the quotas are counted, the
// labels that say whose it is, by which it is governed; the Project's status,
// with the condition QuotaApplied, until which GPU pods are refused, and what is
// used of the quota. GPU pods that were there before the quota are listed in the
// condition Uncounted, and what they hold is taken off what is rendered; a
// namespace in which they hold more than the limit is governed once there is
// room. When a Project is deleted, the namespace again: deleted where Sluice made
// it and it holds no volume claim, else left standing without the labels and what
// was rendered.
//
// It never deletes a namespace that it did not make, nor a volume, never takes a
// namespace because of what a label says, and counts no pods but those that the
// quotas do not: all other figures are the quotas'.
package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/conflict"
	"sluice.dev/policies/engine"
)

// Reconciler keeps every Project's namespace right, and the objects in it that
// policies render.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Policies are those in force; they render the project's objects.
	Policies *engine.Engine
	// PolicyChanges tells when other policies are in force.
	PolicyChanges apply.PolicyChanges
	// Queues knows what is there of the kinds of engines.
	Queues *apply.QueueWatcher
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time, in which phases are recorded.
	Clock policytime.Clock
	// Access are the members', which go before anything else of a project does.
	Access AccessRevoker

	cache apply.Cache
}

// AccessRevoker are what a project's members may do: a rbac.Manager.
type AccessRevoker interface {
	// Revoke takes them back; again, it does nothing.
	Revoke(ctx context.Context, project *v1alpha1.Project) error
}

// maxConcurrentReconciles are how many projects are worked on at a time. They wait for the API
// server most of the time; of one project no two do.
const maxConcurrentReconciles = 16

// SetupWithManager makes the manager run r, once policies are loaded and it is known
// which kinds of engines there are.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Policies read labels and annotations too.
	declared := predicate.Or[client.Object](specOrDeletionChanged, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Project{}, builder.WithPredicates(declared)).
		Watches(&corev1.Namespace{}, r.namespaceHandler(), builder.WithPredicates(namespaceCreatedExternally)).
		Watches(&v1alpha1.Department{}, r.departmentHandler(), builder.WithPredicates(declared)).
		Watches(&v1alpha1.NodePool{}, r.nodePoolHandler(), builder.WithPredicates(nodePoolInputChanged)).
		Watches(&v1alpha1.NodePool{}, r.nodePoolResizeHandler(), builder.WithPredicates(nodePoolResized)).
		Watches(&v1alpha1.Project{}, r.namespaceConflictHandler(), builder.WithPredicates(projectDeleted))
	for _, object := range apply.WatchedObjects() {
		b = b.Watches(object, renderedObjectHandler{})
	}
	return b.
		WatchesRawSource(r.Queues.Source(apply.SubjectProject, r.allRequests)).
		WatchesRawSource(apply.PolicyChangeSource(r.PolicyChanges, r.allRequests)).
		Complete(conflict.WithRetry(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		if apierrors.IsNotFound(err) {
			err = r.applier().RemoveOrphans(ctx, apply.ClusterTarget(apply.SubjectProject, req.Name), &project)
		}
		return reconcile.Result{}, err
	}
	if !project.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, &project)
	}
	// Before anything is made there must be something that takes it back.
	before := project.DeepCopy()
	if controllerutil.AddFinalizer(&project, v1alpha1.FinalizerProject) {
		if err := r.Client.Patch(ctx, &project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding the finalizer to project %s: %w", project.Name, err)
		}
	}
	outcome, err := r.reconcileProject(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	return outcome.requeue(), r.updateStatus(ctx, &project, outcome)
}

// reconcileProject gives the project its namespace, what policies render into it, and then
// the labels. A refusal is for people: nothing here changes until somebody
// changes the project, the namespace or the department.
func (r *Reconciler) reconcileProject(ctx context.Context, project *v1alpha1.Project) (Outcome, error) {
	department, missing, err := r.getDepartment(ctx, project)
	if missing != nil || err != nil {
		return Outcome{ClaimError: missing}, err
	}
	if refusal, err := r.checkNamespaceConflict(ctx, project); refusal != nil || err != nil {
		return Outcome{ClaimError: refusal}, err
	}
	namespace, claim, refusal, err := r.reconcileNamespace(ctx, project)
	if refusal != nil || err != nil {
		return Outcome{ClaimError: refusal}, err
	}
	// The status says whose the namespace is before anything of the project's is
	// in it: a crash in between leaves nothing that nobody takes back. One that was
	// made says so itself, from the start.
	fresh := claim == tenancy.ClaimCreate && project.Status.ObservedGeneration == 0
	if !fresh {
		if err := r.recordNamespace(ctx, project, namespace, claim); err != nil {
			return Outcome{}, err
		}
	}
	governed := namespace.Labels[v1alpha1.LabelProject] == project.Name
	outcome, err := r.applyObjects(ctx, project, department, governed, fresh)
	if err != nil {
		return Outcome{}, err
	}
	if fresh {
		// Written with the rest of the status, which speaks of no generation yet.
		project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: namespace.Name, UID: namespace.UID, Origin: claim.Origin()}
	}
	// A namespace is governed only after its quota counts. One that is governed
	// stays so while a changed quota is counted anew: its GPU pods are refused
	// meanwhile, and would not be without the label.
	if outcome.isQuotaApplied() || governed {
		if err := r.labelNamespace(ctx, project, department, outcome.Pools, namespace, claim); err != nil {
			return Outcome{}, err
		}
	}
	return outcome, nil
}

// getDepartment is the project's, or the refusal where there is none.
func (r *Reconciler) getDepartment(ctx context.Context, project *v1alpha1.Project) (*v1alpha1.Department, *tenancy.ClaimError, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department)
	if apierrors.IsNotFound(err) {
		return nil, &tenancy.ClaimError{
			Reason:  v1alpha1.ReasonDepartmentNotFound,
			Message: fmt.Sprintf("department %s does not exist; create it, or set spec.department to one that does", project.Spec.Department),
		}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading department %s: %w", project.Spec.Department, err)
	}
	return &department, nil, nil
}

// BuildStatus is the project's status after one pass. The phase's time is policy
// time, a condition's is machine time.
func BuildStatus(project *v1alpha1.Project, outcome Outcome, policy, machine metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	status.ObservedGeneration = project.Generation
	phase := v1alpha1.ProjectActive
	var conditions []metav1.Condition
	if project.DeletionTimestamp.IsZero() {
		conditions = outcome.conditions(project)
		if outcome.ClaimError == nil {
			status.GPU, status.NodePools = ComputeUsage(project, outcome.Pools, outcome.Quotas, outcome.Uncounted)
		}
	} else {
		phase = v1alpha1.ProjectDeleting
		conditions = []metav1.Condition{newCondition(v1alpha1.ConditionReady, "", "",
			problem{ReasonDeleting, fmt.Sprintf("waiting for namespace %s to go", project.NamespaceName())})}
	}
	if status.Phase != phase {
		status.Phase, status.PhaseSince = phase, &policy
	}
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime, c.Message = project.Generation, machine, apply.TruncateMessage(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func (r *Reconciler) updateStatus(ctx context.Context, project *v1alpha1.Project, outcome Outcome) error {
	status := BuildStatus(project, outcome, metav1.NewTime(r.Clock.Now()), metav1.NewTime(policytime.MachineNow()))
	if equality.Semantic.DeepEqual(status, project.Status) {
		return nil
	}
	project.Status = status
	if err := r.Client.Status().Update(ctx, project); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of project %s: %w", project.Name, err)
	}
	return nil
}
