// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/kaigroup"
)

// Reconciler plans all pools that are cut, in one pass: a pod may use several.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads the pods of a node that is about to be changed: no cache may be
	// behind there.
	Live client.Reader
	// Events tells people what is made for whom.
	Events events.EventRecorder

	pending  *pending
	machines machines
	memory   memory
	// ends remembers of pods that have instances whether they may be preempted.
	ends map[types.UID]bool
	now  func() time.Time
}

// again is after how long what changed meanwhile is looked at again, in machine time.
const again = 100 * time.Millisecond

// mostAskedAbout is of how many pods is asked in one pass whether they may be preempted.
const mostAskedAbout = 64

// Reconcile implements reconcile.Reconciler, for all pools.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.now()
	s, err := r.look(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.sweep(ctx, s.orphans); err != nil {
		return reconcile.Result{}, err
	}
	d := decide(&s.snapshot, now)
	measure(&d)
	if err := r.act(ctx, s, &d, now); err != nil {
		if errors.Is(err, errChanged) || apierrors.IsNotFound(err) {
			log.FromContext(ctx).V(1).Info("looking again", "reason", err.Error())
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{}, err
	}
	r.memory = d.memory
	if err := r.report(ctx, s, &d, now); err != nil {
		return reconcile.Result{}, err
	}
	if d.next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(d.next.Sub(now), again)}, nil
}

// report writes the condition of each pool where it changed.
func (r *Reconciler) report(ctx context.Context, s *seen, d *decision, now time.Time) error {
	asked := 0
	conditions := d.conditions(func(pod v1alpha1.PodReference) bool { return r.mayEnd(ctx, pod, &asked) })
	for i, pool := range s.poolObjects {
		c := conditions[i]
		c.Message = render.Clip(c.Message)
		c.ObservedGeneration, c.LastTransitionTime = pool.Generation, metav1.NewTime(now)
		after := pool.DeepCopy()
		meta.SetStatusCondition(&after.Status.Conditions, c)
		if err := r.update(ctx, pool, after); err != nil {
			return err
		}
	}
	for _, pool := range s.others {
		after := pool.DeepCopy()
		meta.RemoveStatusCondition(&after.Status.Conditions, v1alpha1.ConditionPlanned)
		if err := r.update(ctx, pool, after); err != nil {
			return err
		}
	}
	if len(d.unmet) == 0 {
		clear(r.ends)
	}
	return nil
}

// update writes a status that differs from what was read, with the resource version
// that was read: others write it, too.
func (r *Reconciler) update(ctx context.Context, before, after *v1alpha1.NodePool) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of node pool %s: %w", after.Name, err)
	}
	return nil
}

// mayEnd tells whether a pod that has an instance is one of Sluice's that may be
// preempted. It is only said, so that what cannot be read cannot be.
func (r *Reconciler) mayEnd(ctx context.Context, reference v1alpha1.PodReference, asked *int) bool {
	if known, ok := r.ends[reference.UID]; ok {
		return known
	}
	if *asked++; *asked > mostAskedAbout {
		return false
	}
	var pod corev1.Pod
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, &pod); err != nil || pod.UID != reference.UID {
		return false
	}
	name := pod.Spec.PriorityClassName
	r.ends[reference.UID] = kaigroup.IsOurs(name) && kaigroup.ClassOf(name).Preemptible()
	return r.ends[reference.UID]
}

func (r *Reconciler) begin() {
	r.machines, r.ends = machines{}, map[types.UID]bool{}
	if r.now == nil {
		r.now = clock.MachineNow
	}
}
