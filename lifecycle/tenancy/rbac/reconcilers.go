// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac grants the members of departments and projects the rights of their
// roles.
//
// It reads Projects, Departments and Namespaces. In a project's namespace, once it is
// governed, it applies a RoleBinding for each role that a member of the project or of
// its department has. Cluster-wide it grants members the right to get their own
// Project, research managers to manage it, members of a department to get their
// Department, and its administrators to administer it. Changed or deleted objects are
// restored. Rights end with the membership, and when the project moves to another
// department. If the project is deleted, they end first. The project's phase does not
// change them.
//
// The package does not decide who is a member or what a role may do: admission checks
// the specs, and the ClusterRoles are installed. It never overwrites an object of the
// same name that another user created, and reports it in the condition MembersBound.
package rbac

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
)

// failureRequeue is the time after which a conflicting object of another user is
// checked again, in machine time. The cache does not contain that object, so no event
// starts the check.
const failureRequeue = time.Minute

// ProjectReconciler grants the members of a Project their rights.
type ProjectReconciler struct{ Manager }

// SetupWithManager registers r with the manager.
func (r *ProjectReconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project-members").
		For(&v1alpha1.Project{}, builder.WithPredicates(specOrNamespaceChanged)).
		Watches(&corev1.Namespace{}, r.namespaceHandler(), builder.WithPredicates(namespaceLabelsChanged)).
		Watches(&v1alpha1.Department{}, r.departmentHandler(), builder.WithPredicates(specOrDeletionChanged))
	for _, object := range WatchedObjects() {
		b = b.Watches(object, labelHandler(v1alpha1.LabelProject))
	}
	return b.Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *ProjectReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	if apierrors.IsNotFound(err) {
		_, err = r.reconcileObjects(ctx, projectSet(req.Name), nil)
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
	failures, err := r.reconcileObjects(ctx, projectSet(project.Name), ProjectObjects(&project, department, governed))
	if err != nil {
		return reconcile.Result{}, err
	}
	fields := func(conditions []metav1.Condition) *ac.ProjectApplyConfiguration {
		own := apply.Conditions(conditions, v1alpha1.ConditionMembersBound)
		return ac.Project(project.Name).WithStatus(ac.ProjectStatus().WithConditions(own...))
	}
	cached := project.Status.Conditions
	desired := withMembersBound(cached, failures, project.Generation)
	if err := apply.Status(ctx, r.Client, fieldManager, fields(cached), fields(desired)); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of project %s: %w", project.Name, err)
	}
	return requeueAfterFailures(failures), nil
}

// getDepartment returns the department of that name, or nil if it does not exist.
func (r *ProjectReconciler) getDepartment(ctx context.Context, name string) (*v1alpha1.Department, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &department)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read department %s: %w", name, err)
	}
	return &department, nil
}

// isGoverned reports whether the project's namespace exists and is governed, which
// means that it has its quota. Before that, no quota would count the members' pods.
func (r *ProjectReconciler) isGoverned(ctx context.Context, project *v1alpha1.Project) (bool, error) {
	recorded := project.Status.Namespace
	if recorded == nil {
		return false, nil
	}
	var namespace corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: recorded.Name}, &namespace)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return namespace.UID == recorded.UID && namespace.Labels[v1alpha1.LabelProject] == project.Name &&
		namespace.DeletionTimestamp.IsZero(), nil
}

func requeueAfterFailures(failures []apply.Failure) reconcile.Result {
	if len(failures) > 0 {
		return reconcile.Result{RequeueAfter: failureRequeue}
	}
	return reconcile.Result{}
}

// DepartmentReconciler grants the members of a Department their rights on it.
type DepartmentReconciler struct{ Manager }

// SetupWithManager registers r with the manager.
func (r *DepartmentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department-members").
		For(&v1alpha1.Department{}, builder.WithPredicates(specOrDeletionChanged)).
		Watches(&rbacv1.ClusterRole{}, labelHandler(v1alpha1.LabelDepartment)).
		Watches(&rbacv1.ClusterRoleBinding{}, labelHandler(v1alpha1.LabelDepartment)).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *DepartmentReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, req.NamespacedName, &department)
	if apierrors.IsNotFound(err) {
		_, err = r.reconcileObjects(ctx, departmentSet(req.Name), nil)
		return reconcile.Result{}, err
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	failures, err := r.reconcileObjects(ctx, departmentSet(department.Name), DepartmentObjects(&department))
	if err != nil {
		return reconcile.Result{}, err
	}
	fields := func(conditions []metav1.Condition) *ac.DepartmentApplyConfiguration {
		own := apply.Conditions(conditions, v1alpha1.ConditionMembersBound)
		return ac.Department(department.Name).WithStatus(ac.DepartmentStatus().WithConditions(own...))
	}
	cached := department.Status.Conditions
	desired := withMembersBound(cached, failures, department.Generation)
	if err := apply.Status(ctx, r.Client, fieldManager, fields(cached), fields(desired)); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of department %s: %w", department.Name, err)
	}
	return requeueAfterFailures(failures), nil
}

// fieldManager owns the condition MembersBound.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-members"

// withMembersBound returns the conditions with MembersBound for these failures. It adds
// no condition before the first failure.
func withMembersBound(conditions []metav1.Condition, failures []apply.Failure, generation int64) []metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionMembersBound, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied,
		Message:            "the members have the rights of their roles",
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(policytime.MachineNow()),
	}
	if len(failures) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonRoleBindingFailed
		condition.Message = apply.TruncateMessage(apply.JoinFailures(failures, func(apply.Failure) bool { return true }))
	} else if meta.FindStatusCondition(conditions, v1alpha1.ConditionMembersBound) == nil {
		return conditions
	}
	conditions = slices.Clone(conditions)
	meta.SetStatusCondition(&conditions, condition)
	return conditions
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
			log.FromContext(ctx).Error(err, "Failed to list projects", "index", index)
			return nil
		}
		return inventory.Requests(&projects)
	})
}

// labelHandler enqueues the project or department that a label of the object names. The
// handler runs for an object before and after its change.
func labelHandler(label string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		name := object.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
}

// specOrDeletionChanged passes changes that may change the members.
var specOrDeletionChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, deletionStarted)

// deletionStarted passes the start of a deletion.
var deletionStarted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// specOrNamespaceChanged passes changes that may change the members or the namespace.
var specOrNamespaceChanged = predicate.Or[client.Object](specOrDeletionChanged, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace)
}})

// namespaceLabelsChanged passes changes after which the namespace may be governed or no
// longer be.
var namespaceLabelsChanged = predicate.Or[client.Object](deletionStarted, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}})
