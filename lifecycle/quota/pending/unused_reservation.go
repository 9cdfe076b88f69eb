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
)

// reasonUnused is the reason of the events on a workload that holds quota without pods: at half of
// its start timeout, and when the quota is given back.
const (
	reasonUnused   = "QuotaUnused"
	reasonGaveBack = "StartTimeoutReached"
)

// unusedReservation is the quota that a Workload holds without pods.
type unusedReservation struct {
	// since is in policy time. Each process measures it again: between two pods of a Job there can be
	// none for a while, and the cluster does not record since when.
	since  time.Time
	warned bool
}

// reconcileUnused gives back the quota of Workloads that hold it for their start timeout and have no
// pods, by spec.active. It returns when the next one is due, as a wait in machine time; 0 if none is.
func (r *Reconciler) reconcileUnused(ctx context.Context, project *v1alpha1.Project, all []kueueWorkload) (time.Duration, error) {
	before, now := r.unused[project.Name], map[types.UID]unusedReservation{}
	var wait time.Duration
	defer func() {
		if r.unused[project.Name] = now; len(now) == 0 {
			delete(r.unused, project.Name)
		}
	}()
	unused := r.listWithoutPods(project.NamespaceName(), all)
	if len(unused) == 0 {
		return 0, nil
	}
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	at := r.Clock.Now()
	for _, w := range unused {
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
			if err := r.giveBack(ctx, w, root, limits.StartTimeout.String(), kind, project.Name); err != nil {
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

// listWithoutPods returns the Workloads that hold quota and whose owner has no pods. A pod of an unknown
// workload could belong to any.
func (r *Reconciler) listWithoutPods(namespace string, all []kueueWorkload) (unused []*kueueWorkload) {
	controllers, clocks := map[types.UID]bool{}, map[string]bool{}
	listed, unknown := false, false
	for i := range all {
		w := &all[i]
		active := w.Spec.Active == nil || *w.Spec.Active
		if !active || w.charge == 0 || w.isForPods() || !w.hasCondition(kueueQuotaReserved) || w.hasCondition(kueueFinished) ||
			!w.DeletionTimestamp.IsZero() {
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
			unused = append(unused, w)
		}
	}
	return unused
}

// giveBack deactivates the Workload: Kueue then suspends its owner and frees the quota.
func (r *Reconciler) giveBack(
	ctx context.Context, w *kueueWorkload, root corev1.ObjectReference, timeout string, kind v1alpha1.WorkloadType, project string,
) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.UID}, "spec": map[string]any{"active": false}})
	if err != nil {
		return fmt.Errorf("deactivate Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	object.SetGroupVersionKind(kueueGroupVersion.WithKind("Workload"))
	err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // it was deleted, or replaced by another object
	case err != nil:
		return fmt.Errorf("deactivate Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	r.Events.Eventf(&root, nil, corev1.EventTypeWarning, reasonGaveBack, "GiveBack",
		"it held %s in queue %s for %s without pods, the start timeout for type %s in project %s, so Sluice gave the quota back; "+
			"find out why its controller creates no pods, then set spec.active of Workload %s to true",
		w.charge.Describe(), quoteMessage(w.Spec.QueueName), timeout, kind, project, w.Name)
	return nil
}
