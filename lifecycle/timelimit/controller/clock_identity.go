// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
)

// reconcileIdentity records which object the workload is now. One that takes another's
// place under another name begins with the other's time.
func (r *Reconciler) reconcileIdentity(ctx context.Context, w *workload) error {
	if len(w.roots) == 0 || w.clock.Status.RootUID == w.roots[0].UID {
		return nil
	}
	root := w.roots[0]
	object, err := r.getRoot(ctx, root)
	if err != nil {
		return err
	}
	w.clock = w.clock.DeepCopy()
	s := &w.clock.Status
	hash, creator := "", ""
	if object != nil {
		hash = workloadkind.TemplateHash(root.GroupKind(), object.Object)
		creator = object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]
	}
	if s.State == "" && hash != "" {
		from, err := r.findPredecessor(ctx, w, hash)
		if err != nil {
			return err
		}
		if from != nil {
			*s = timelimit.InheritStatus(from.Status)
		}
	}
	s.RootUID, s.TemplateHash, s.CreatedBy = root.UID, hash, creator
	if s.CreatedBy == "" && len(w.runningPods) > 0 {
		s.CreatedBy = w.runningPods[0].CreatedBy
	}
	return nil
}

// getRoot reads a root whole; nil where it is gone, or may not be read.
func (r *Reconciler) getRoot(ctx context.Context, root owner.Root) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(root.GroupVersionKind)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: root.Namespace, Name: root.Name}, object)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s/%s: %w", root.Kind, root.Namespace, root.Name, err)
	case object.GetUID() != root.UID:
		return nil, nil
	}
	return object, nil
}

// findPredecessor is the clock of a workload with the same template whose place
// another takes: it was stopped by Sluice, or deleted, and its time has not begun
// anew.
func (r *Reconciler) findPredecessor(ctx context.Context, w *workload, hash string) (*v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for what %s takes the place of: %w", w.clock.Name, err)
	}
	var found *v1alpha1.WorkloadClock
	for i := range clocks.Items {
		other := &clocks.Items[i]
		if other.Name == w.clock.Name || other.Status.TemplateHash != hash || !r.isNotReset(w, &other.Status) {
			continue
		}
		gone := false
		if other.Status.Stopped == nil {
			object, err := r.getRoot(ctx, rootOfClock(other))
			if err != nil {
				return nil, err
			}
			gone = object == nil
		}
		if (gone || other.Status.Stopped != nil) && (found == nil || found.Status.AccumulatedSeconds < other.Status.AccumulatedSeconds) {
			found = other
		}
	}
	return found, nil
}

// isNotReset tells whether a workload does not run, and its time has not begun anew.
func (r *Reconciler) isNotReset(w *workload, s *v1alpha1.WorkloadClockStatus) bool {
	if stopped := s.Stopped; stopped != nil && (stopped.Until == nil || w.now.Before(stopped.Until.Time)) {
		return true
	}
	terms, _ := w.tenant.effectiveLimits(w.now, nil, s.WorkloadType)
	return s.PausedSince != nil && w.now.Before(s.PausedSince.Add(terms.ResetAfter.Length()).Truncate(time.Second))
}

// rootOfClock is the object that a clock last was for.
func rootOfClock(c *v1alpha1.WorkloadClock) owner.Root {
	return owner.Root{
		GroupVersionKind: groupVersionKind(c.Spec.Root), Namespace: c.Namespace, Name: c.Spec.Root.Name, UID: c.Status.RootUID,
	}
}

// clockNameOf is the name of a root's clock. A workload that is made again under its
// name has the same.
func clockNameOf(root owner.Root) types.NamespacedName {
	return types.NamespacedName{Namespace: root.Namespace, Name: v1alpha1.WorkloadClockName(root.Group, root.Kind, root.Name)}
}

// verifyClockCurrent makes sure, before anybody is told anything, that the clock is the one
// that was written last. The cache may lag behind, and what follows from an older
// clock may be another limit, and so another message, or the mark of an older stop.
// The error is a conflict where it is not.
func (r *Reconciler) verifyClockCurrent(ctx context.Context, w *workload, d timelimit.Decision) error {
	if len(d.Warnings) == 0 && !d.Stopped && !d.Released {
		return nil
	}
	var now v1alpha1.WorkloadClock
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(w.clock), &now); err != nil {
		return fmt.Errorf("reading clock %s/%s: %w", w.clock.Namespace, w.clock.Name, err)
	}
	if now.UID != w.clock.UID || now.ResourceVersion != w.clock.ResourceVersion {
		resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workloadclocks"}
		return apierrors.NewConflict(resource, w.clock.Name, fmt.Errorf("the cache has version %s, and it is %s", w.clock.ResourceVersion, now.ResourceVersion))
	}
	return nil
}

// pauseOrphanedClock has the time of a workload stand still whose namespace is nobody's any
// more: its project was deleted, or has another. It runs on, and nobody ends it; a
// clock that said otherwise would never be taken away, and be counted by the brake.
func (r *Reconciler) pauseOrphanedClock(ctx context.Context, w *workload) error {
	s := &w.clock.Status
	if s.RunningSince == nil && s.Deadline == nil {
		return nil
	}
	terms := timelimit.EffectiveLimits{Limits: v1alpha1.EffectiveLimits(s.WorkloadType, nil, nil), Leads: defaultLeads}
	if s.Limit != nil {
		terms.MaxRuntime = s.Limit.Configured
	}
	next := w.clock.DeepCopy()
	next.Status = timelimit.Decide(w.now, *s, timelimit.Observation{}, terms).Status
	next.Status.Local = renderLocalStatus(&next.Status, time.UTC)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s of a namespace without project: %w", next.Namespace, next.Name, err)
	}
	return nil
}
