// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
)

// reconcileIdentity sets the UID, template hash and creator of the workload in the clock. A
// workload that continues an earlier one of the same creator, under the same or another
// name, inherits its status. Otherwise the clock starts at zero.
func (r *Reconciler) reconcileIdentity(ctx context.Context, w *workload) error {
	if len(w.roots) == 0 {
		return nil
	}
	if s := &w.clock.Status; s.RootUID == w.roots[0].UID {
		if err := r.continueFormer(ctx, w, s.CreatedBy); err != nil {
			return err
		}
		return r.continueCopy(ctx, w)
	}
	root := w.roots[0]
	object, err := r.getRoot(ctx, root)
	if err != nil {
		return err
	}
	w.clock = w.clock.DeepCopy()
	s := &w.clock.Status
	s.PodControllers = nil              // those of the earlier object
	if object == nil && s.State != "" { // an earlier root whose pods are still there, or one that cannot be read
		s.RootUID = root.UID
		return nil
	}
	successor := timelimit.Successor{Clock: w.clock.Name}
	if object != nil {
		successor.TemplateHash = workloadkind.TemplateHash(root.GroupKind(), object.Object)
		if successor.Creator, err = r.creatorOf(ctx, object); err != nil {
			return err
		}
	}
	if held := w.heldPods(); successor.Creator == "" && len(held) > 0 {
		successor.Creator = held[0].CreatedBy
	}
	inheritedFrom := ""
	switch {
	case s.State == "":
	case successor.ContinuesOwn(w.clock, w.now):
		inheritedFrom = timelimit.InheritedFrom(s, successor.Creator)
		s.CompletedAt, s.MissingSince = nil, nil // those of the earlier workload
		if err := r.continueFormer(ctx, w, successor.Creator); err != nil {
			return err
		}
		s = &w.clock.Status
	default:
		if err := r.keepFormerClock(ctx, w, successor.Creator); err != nil {
			return err
		}
		if w.clock.CountsFor(successor.Creator) {
			successor.Earlier = s.DeepCopy()
		}
		*s = v1alpha1.WorkloadClockStatus{}
		w.createdAt = object.GetCreationTimestamp().Time
	}
	if s.State == "" {
		from, err := r.claimFormer(ctx, w, &successor)
		if from == nil && err == nil {
			from, err = r.claimPredecessor(ctx, w, successor)
		}
		if err != nil {
			return err
		}
		if from != nil {
			*s = timelimit.InheritStatus(from, successor.Creator, w.now)
			inheritedFrom = s.InheritedFrom
		}
	}
	s.RootUID, s.TemplateHash, s.CreatedBy, s.InheritedFrom = root.UID, successor.TemplateHash, successor.Creator, inheritedFrom
	return nil
}

// keepFormerClock keeps the clock's status in a second clock, if another user created a workload
// of the same name and the former creator can still continue the time.
func (r *Reconciler) keepFormerClock(ctx context.Context, w *workload, creator string) error {
	s := &w.clock.Status
	limits, _ := w.effectiveLimits(w.now, nil, s.WorkloadType)
	if s.CreatedBy == creator || !timelimit.CanContinue(s, limits.ResetAfter.Length(), w.now) {
		return nil
	}
	former := &v1alpha1.WorkloadClock{Spec: w.clock.Spec}
	former.Namespace, former.Name = w.clock.Namespace, w.clock.Spec.Root.FormerClockName(s.CreatedBy)
	err := r.Client.Create(ctx, former)
	if apierrors.IsAlreadyExists(err) {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(former), former)
	}
	if err != nil {
		return fmt.Errorf("create clock %s/%s: %w", former.Namespace, former.Name, err)
	}
	former.Status = timelimit.FormerStatus(s, w.now)
	if err := r.Client.Status().Update(ctx, former); err != nil {
		return fmt.Errorf("update clock %s/%s: %w", former.Namespace, former.Name, err)
	}
	return nil
}

// continueCopy continues the clock of a copy that ran while this workload, which starts again,
// was paused, or that its user pauses soon after this workload started.
func (r *Reconciler) continueCopy(ctx context.Context, w *workload) error {
	s := &w.clock.Status
	switch {
	case len(w.runningPods) == 0, s.HasActiveStop(w.now):
		return nil
	case s.RunningSince != nil:
		if !r.awaitCopyPaused(w) {
			return nil
		}
	case s.IdleSince != nil:
		return nil
	}
	from, err := r.claimPredecessor(ctx, w, timelimit.Successor{
		Clock: w.clock.Name, Creator: s.CreatedBy, TemplateHash: s.TemplateHash, Own: s,
	})
	if from != nil {
		w.clock = w.clock.DeepCopy()
		w.clock.Status = timelimit.ContinueStatus(s, from, w.now)
	}
	return err
}

// awaitCopyPaused reports whether a workload started less than resetAfter ago, and requests two
// reconciliations within that time: half of it is then left for the later one.
func (r *Reconciler) awaitCopyPaused(w *workload) bool {
	limits, _ := w.effectiveLimits(w.now, nil, w.clock.Status.WorkloadType)
	window := limits.ResetAfter.Length()
	for _, at := range []time.Duration{window / 2, window} {
		if check := w.clock.Status.RunningSince.Add(at); check.After(w.now) {
			w.requeueWithin(max(r.Clock.RealUntil(check), time.Millisecond))
			break
		}
	}
	return w.now.Sub(w.clock.Status.RunningSince.Time) <= window+copyPausedTolerance
}

// copyPausedTolerance is how late, in policy time, the last reconciliation of awaitCopyPaused may come.
const copyPausedTolerance = time.Minute

// cronJobKind is the kind whose runs the CronJob controller creates.
var cronJobKind = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}

// creatorOf returns the user who created a workload: for a run that the CronJob controller
// created, the user who created the CronJob. It trusts no owner reference that a user wrote.
func (r *Reconciler) creatorOf(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	creator := object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]
	ref := metav1.GetControllerOf(object)
	if ref == nil || groupVersionKind(v1alpha1.WorkloadReference{APIVersion: ref.APIVersion, Kind: ref.Kind}) != cronJobKind ||
		!workloadkind.IsKubernetesController(creator) {
		return creator, nil
	}
	cronJob, err := r.getRoot(ctx, owner.Root{GroupVersionKind: cronJobKind, Namespace: object.GetNamespace(), Name: ref.Name, UID: ref.UID})
	if cronJob == nil || err != nil {
		return creator, err
	}
	return cmp.Or(cronJob.GetAnnotations()[v1alpha1.AnnotationCreatedBy], creator), nil
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

// claimPredecessor returns the clock that the workload continues, or nil. It records the
// workload as the successor first, so that no other workload continues the same clock. After
// a crash the same workload finds it again.
func (r *Reconciler) claimPredecessor(ctx context.Context, w *workload, n timelimit.Successor) (*v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("list clocks to find the predecessor of %s: %w", w.clock.Name, err)
	}
	candidates := slices.DeleteFunc(clocks.Items, func(other v1alpha1.WorkloadClock) bool {
		limits, _ := w.effectiveLimits(w.now, nil, other.Status.WorkloadType)
		return !n.ContinuesOther(&other, limits.ResetAfter.Length(), w.now)
	})
	slices.SortFunc(candidates, func(a, b v1alpha1.WorkloadClock) int { return timelimit.ComparePredecessors(&a, &b, w.now) })
	var found *v1alpha1.WorkloadClock
	for i := range candidates {
		if !n.IsRunning() && candidates[i].Status.Stopped != nil {
			found = &candidates[i]
			break
		}
		paused, deleted, err := r.observeEndByUser(ctx, &candidates[i])
		if err != nil {
			return nil, err
		}
		if paused || deleted && !n.IsRunning() {
			found = &candidates[i]
			break
		}
	}
	if found == nil || found.Status.HasActiveStop(w.now) {
		return found, nil
	}
	return r.recordSuccessor(ctx, found, w.clock.Name)
}

// recordSuccessor records which workload continues a clock.
func (r *Reconciler) recordSuccessor(ctx context.Context, c *v1alpha1.WorkloadClock, name string) (*v1alpha1.WorkloadClock, error) {
	if c.Status.Successor == name {
		return c, nil
	}
	c = c.DeepCopy()
	c.Status.Successor = name
	if err := r.Client.Status().Update(ctx, c); err != nil {
		return nil, fmt.Errorf("record %s as the successor of clock %s: %w", name, c.Name, err)
	}
	return c, nil
}

// observeEndByUser reports whether a clock's user paused its workload, or deleted it before it
// finished. Its last pods may still terminate.
func (r *Reconciler) observeEndByUser(ctx context.Context, c *v1alpha1.WorkloadClock) (paused, deleted bool, err error) {
	if _, pods := r.Workloads.RootsAndPods(client.ObjectKeyFromObject(c)); slices.ContainsFunc(pods, isActivePod) {
		return false, false, nil
	}
	object, err := r.getRoot(ctx, rootOfClock(c))
	switch {
	case err != nil:
		return false, false, err
	case object == nil:
		return false, true, nil
	case isFinished(object):
		return false, false, nil
	case object.GetDeletionTimestamp() != nil:
		return false, true, nil
	}
	paused, err = r.Stopper.IsPaused(ctx, object)
	return paused, false, err
}

func isActivePod(pod *podcache.Pod) bool { return !pod.Deleting }

// rootOfClock returns the last root object of a clock.
func rootOfClock(c *v1alpha1.WorkloadClock) owner.Root {
	return owner.Root{
		GroupVersionKind: groupVersionKind(c.Spec.Root), Namespace: c.Namespace, Name: c.Spec.Root.Name, UID: c.Status.RootUID,
	}
}

// clockNameOf returns the name of a root's clock. A workload that is created again under its
// name keeps its clock.
func clockNameOf(root owner.Root) types.NamespacedName {
	return types.NamespacedName{Namespace: root.Namespace, Name: root.Reference().ClockName()}
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
