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

// reconcileIdentity sets the UID, template hash and creator of the workload in the clock. A
// workload that replaces another under a new name inherits its status.
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

// getRoot reads a root from the API server. It returns nil if the root is gone or lifecycle
// must not read it.
func (r *Reconciler) getRoot(ctx context.Context, root owner.Root) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(root.GroupVersionKind)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: root.Namespace, Name: root.Name}, object)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s/%s: %w", root.Kind, root.Namespace, root.Name, err)
	case object.GetUID() != root.UID:
		return nil, nil
	}
	return object, nil
}

// findPredecessor returns the clock that the workload inherits from: one with the same
// template whose workload was stopped or deleted and whose time has not been reset. Of
// several it returns the one with the longest running time.
func (r *Reconciler) findPredecessor(ctx context.Context, w *workload, hash string) (*v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("list clocks to find the predecessor of %s: %w", w.clock.Name, err)
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

// isNotReset reports whether a workload is not running and its clock has not been reset.
func (r *Reconciler) isNotReset(w *workload, s *v1alpha1.WorkloadClockStatus) bool {
	if stopped := s.Stopped; stopped != nil && (stopped.Until == nil || w.now.Before(stopped.Until.Time)) {
		return true
	}
	limits, _ := w.effectiveLimits(w.now, nil, s.WorkloadType)
	return s.PausedSince != nil && w.now.Before(s.PausedSince.Add(limits.ResetAfter.Length()).Truncate(time.Second))
}

// rootOfClock returns the last root object of a clock.
func rootOfClock(c *v1alpha1.WorkloadClock) owner.Root {
	return owner.Root{
		GroupVersionKind: groupVersionKind(c.Spec.Root), Namespace: c.Namespace, Name: c.Spec.Root.Name, UID: c.Status.RootUID,
	}
}

// clockNameOf returns the name of a root's clock. A workload that is created again under its
// name keeps its clock.
func clockNameOf(root owner.Root) types.NamespacedName {
	return types.NamespacedName{Namespace: root.Namespace, Name: v1alpha1.WorkloadClockName(root.Group, root.Kind, root.Name)}
}

// verifyClockCurrent returns a conflict if the clock is not the latest version and the
// decision has warnings, a stop or a release. A stale clock could lead to a second warning
// with another limit, or to the annotation of an older stop.
func (r *Reconciler) verifyClockCurrent(ctx context.Context, w *workload, d timelimit.Decision) error {
	if len(d.Warnings) == 0 && !d.Stopped && !d.Released {
		return nil
	}
	var latest v1alpha1.WorkloadClock
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(w.clock), &latest); err != nil {
		return fmt.Errorf("get clock %s/%s: %w", w.clock.Namespace, w.clock.Name, err)
	}
	if latest.UID != w.clock.UID || latest.ResourceVersion != w.clock.ResourceVersion {
		resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workloadclocks"}
		return apierrors.NewConflict(resource, w.clock.Name,
			fmt.Errorf("the cache has resource version %s, the API server %s", w.clock.ResourceVersion, latest.ResourceVersion))
	}
	return nil
}
