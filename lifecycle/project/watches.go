// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/policies/facts"
)

func (r *Reconciler) projectsOfNamespace() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByNamespace, client.Object.GetName)
}

func (r *Reconciler) projectsOfDepartment() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByDepartment, client.Object.GetName)
}

func (r *Reconciler) projectsOfNodePool() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByNodePool, client.Object.GetName)
}

// rivals are the projects that name the same namespace as the one that changed.
func (r *Reconciler) rivals() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByNamespace, func(object client.Object) string {
		if project, ok := object.(*v1alpha1.Project); ok {
			return project.NamespaceName()
		}
		return object.GetName()
	})
}

func (r *Reconciler) projectsBy(index string, key func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{index: key(object)}); err != nil {
			log.FromContext(ctx).Error(err, "listing projects", "index", index)
			return nil
		}
		return inventory.Requests(&projects)
	})
}

// all are all projects.
func (r *Reconciler) all(ctx context.Context) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects); err != nil {
		log.FromContext(ctx).Error(err, "listing projects")
		return nil
	}
	return inventory.Requests(&projects)
}

// specOrDeletion passes what the reconciler did not write itself.
var specOrDeletion = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{},
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
	}},
)

// goneOrGoing passes the deletion of a project, which may let a rival in.
var goneOrGoing = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return true },
}

// madeBySomebody keeps out the making of a namespace by lifecycle itself, which goes
// on with it.
var madeBySomebody = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return e.IsInInitialList || e.Object.GetAnnotations()[v1alpha1.AnnotationMadeFor] == ""
	},
}

// resettle is for how long changes of a pool's size alone are gathered, in machine
// time: it changes with every node that comes or goes.
const resettle = 10 * time.Second

// projectsOfResizedNodePool brings back those of a pool, a little later.
func (r *Reconciler) projectsOfResizedNodePool() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queuekinds.Queue) {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNodePool: e.ObjectNew.GetName()}); err != nil {
			log.FromContext(ctx).Error(err, "listing projects", "pool", e.ObjectNew.GetName())
			return
		}
		for i := range projects.Items {
			queuekinds.Later(q, projects.Items[i].Name, resettle)
		}
	}}
}

// resized passes a node pool that has another number of GPUs.
var resized = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodePool)
		after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
		return ok && ok2 && before.Status.GPUs != after.Status.GPUs
	},
}

// seenByPolicies passes what changes of a node pool in the eyes of policies, and
// keeps out its size and its count of nodes.
var seenByPolicies = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodePool)
		after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(seen(before), seen(after))
	},
}

func seen(pool *v1alpha1.NodePool) []facts.Pool {
	anybody := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: []v1alpha1.PoolQuota{{Name: pool.Name}}}}
	told := facts.OfPools(anybody, func(string) *v1alpha1.NodePool { return pool })
	for i := range told {
		told[i].GPUs = 0
	}
	return told
}
