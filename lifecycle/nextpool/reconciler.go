// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nextpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/facts"
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
	places, err := r.places(ctx, req.Namespace)
	if len(places) == 0 || err != nil {
		return reconcile.Result{}, err
	}
	group := kaigroup.Group(object.Object)
	if at, known := kaigroup.Find(places, group.Queue()); group.Preemptible() && (!known || !group.Refused(at)) {
		return reconcile.Result{}, nil
	}
	pods, err := r.pods(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := clock.MachineNow()
	what := decide(now, group, places, pods, r.notBefore[req.NamespacedName])
	return r.take(ctx, now, what, object, pods)
}

// take takes a step.
func (r *Reconciler) take(ctx context.Context, now time.Time, what step, object *unstructured.Unstructured, pods []corev1.Pod) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(object)
	var err error
	switch {
	case what.demote != "":
		err = r.demote(ctx, object, what.demote)
	case what.again:
		delete(r.notBefore, name)
		err = r.tried(ctx, object, false)
	case what.once:
		err = r.tried(ctx, object, true)
		what.wait = later(r.notBefore[name], now.Add(settle))
	case what.move != nil:
		if err = r.move(ctx, object, pods, *what.move); err == nil {
			what.wait = now.Add(between)
			r.Events.Eventf(object, nil, corev1.EventTypeNormal, "NextNodePool", "TryNextNodePool",
				"there is no room in its node pool; trying %s, with queue %s", what.move.Pool, what.move.Queue)
		}
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("PodGroup %s: %w", name, client.IgnoreNotFound(err))
	}
	if what.wait.IsZero() {
		return reconcile.Result{}, nil
	}
	r.notBefore[name] = what.wait
	return reconcile.Result{RequeueAfter: what.wait.Sub(now)}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// places are those of the project that has the namespace; none where nobody of
// Sluice's decides where its groups are.
func (r *Reconciler) places(ctx context.Context, namespace string) ([]kaigroup.Place, error) {
	project, err := inventory.ProjectOf(ctx, r.Client, namespace)
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
	return kaigroup.Places(project.Name, facts.OfPools(project, func(name string) *v1alpha1.NodePool { return pools[name] })), nil
}

// pods are those of a group that are still to run, or run.
func (r *Reconciler) pods(ctx context.Context, group types.NamespacedName) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(group.Namespace), client.HasLabels{v1alpha1.LabelNodePool}); err != nil {
		return nil, fmt.Errorf("listing the pods of PodGroup %s: %w", group, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Annotations[kaigroup.AnnotationGroup] != group.Name || workload.Ended(&p)
	}), nil
}
