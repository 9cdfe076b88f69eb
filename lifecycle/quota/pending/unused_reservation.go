// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Reasons of the events on a workload that holds quota without pods: at half of its start timeout, and when
// the quota is given back.
const reasonUnused, reasonPutBack = "QuotaUnused", "PutBack"

// unusedReservation is the quota that a Workload holds without pods.
type unusedReservation struct {
	// since is in policy time. Each process measures it again: between two pods of a Job there can be
	// none for a while, and the cluster does not record since when.
	since  time.Time
	warned bool
}

// reconcileUnused puts back Workloads that hold quota for their start timeout and have no pods, by
// spec.active, and queues again those that were put back. It returns when the next one is due, as a wait in
// machine time; 0 if none is.
func (r *Reconciler) reconcileUnused(ctx context.Context, project *v1alpha1.Project, all, unused []kueueWorkload) (time.Duration, error) {
	before, now := r.unused[project.Name], map[types.UID]unusedReservation{}
	wait, err := r.requeuePutBack(ctx, all)
	if err != nil {
		return 0, err
	}
	defer func() {
		if r.unused[project.Name] = now; len(now) == 0 {
			delete(r.unused, project.Name)
		}
	}()
	if len(unused) == 0 {
		return wait, nil
	}
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	at := r.Clock.Now()
	for i := range unused {
		w := &unused[i]
		state, known := before[w.UID]
		if !known {
			state.since = at
		}
		kind := cmp.Or(w.workloadType, v1alpha1.WorkloadTrain)
		limits := v1alpha1.TightestLimits(kind, project.Spec.Workloads, department.Spec.Workloads)
		timeout := limits.StartTimeout.Length()
		if timeout <= 0 || limits.DryRun {
			continue
		}
		now[w.UID] = state
		root, err := r.rootOwner(ctx, workloadOwner(w, r.Pods.ByUID))
		if err != nil {
			return 0, err
		}
		end := state.since.Add(timeout)
		if !at.Before(end) {
			if err := r.putBack(ctx, w, root, limits.StartTimeout.String(), at); err != nil {
				return 0, err
			}
			delete(now, w.UID)
			continue
		}
		if !state.warned && !at.Before(state.since.Add(timeout/2)) {
			state.warned = true
			now[w.UID] = state
			r.Events.Eventf(&root, nil, corev1.EventTypeWarning, reasonUnused, "Wait",
				"it holds %s in queue %s and has no pods; after %s without pods Sluice gives the quota back", w.charge.Describe(),
				quoteMessage(w.Spec.QueueName), limits.StartTimeout)
		}
		// A step of policy time causes no event.
		if next := max(time.Second, min(r.Clock.RealUntil(end), pendingRequeueAfter)); wait == 0 || next < wait {
			wait = next
		}
	}
	return wait, nil
}

// listWithoutPods returns the admitted Workloads whose owner has no pods. A pod of an unknown workload could
// belong to any. While an admission check is pending there can be none.
func (r *Reconciler) listWithoutPods(namespace string, all []kueueWorkload) (unused []kueueWorkload) {
	controllers, clocks := map[types.UID]bool{}, map[string]bool{}
	listed, unknown := false, false
	for i := range all {
		w := &all[i]
		if !w.isOpen() || !w.isActive() || w.isForPods() || !w.hasCondition(kueueAdmitted) {
			continue
		}
		if !listed {
			listed = true
			for pod := range r.Pods.InNamespace(namespace) {
				controllers[pod.Controller.UID] = true
				clock, known := r.Clocks.ClockOf(pod)
				clocks[clock.Name], unknown = true, unknown || !known
			}
		}
		owner := workloadOwner(w, r.Pods.ByUID)
		group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group
		if !controllers[owner.UID] && !clocks[v1alpha1.WorkloadClockName(group, owner.Kind, owner.Name)] && !unknown {
			unused = append(unused, *w)
		}
	}
	return unused
}

// sumReserved returns the GPU quota of Workloads by node pool. The node pool is "" if those of a Workload differ.
func sumReserved(unused []kueueWorkload) poolCharges {
	by := poolCharges{}
	for i := range unused {
		by[unused[i].pool] += unused[i].charge
	}
	return by
}

// putBack deactivates the Workload: Kueue then suspends its owner and frees the quota. Its place in the queue is that
// of its creation.
func (r *Reconciler) putBack(ctx context.Context, w *kueueWorkload, root corev1.ObjectReference, timeout string, now time.Time) error {
	record := w.putBack().Next(now)
	if err := r.setActive(ctx, w, false, record); err != nil {
		return err
	}
	r.Events.Eventf(&root, nil, corev1.EventTypeWarning, reasonPutBack, "PutBack",
		"it held %s in queue %s for %s without pods, so Sluice gave the quota back; it keeps its place in the queue, and takes part "+
			"again at %s; find out why its controller creates no pods", w.charge.Describe(), quoteMessage(w.Spec.QueueName), timeout,
		record.Until.UTC().Format(time.RFC3339))
	return nil
}

// requeuePutBack activates the Workloads that were put back and whose time is over, unless Sluice stopped them. It
// returns when the next one is due.
func (r *Reconciler) requeuePutBack(ctx context.Context, all []kueueWorkload) (wait time.Duration, err error) {
	for i := range all {
		w := &all[i]
		record := w.putBack()
		_, stopped := w.Annotations[v1alpha1.AnnotationStoppedUntil]
		if stopped || record.Until.IsZero() || w.isActive() || !w.isOpen() {
			continue
		}
		if left := r.Clock.RealUntil(record.Until); left > 0 {
			wait = max(time.Second, min(left, cmp.Or(wait, pendingRequeueAfter), pendingRequeueAfter))
		} else if err := r.setActive(ctx, w, true, workloadkind.PutBack{Times: record.Times}); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// setActive activates or deactivates a Workload, and records how often it was put back.
func (r *Reconciler) setActive(ctx context.Context, w *kueueWorkload, active bool, record workloadkind.PutBack) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": w.UID, "annotations": map[string]string{v1alpha1.AnnotationPutBack: record.String()}},
		"spec":     map[string]any{"active": active},
	})
	if err == nil {
		owner := client.FieldOwner(v1alpha1.FieldManagerLifecycle)
		err = r.Client.Patch(ctx, w.metadataOnly(), client.RawPatch(types.MergePatchType, patch), owner)
	}
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil // it was deleted, or replaced by another object
	}
	return fmt.Errorf("set active of Workload %s/%s to %t: %w", w.Namespace, w.Name, active, err)
}

// metadataOnly returns the object of requests to change the Workload.
func (w *kueueWorkload) metadataOnly() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	object.SetGroupVersionKind(kueueGroupVersion.WithKind("Workload"))
	return object
}

// releaseDeletedGroups deletes the Workloads of pod groups all of whose pods were deleted before they had a node. Kueue
// waits for their replacements, and until then keeps the quota, and by its finalizer the pods, which count in the
// ResourceQuota. Without the Workload it removes both. The pods of an evicted group are Kueue's to delete.
func (r *Reconciler) releaseDeletedGroups(ctx context.Context, all []kueueWorkload) error {
	for i := range all {
		w := &all[i]
		if !w.isOpen() || !w.isForPods() || !w.hasCondition(kueueQuotaReserved) || w.hasCondition(kueueEvicted) || !r.areMembersDeleted(w) {
			continue
		}
		err := r.Client.Delete(ctx, w.metadataOnly(), client.Preconditions{UID: &w.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete Workload %s/%s of deleted pods: %w", w.Namespace, w.Name, err)
		}
	}
	return nil
}

// areMembersDeleted reports whether pods of the Workload that have no node are being deleted, and it has no others.
func (r *Reconciler) areMembersDeleted(w *kueueWorkload) (deleted bool) {
	for _, owner := range w.OwnerReferences {
		pod, known := r.Pods.ByUID(owner.UID)
		if known && (!pod.Deleting || pod.IsBound()) {
			return false
		}
		deleted = deleted || known
	}
	return deleted
}
