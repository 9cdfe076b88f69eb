// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
)

// maxConcurrentReconciles is the number of projects that are reconciled at a time.
const maxConcurrentReconciles = 8

// SetupWithManager adds the controller and its index of Notices to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Notice{}, noticesByProject, indexNotice)
	if err != nil {
		return fmt.Errorf("index notices by project: %w", err)
	}
	own := collector{mgr.GetClient()}
	metrics.Registry.Unregister(own) // that of a former manager of the process
	if err := metrics.Registry.Register(own); err != nil {
		return fmt.Errorf("register metrics of projects: %w", err)
	}
	byName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return requestOf(projectNameOf(object))
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("expiry").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Project{}, builder.WithPredicates(expiryChanged)).
		Watches(&v1alpha1.Department{}, handler.EnqueueRequestsFromMapFunc(r.mapDepartmentToProjects),
			builder.WithPredicates(afterInitialList, predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.AdmissionParameters{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return r.listRequests(ctx)
		}), inventory.PauseChanged).
		Watches(&v1alpha1.Extension{}, byName, builder.WithPredicates(afterInitialList)).
		Watches(&v1alpha1.Notice{}, byName, builder.WithPredicates(afterInitialList)).
		WatchesRawSource(r.timelineSource()).
		Complete(apply.RequeueOnConflict(r))
}

func indexNotice(object client.Object) []string {
	if n, ok := object.(*v1alpha1.Notice); ok {
		if uid := projectUIDOf(n); uid != "" {
			return []string{uid}
		}
	}
	return nil
}

// afterInitialList ignores the objects of the initial list. At the start every project is reconciled once in any case.
var afterInitialList = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// expiryChanged passes changes of the spec, of the namespace and of this controller's fields, and deletions.
var expiryChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return !ok || !ok2 || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace) ||
			!equality.Semantic.DeepEqual(statusFields("", &before.Status), statusFields("", &after.Status))
	},
})

// projectNameOf returns the name of the project that a Notice or an Extension is about, or "".
func projectNameOf(object client.Object) string {
	switch o := object.(type) {
	case *v1alpha1.Notice:
		if projectUIDOf(o) != "" && o.Spec.Lead != nil {
			return o.Spec.Subject.Name
		}
	case *v1alpha1.Extension:
		if o.Spec.Action != v1alpha1.ActionExtend {
			return o.Spec.Target.Name
		}
	}
	return ""
}

func requestOf(project string) []reconcile.Request {
	if project == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: project}}}
}

func (r *Reconciler) mapDepartmentToProjects(ctx context.Context, object client.Object) []reconcile.Request {
	return r.listRequests(ctx, client.MatchingFields{inventory.ProjectsByDepartment: object.GetName()})
}

func (r *Reconciler) listRequests(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list projects")
		return nil
	}
	return inventory.Requests(&projects)
}

// timelineSource enqueues every project when policy time steps or changes its pace.
func (r *Reconciler) timelineSource() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		policytime.NotifySteps(ctx, r.Clock, func() {
			for _, request := range r.listRequests(ctx) {
				queue.Add(request)
			}
		})
		return nil
	})
}
