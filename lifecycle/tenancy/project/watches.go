// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

func (r *Reconciler) namespaceHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByNamespace, client.Object.GetName)
}

func (r *Reconciler) departmentHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByDepartment, client.Object.GetName)
}

func (r *Reconciler) nodePoolHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByNodePool, client.Object.GetName)
}

// namespaceConflictHandler enqueues the projects that name the same namespace as the object.
func (r *Reconciler) namespaceConflictHandler() handler.EventHandler {
	return r.indexHandler(inventory.ProjectsByNamespace, func(object client.Object) string {
		if project, ok := object.(*v1alpha1.Project); ok {
			return project.NamespaceName()
		}
		return object.GetName()
	})
}

func (r *Reconciler) indexHandler(index string, key func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{index: key(object)}); err != nil {
			log.FromContext(ctx).Error(err, "Failed to list projects", "index", index)
			return nil
		}
		return inventory.Requests(&projects)
	})
}

// allRequests returns requests for all projects.
func (r *Reconciler) allRequests(ctx context.Context) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list projects")
		return nil
	}
	return inventory.Requests(&projects)
}

// specOrDeletionChanged passes changes that the reconciler did not make itself.
var specOrDeletionChanged = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{},
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
	}},
)

// closedChanged passes the changes of a project's phase and of when it closed, which another controller writes and
// policies read.
var closedChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return ok && ok2 && (!before.Status.ClosedAt.Equal(after.Status.ClosedAt) || phaseOf(before) != phaseOf(after))
	},
}

// phaseOf returns the phase that policies read.
func phaseOf(project *v1alpha1.Project) v1alpha1.ProjectPhase {
	return cmp.Or(project.Status.Phase, v1alpha1.ProjectActive)
}

// projectDeleted passes deletions, after which another project may have the namespace.
var projectDeleted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return true },
}

// namespaceCreatedExternally drops the creation of a namespace by lifecycle itself, which
// is in the same pass.
var namespaceCreatedExternally = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return e.IsInInitialList || e.Object.GetAnnotations()[v1alpha1.AnnotationCreatedFor] == ""
	},
}

// gpuNodeHandler enqueues the projects of pods that are gone from the API and hold GPUs by the
// report of a node, when the report begins and ends.
func (r *Reconciler) gpuNodeHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, q apply.RequestQueue, reports ...client.Object) {
		times := map[string]int{} // of each namespace and pod
		for _, report := range reports {
			node, _ := report.(*v1alpha1.GPUNode)
			for i := range node.Status.Pods {
				if uid, gone := goneUID(&node.Status.Pods[i]); gone {
					times[string(uid)]++
				}
			}
		}
		for pod, n := range times {
			if n == 2 { // before and after
				continue
			}
			namespace, _, _ := strings.Cut(pod, "/")
			project, err := inventory.ProjectForNamespace(ctx, r.Client, namespace)
			if err != nil {
				log.FromContext(ctx).Error(err, "Failed to find project of namespace", "namespace", namespace)
			} else if project != nil {
				apply.EnqueueAfter(q, project.Name, 0)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q apply.RequestQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q apply.RequestQueue) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q apply.RequestQueue) { enqueue(ctx, q, e.Object) },
	}
}

// nodePoolResizeDelay is the time for which changes of only a pool's size are collected, in machine
// time: the size changes with every node.
const nodePoolResizeDelay = 10 * time.Second

// nodePoolResizeHandler enqueues the projects of a pool after nodePoolResizeDelay.
func (r *Reconciler) nodePoolResizeHandler() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q apply.RequestQueue) {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNodePool: e.ObjectNew.GetName()}); err != nil {
			log.FromContext(ctx).Error(err, "Failed to list projects", "pool", e.ObjectNew.GetName())
			return
		}
		for i := range projects.Items {
			apply.EnqueueAfter(q, projects.Items[i].Name, nodePoolResizeDelay)
		}
	}}
}

// nodePoolResized passes a change of a pool's number of GPUs.
var nodePoolResized = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodePool)
		after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
		return ok && ok2 && before.Status.GPUs != after.Status.GPUs
	},
}

// nodePoolInputChanged passes changes of a node pool that policies see, without its size.
var nodePoolInputChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodePool)
		after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(nodePoolInput(before), nodePoolInput(after))
	},
}

func nodePoolInput(pool *v1alpha1.NodePool) []input.NodePool {
	project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: []v1alpha1.PoolQuota{{Name: pool.Name}}}}
	pools := input.NewProjectPools(project, func(string) *v1alpha1.NodePool { return pool })
	for i := range pools {
		pools[i].GPUs = 0
	}
	return pools
}

// otherQuotaHandler enqueues the project of a namespace in which another ResourceQuota than the project's
// was created or deleted.
func (r *Reconciler) otherQuotaHandler() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		if object.GetName() == v1alpha1.QuotaName && object.GetLabels()[v1alpha1.LabelProject] != "" {
			return nil
		}
		project, err := inventory.ProjectForNamespace(ctx, r.Client, object.GetNamespace())
		if err != nil {
			log.FromContext(ctx).Error(err, "Failed to find project of namespace", "namespace", object.GetNamespace())
		}
		if err != nil || project == nil {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(project)}}
	})
}

// createdOrDeleted passes creations and deletions.
var createdOrDeleted = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

const (
	// createdObjectDelay is the time for which new objects are collected, in machine time: lifecycle
	// created them itself.
	createdObjectDelay = time.Second
	// changedObjectDelay is that for others, so that one pass serves several changes.
	changedObjectDelay = 50 * time.Millisecond
)

// renderedObjectHandler enqueues the project of a rendered object, to restore it and to
// read whether the quota is counted.
type renderedObjectHandler struct{}

var _ handler.EventHandler = renderedObjectHandler{}

// Create implements handler.EventHandler.
func (renderedObjectHandler) Create(_ context.Context, e event.CreateEvent, q apply.RequestQueue) {
	enqueueProject(q, e.Object, createdObjectDelay)
}

// Delete implements handler.EventHandler.
func (renderedObjectHandler) Delete(_ context.Context, e event.DeleteEvent, q apply.RequestQueue) {
	enqueueProject(q, e.Object, changedObjectDelay)
}

// Generic implements handler.EventHandler.
func (renderedObjectHandler) Generic(_ context.Context, e event.GenericEvent, q apply.RequestQueue) {
	enqueueProject(q, e.Object, changedObjectDelay)
}

// Update implements handler.EventHandler.
func (renderedObjectHandler) Update(_ context.Context, e event.UpdateEvent, q apply.RequestQueue) {
	if onlyUsageChanged(e.ObjectOld, e.ObjectNew) {
		return // every pod changes the usage, which the reconciler does not read
	}
	enqueueProject(q, e.ObjectOld, changedObjectDelay)
	enqueueProject(q, e.ObjectNew, changedObjectDelay)
}

// onlyUsageChanged reports whether only the used amount of a quota changed.
func onlyUsageChanged(before, after client.Object) bool {
	old, ok := before.(*corev1.ResourceQuota)
	now, ok2 := after.(*corev1.ResourceQuota)
	return ok && ok2 &&
		equality.Semantic.DeepEqual(old.Labels, now.Labels) &&
		equality.Semantic.DeepEqual(old.Annotations, now.Annotations) &&
		equality.Semantic.DeepEqual(old.Spec, now.Spec) &&
		equality.Semantic.DeepEqual(old.Status.Hard, now.Status.Hard)
}

// enqueueProject enqueues the project of an object after new projects.
func enqueueProject(q apply.RequestQueue, object client.Object, after time.Duration) {
	apply.EnqueueAfter(q, object.GetLabels()[v1alpha1.LabelProject], after)
}
