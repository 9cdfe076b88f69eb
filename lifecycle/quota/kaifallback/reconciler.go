// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nextpool looks after KAI-Scheduler's groups of pods: where one node pool
// has no room for a group, the next is tried that its pods may use.
//
// Enters: PodGroups, as watched once their kind is there, the project of their
// namespace with its node pools, and a group's pods, read when they are needed.
// Leaves: the group and its pods under another of the project's queues and node
// pools, after the last the first again; and a group that says of itself that it
// cannot be preempted, as one of its pods is that can.
//
// It never moves a group of which a pod has a node, moves none again within a
// minute, never chooses a pool that the pods were not admitted to, and leaves groups
// to kai-resource-management where that has the namespace.
package kaifallback

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/conflict"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// Reconciler looks after PodGroups.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads pods, of which there are too many to keep.
	Live client.Reader
	// Events tells people where their pods went.
	Events events.EventRecorder

	// notBefore is until when a group stays where it is. One pass at a time touches
	// it; after a restart a group waits for a moment, and then goes on.
	notBefore map[types.NamespacedName]time.Time
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kaigroup.Kind)
	if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
		delete(r.notBefore, req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !object.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, nil
	}
	places, err := r.listPlaces(ctx, req.Namespace)
	if len(places) == 0 || err != nil {
		return reconcile.Result{}, err
	}
	group := kaigroup.Group(object.Object)
	if at, known := kaigroup.FindPlacement(places, group.Queue()); group.Preemptible() && (!known || !group.IsUnschedulable(at)) {
		return reconcile.Result{}, nil
	}
	pods, err := r.listPods(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := policytime.MachineNow()
	what := decide(now, group, places, pods, r.notBefore[req.NamespacedName])
	return r.applyDecision(ctx, now, what, object, pods)
}

// applyDecision takes a step.
func (r *Reconciler) applyDecision(ctx context.Context, now time.Time, what decision, object *unstructured.Unstructured, pods []corev1.Pod) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(object)
	var err error
	switch {
	case what.demote != "":
		err = r.demoteGroup(ctx, object, what.demote)
	case what.retryForever:
		delete(r.notBefore, name)
		err = r.setSchedulingBackoff(ctx, object, false)
	case what.tryOnce:
		err = r.setSchedulingBackoff(ctx, object, true)
		what.waitUntil = laterTime(r.notBefore[name], now.Add(schedulerSettleDelay))
	case what.move != nil:
		if err = r.moveGroup(ctx, object, pods, *what.move); err == nil {
			what.waitUntil = now.Add(minMoveInterval)
			r.Events.Eventf(object, nil, corev1.EventTypeNormal, "NextNodePool", "TryNextNodePool",
				"there is no room in its node pool; trying %s, with queue %s", what.move.Pool, what.move.Queue)
		}
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("PodGroup %s: %w", name, client.IgnoreNotFound(err))
	}
	if what.waitUntil.IsZero() {
		return reconcile.Result{}, nil
	}
	r.notBefore[name] = what.waitUntil
	return reconcile.Result{RequeueAfter: what.waitUntil.Sub(now)}, nil
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// listPlaces are those of the project that has the namespace; none where nobody of
// Sluice's decides where its groups are.
func (r *Reconciler) listPlaces(ctx context.Context, namespace string) ([]kaigroup.Placement, error) {
	project, err := inventory.ProjectForNamespace(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	var there corev1.Namespace
	if err := r.Client.Get(ctx, types.NamespacedName{Name: namespace}, &there); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if _, others := there.Labels[kaigroup.LabelKRMProject]; others {
		return nil, nil
	}
	pools := map[string]*v1alpha1.NodePool{}
	for _, quota := range project.Spec.NodePools {
		var pool v1alpha1.NodePool
		err := r.Client.Get(ctx, types.NamespacedName{Name: quota.Name}, &pool)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading node pool %s: %w", quota.Name, err)
		}
		if err == nil {
			pools[quota.Name] = &pool
		}
	}
	return kaigroup.Placements(project.Name, input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] })), nil
}

// listPods are those of a group that are still to run, or run.
func (r *Reconciler) listPods(ctx context.Context, group types.NamespacedName) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(group.Namespace), client.HasLabels{v1alpha1.LabelNodePool}); err != nil {
		return nil, fmt.Errorf("listing the pods of PodGroup %s: %w", group, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Annotations[kaigroup.AnnotationGroup] != group.Name || workload.IsPodTerminal(&p)
	}), nil
}

// discoveryInterval is after how long it is asked again whether there are PodGroups, in machine
// time.
const discoveryInterval = 10 * time.Second

// SetupWithManager makes the manager run r as soon as the API server serves
// PodGroups.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.notBefore = map[types.NamespacedName]time.Time{}
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("nextpool: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, discoveryInterval, true, func(ctx context.Context) (bool, error) {
			served, err := isPodGroupServed(ctx, server)
			if err != nil {
				mgr.GetLogger().V(1).Info("the API server does not say whether it serves PodGroups; asking again", "reason", err.Error())
			}
			return served, nil
		})
		if err == nil {
			err = r.startController(mgr)
		}
		if wait.Interrupted(err) { // the manager stops
			return nil
		}
		return err
	}))
}

func (r *Reconciler) startController(mgr ctrl.Manager) error {
	groups := &unstructured.Unstructured{}
	groups.SetGroupVersionKind(kaigroup.Kind)
	return ctrl.NewControllerManagedBy(mgr).Named("nextpool").For(groups).Complete(conflict.WithRetry(r))
}

func isPodGroupServed(ctx context.Context, server *discovery.DiscoveryClient) (bool, error) {
	var list metav1.APIResourceList
	err := server.RESTClient().Get().AbsPath("/apis", kaigroup.Kind.Group, kaigroup.Kind.Version).Do(ctx).Into(&list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	for i := range list.APIResources {
		if list.APIResources[i].Kind == kaigroup.Kind.Kind {
			return err == nil, err
		}
	}
	return false, err
}
