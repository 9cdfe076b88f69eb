// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaifallback moves PodGroups of KAI-Scheduler to the next node pool when their
// node pool has no room.
//
// It reads PodGroups, the project of their namespace with its node pools, and the pods
// of a group. It changes the queue and the node pool labels of the group and its pods,
// in the order of the pods' preference and from the last node pool to the first again.
// The scheduler tries a group again and again where it is, and stops for the last seconds
// before a move.
// It also lowers the class of a group that claims not to be preemptible although one
// of its pods is.
//
// It never moves a group with a scheduled pod, never moves a group twice within a
// minute, and never uses a node pool to which the pods were not admitted. It does not
// change groups in namespaces of kai-resource-management.
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
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/kaigroup"
)

// Reconciler moves PodGroups of KAI-Scheduler.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads pods from the API server. They are not cached.
	Live client.Reader
	// Events records the moves.
	Events events.EventRecorder

	// notBefore is until when a group stays in its node pool. Only one pass at a time uses
	// it. After a restart, each group first waits for schedulerSettleDelay.
	notBefore map[types.NamespacedName]time.Time
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	podGroup := &unstructured.Unstructured{}
	podGroup.SetGroupVersionKind(kaigroup.Kind)
	if err := r.Client.Get(ctx, req.NamespacedName, podGroup); err != nil {
		delete(r.notBefore, req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !podGroup.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, nil
	}
	places, err := r.listPlaces(ctx, req.Namespace)
	if len(places) == 0 || err != nil {
		return reconcile.Result{}, err
	}
	group := kaigroup.Group(podGroup.Object)
	if at, known := kaigroup.FindPlacement(places, group.Queue()); group.Preemptible() && (!known || !group.IsUnschedulable(at)) {
		return reconcile.Result{}, nil
	}
	pods, err := r.listPods(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := policytime.MachineNow()
	next := decide(now, group, places, pods, r.notBefore[req.NamespacedName])
	return r.applyDecision(ctx, now, next, podGroup, pods)
}

// applyDecision writes the change.
func (r *Reconciler) applyDecision(
	ctx context.Context, now time.Time, next decision, podGroup *unstructured.Unstructured, pods []corev1.Pod,
) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(podGroup)
	var err error
	switch {
	case next.demote != "":
		err = r.demoteGroup(ctx, podGroup, next.demote)
	case next.retryForever:
		err = r.setSchedulingBackoff(ctx, podGroup, retryForever)
	case next.tryOnce:
		err = r.setSchedulingBackoff(ctx, podGroup, tryOnce)
		next.waitUntil = laterTime(r.notBefore[name], now.Add(schedulerSettleDelay))
	case next.move != nil:
		if err = r.moveGroup(ctx, podGroup, pods, *next.move); err == nil {
			next.waitUntil = now.Add(minMoveInterval)
			r.Events.Eventf(podGroup, nil, corev1.EventTypeNormal, "NodePoolChanged", "ChangeNodePool",
				"its node pool has no room; moved to node pool %s, queue %s", next.move.Pool, next.move.Queue)
		}
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("change PodGroup %s: %w", name, client.IgnoreNotFound(err))
	}
	if next.waitUntil.IsZero() {
		return reconcile.Result{}, nil
	}
	r.notBefore[name] = next.waitUntil
	return reconcile.Result{RequeueAfter: next.waitUntil.Sub(now)}, nil
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// listPlaces returns the placements of the project that has the namespace. It returns none if the
// namespace is not Sluice's to change.
func (r *Reconciler) listPlaces(ctx context.Context, namespace string) ([]kaigroup.Placement, error) {
	project, err := inventory.ProjectForNamespace(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	var ns corev1.Namespace
	if err := r.Client.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if _, others := ns.Labels[kaigroup.LabelKRMProject]; others {
		return nil, nil
	}
	pools, err := inventory.ProjectPools(ctx, r.Client, project)
	return kaigroup.Placements(project.Name, pools), err
}

// listPods returns the pods of a group that have not ended.
func (r *Reconciler) listPods(ctx context.Context, group types.NamespacedName) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(group.Namespace), client.HasLabels{v1alpha1.LabelNodePool}); err != nil {
		return nil, fmt.Errorf("list pods of PodGroup %s: %w", group, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Annotations[kaigroup.AnnotationGroup] != group.Name || workload.IsPodTerminal(&p)
	}), nil
}

// discoveryInterval is the interval of API discovery until PodGroups are found, in machine time.
const discoveryInterval = 10 * time.Second

// SetupWithManager adds r to the manager as soon as the API server serves PodGroups.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.notBefore = map[types.NamespacedName]time.Time{}
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, discoveryInterval, true, func(ctx context.Context) (bool, error) {
			served, err := isPodGroupServed(ctx, server)
			if err != nil {
				mgr.GetLogger().V(1).Info("API discovery of PodGroups failed; retrying", "reason", err.Error())
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
	return ctrl.NewControllerManagedBy(mgr).Named("kaifallback").For(groups).Complete(apply.RequeueOnConflict(r))
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
