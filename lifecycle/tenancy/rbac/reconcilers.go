// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members gives the members of departments and projects the rights of
// their roles.
//
// Enters: Projects with their Departments and Namespaces, as watched. Leaves: in a
// project's namespace, once it is governed, a RoleBinding for each role that
// somebody has there, as a member of the project or of its department; and beside
// it, cluster-wide, the right to get the own Project by its name, for research
// managers to manage it, for a department's administrators and viewers to get their
// Department, and for its administrators to administer it. What somebody changes or deletes of these comes
// back; they go with the member, with a move to another department, and before all
// else with the project. A project's phase changes nothing: who may look after it
// may do so until it is gone.
//
// It never decides who is a member, nor what a role may do: that is in the specs,
// which admission judged, and in the ClusterRoles that are installed. It never
// touches what somebody else made under one of its names, and says so on the object
// whose members lack their rights.
package rbac

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/conflict"
)

// failureRequeue is after how long somebody else's object is looked at again, in
// machine time: nobody tells when it goes.
const failureRequeue = time.Minute

// ProjectReconciler keeps the rights of every Project's members right.
type ProjectReconciler struct{ Manager }

// SetupWithManager makes the manager run r.
func (r *ProjectReconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project-members").
		For(&v1alpha1.Project{}, builder.WithPredicates(specOrNamespaceChanged)).
		Watches(&corev1.Namespace{}, r.namespaceHandler(), builder.WithPredicates(namespaceLabelsChanged)).
		Watches(&v1alpha1.Department{}, r.departmentHandler(), builder.WithPredicates(specOrDeletionChanged))
	for _, object := range WatchedObjects() {
		b = b.Watches(object, labelHandler(v1alpha1.LabelProject))
	}
	return b.Complete(conflict.WithRetry(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *ProjectReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	if apierrors.IsNotFound(err) {
		_, err = r.reconcileObjects(ctx, projectLabels(req.Name), nil)
		return reconcile.Result{}, err
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	department, err := r.getDepartment(ctx, project.Spec.Department)
	if err != nil {
		return reconcile.Result{}, err
	}
	governed, err := r.isGoverned(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	faults, err := r.reconcileObjects(ctx, projectLabels(project.Name), ProjectObjects(&project, department, governed))
	if err != nil {
		return reconcile.Result{}, err
	}
	if setMembersCondition(&project.Status.Conditions, faults, project.Generation, metav1.NewTime(policytime.MachineNow())) {
		if err := r.Client.Status().Update(ctx, &project); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status of project %s: %w", project.Name, err)
		}
	}
	return requeueAfterFaults(faults), nil
}

// getDepartment is the one of that name; nil where there is none.
func (r *ProjectReconciler) getDepartment(ctx context.Context, name string) (*v1alpha1.Department, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &department)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading department %s: %w", name, err)
	}
	return &department, nil
}

// isGoverned tells whether the project has its namespace and the namespace its
// quotas: before that, what its members run would be counted by nobody.
func (r *ProjectReconciler) isGoverned(ctx context.Context, project *v1alpha1.Project) (bool, error) {
	held := project.Status.Namespace
	if held == nil {
		return false, nil
	}
	var namespace corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: held.Name}, &namespace)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return namespace.UID == held.UID && namespace.Labels[v1alpha1.LabelProject] == project.Name && namespace.DeletionTimestamp.IsZero(), nil
}

func requeueAfterFaults(faults []string) reconcile.Result {
	if len(faults) > 0 {
		return reconcile.Result{RequeueAfter: failureRequeue}
	}
	return reconcile.Result{}
}

// DepartmentReconciler keeps the rights right that a Department's members have on
// the department itself.
type DepartmentReconciler struct{ Manager }

// SetupWithManager makes the manager run r.
func (r *DepartmentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department-members").
		For(&v1alpha1.Department{}, builder.WithPredicates(specOrDeletionChanged)).
		Watches(&rbacv1.ClusterRole{}, labelHandler(v1alpha1.LabelDepartment)).
		Watches(&rbacv1.ClusterRoleBinding{}, labelHandler(v1alpha1.LabelDepartment)).
		Complete(conflict.WithRetry(r))
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *DepartmentReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, req.NamespacedName, &department)
	if apierrors.IsNotFound(err) {
		_, err = r.reconcileObjects(ctx, departmentLabels(req.Name), nil)
		return reconcile.Result{}, err
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	faults, err := r.reconcileObjects(ctx, departmentLabels(department.Name), DepartmentObjects(&department))
	if err != nil {
		return reconcile.Result{}, err
	}
	if setMembersCondition(&department.Status.Conditions, faults, department.Generation, metav1.NewTime(policytime.MachineNow())) {
		if err := r.Client.Status().Update(ctx, &department); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status of department %s: %w", department.Name, err)
		}
	}
	return requeueAfterFaults(faults), nil
}

// maxConditionMessage is what the API server takes for a condition's, in bytes.
const maxConditionMessage = 32768

// setMembersCondition puts the faults among the conditions, and tells whether that changed any.
func setMembersCondition(conditions *[]metav1.Condition, faults []string, generation int64, now metav1.Time) bool {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionMembersBound, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, Message: "the members have the rights of their roles",
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if len(faults) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonRoleBindingFailed
		condition.Message = strings.Join(faults, "; ")
		if len(condition.Message) > maxConditionMessage {
			condition.Message = strings.ToValidUTF8(condition.Message[:maxConditionMessage-3], "") + "..."
		}
	} else if meta.FindStatusCondition(*conditions, v1alpha1.ConditionMembersBound) == nil {
		return false
	}
	return meta.SetStatusCondition(conditions, condition)
}

func (r *ProjectReconciler) namespaceHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByNamespace)
}

func (r *ProjectReconciler) departmentHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByDepartment)
}

func (r *ProjectReconciler) indexHandler(index string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{index: object.GetName()}); err != nil {
			log.FromContext(ctx).Error(err, "listing projects", "index", index)
			return nil
		}
		return inventory.Requests(&projects)
	})
}

// labelHandler brings back the project or department for which something is bound, to put
// right what somebody changed; the handler sees an object before and after.
func labelHandler(label string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		name := object.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
}

// specOrDeletionChanged passes what may have other members.
var specOrDeletionChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, deletionStarted)

// deletionStarted passes the beginning of a deletion.
var deletionStarted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// specOrNamespaceChanged passes what may have other members, or have its namespace now.
var specOrNamespaceChanged = predicate.Or[client.Object](specOrDeletionChanged, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace)
}})

// namespaceLabelsChanged passes a namespace that may be governed now, or no more.
var namespaceLabelsChanged = predicate.Or[client.Object](deletionStarted, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}})
