// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/policies/kaigroup"
)

// groupReader reads PodGroups of KAI-Scheduler once their kind is served.
type groupReader struct{ reader atomic.Pointer[client.Reader] }

// listGroups returns the PodGroups of a namespace. They are shared with the cache.
func (g *groupReader) listGroups(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	reader := g.reader.Load()
	if reader == nil {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kaigroup.Kind)
	if err := (*reader).List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PodGroups in namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// watchGroups watches PodGroups in the manager's cache, which has them for package kaifallback, as
// soon as their kind is served.
func (r *Reconciler) watchGroups(mgr ctrl.Manager, c controller.Controller) error {
	return watchWhenServed(mgr, kaigroup.Kind, func(context.Context) error {
		groups := &unstructured.Unstructured{}
		groups.SetGroupVersionKind(kaigroup.Kind)
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), groups, enqueueSettled(r.requestsForNamespace))); err != nil {
			return fmt.Errorf("watch PodGroups: %w", err)
		}
		var reader client.Reader = mgr.GetCache()
		r.groups.reader.Store(&reader)
		return nil
	})
}

// listUnscheduled returns the project's workloads that KAI-Scheduler cannot schedule.
func (r *Reconciler) listUnscheduled(ctx context.Context, project *v1alpha1.Project) ([]QueuedWorkload, error) {
	groups, err := r.groups.listGroups(ctx, project.NamespaceName())
	if len(groups) == 0 || err != nil {
		return nil, err
	}
	pools, err := inventory.ProjectPools(ctx, r.Client, project)
	if err != nil {
		return nil, err
	}
	waiting := map[string][]*podcache.Pod{}
	for pod := range r.Pods.InNamespace(project.NamespaceName()) {
		if pod.Project == project.Name && pod.PodGroup != "" && !pod.IsBound() && !pod.Deleting {
			waiting[pod.PodGroup] = append(waiting[pod.PodGroup], pod)
		}
	}
	queued := queuedByOwner{}
	places := kaigroup.Placements(project.Name, pools)
	for i := range groups {
		if q, ok := unscheduledWorkload(&groups[i], places, waiting[groups[i].GetName()], project, r.Pods.ByUID); ok {
			queued.add(q)
		}
	}
	return queued.sorted(), nil
}

// unscheduledWorkload returns the workload of a group with these pods without a node. It returns
// false if KAI-Scheduler does not report it as unschedulable.
func unscheduledWorkload(
	object *unstructured.Unstructured, places []kaigroup.Placement, pods []*podcache.Pod, project *v1alpha1.Project,
	byUID func(types.UID) (*podcache.Pod, bool),
) (QueuedWorkload, bool) {
	group := kaigroup.Group(object.Object)
	at, known := kaigroup.FindPlacement(places, group.Queue())
	if len(pods) == 0 || !known || !group.IsUnschedulable(at) {
		return QueuedWorkload{}, false
	}
	q := QueuedWorkload{
		Scheduler: schedulerKAI, Queue: at.Queue, Pool: at.Pool,
		Owner: ownerOf(object, kaigroup.Kind, byUID),
	}
	for _, pod := range pods {
		q.Pods, q.Charge = saturatingAdd(q.Pods, 1), min(q.Charge+pod.Milli, maxKueueCharge)
		q.Since = earliest(q.Since, pod.CreatedAt)
	}
	q.Reason = ExplainUnschedulable(group.UnschedulableReasons(), at, project)
	return q, true
}
