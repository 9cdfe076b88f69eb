// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/roots"
)

// identify records which object the workload is now. One that takes another's
// place under another name begins with the other's time.
func (r *Reconciler) identify(ctx context.Context, w *workload) error {
	if len(w.roots) == 0 || w.clock.Status.RootUID == w.roots[0].UID {
		return nil
	}
	root := w.roots[0]
	object, err := r.read(ctx, root)
	if err != nil {
		return err
	}
	w.clock = w.clock.DeepCopy()
	s := &w.clock.Status
	hash, creator := "", ""
	if object != nil {
		hash = kinds.TemplateHash(root.GroupKind(), object.Object)
		creator = object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]
	}
	if s.State == "" && hash != "" {
		from, err := r.predecessor(ctx, w, hash)
		if err != nil {
			return err
		}
		if from != nil {
			*s = ending.Inherit(from.Status)
		}
	}
	s.RootUID, s.TemplateHash, s.CreatedBy = root.UID, hash, creator
	if s.CreatedBy == "" && len(w.running) > 0 {
		s.CreatedBy = w.running[0].CreatedBy
	}
	return nil
}

// read reads a root whole; nil where it is gone, or may not be read.
func (r *Reconciler) read(ctx context.Context, root roots.Root) (*unstructured.Unstructured, error) {
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

// predecessor is the clock of a workload with the same template whose place
// another takes: it was stopped by Sluice, or deleted, and its time has not begun
// anew.
func (r *Reconciler) predecessor(ctx context.Context, w *workload, hash string) (*v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for what %s takes the place of: %w", w.clock.Name, err)
	}
	var found *v1alpha1.WorkloadClock
	for i := range clocks.Items {
		other := &clocks.Items[i]
		if other.Name == w.clock.Name || other.Status.TemplateHash != hash || !r.unreset(w, &other.Status) {
			continue
		}
		gone := false
		if other.Status.Stopped == nil {
			object, err := r.read(ctx, rootOf(other))
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

// unreset tells whether a workload does not run, and its time has not begun anew.
func (r *Reconciler) unreset(w *workload, s *v1alpha1.WorkloadClockStatus) bool {
	if stopped := s.Stopped; stopped != nil && (stopped.Until == nil || w.now.Before(stopped.Until.Time)) {
		return true
	}
	terms, _ := w.tenant.terms(w.now, nil, s.WorkloadType)
	return s.PausedSince != nil && w.now.Before(s.PausedSince.Add(terms.ResetAfter.Length()).Truncate(time.Second))
}

// rootOf is the object that a clock last was for.
func rootOf(c *v1alpha1.WorkloadClock) roots.Root {
	return roots.Root{
		GroupVersionKind: gvk(c.Spec.Root), Namespace: c.Namespace, Name: c.Spec.Root.Name, UID: c.Status.RootUID,
	}
}
