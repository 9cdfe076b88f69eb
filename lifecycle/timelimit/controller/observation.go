// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
)

// workload is the observed state of a workload.
type workload struct {
	*tenant
	clock *v1alpha1.WorkloadClock
	// recorded is the status of the clock before reconcileIdentity changed it.
	recorded v1alpha1.WorkloadClockStatus
	// roots are the root objects, newest first. A workload that was created again has more
	// than one while pods of the old one exist.
	roots []owner.Root
	// complete is true if the roots of all pods of its namespace were resolved before its pods were
	// read. If not, after a start of lifecycle, pods may be missing below.
	complete bool
	// runningPods are its running GPU pods.
	runningPods []*podcache.Pod
	// unreportedPods are those of them without any status, by UID, with the time of the sample
	// that shows their GPUs.
	unreportedPods map[types.UID]time.Time
	// startingPods are its GPU pods that are bound and have not started.
	startingPods []*podcache.Pod
	// admittedPods are its GPU pods that Kueue admitted, and so hold quota, and that no node has.
	admittedPods []*podcache.Pod
	// unboundPods are its other GPU pods, if the project is suspended or being deleted.
	unboundPods []*podcache.Pod
	// completed is true if the workload finished by itself, missing if it does not exist.
	completed, missing bool
	// hasPods is true if GPU pods exist, bound or not, that are not being deleted.
	hasPods bool
	// createdAt is the creation of the root, in machine time, if its clock starts at zero. Pods
	// of another user's workload of that name can still exist.
	createdAt    time.Time
	now          time.Time
	limits       timelimit.EffectiveLimits
	workloadType v1alpha1.WorkloadType
	utilization  timelimit.Utilization
	// sample is the use of the running pods' GPUs that the clock shows.
	sample gpuSample
	// grantedExtensions are the objects behind limits.GrantedExtensions.
	grantedExtensions []*v1alpha1.Extension
	// requeueLimit is the longest time until the next reconciliation; zero for no limit.
	requeueLimit time.Duration
	// stopDeferred is true if the stop limiter does not allow the stop, or the workload was put back.
	stopDeferred bool
}

// observeWorkload returns the workload of a clock. It creates the clock of a workload that
// has none. It returns nil if there is nothing to decide: no clock and no bound pod, or a
// namespace without a project. While the project is suspended or being deleted, pods count that
// are not bound.
func (r *Reconciler) observeWorkload(ctx context.Context, name types.NamespacedName) (*workload, error) {
	w := &workload{now: r.Clock.Now().Truncate(time.Second), clock: &v1alpha1.WorkloadClock{}, complete: r.Workloads.IsComplete(name.Namespace)}
	var pods []*podcache.Pod
	w.roots, pods = r.Workloads.RootsAndPods(name)
	var err error
	if w.tenant, err = r.lookUpTenant(ctx, name.Namespace); err != nil {
		return nil, err
	}
	if err := r.observePods(ctx, w, pods); err != nil {
		return nil, err
	}
	err = r.Client.Get(ctx, name, w.clock)
	missing := apierrors.IsNotFound(err)
	switch {
	case missing && (w.tenant == nil || len(w.allPods()) == 0):
		return nil, nil
	case err != nil && !missing:
		return nil, err
	case w.tenant == nil:
		return nil, r.pauseOrphanedClock(ctx, w)
	}
	if missing {
		w.clock.Namespace, w.clock.Name, w.clock.Spec.Root = name.Namespace, name.Name, w.roots[0].Reference()
		err := r.Client.Create(ctx, w.clock)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("create clock %s: %w", name, err)
		}
		if err := r.boundClocks(ctx, w.tenant, name.Namespace, w.now); err != nil {
			log.FromContext(ctx).Error(err, "Failed to bound the number of clocks", "namespace", name.Namespace)
		}
	}
	w.recorded = w.clock.Status
	if err := r.reconcileIdentity(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeEnd(ctx, w); err != nil {
		return nil, err
	}
	w.limits, w.workloadType = w.effectiveLimits(w.now, w.heldPods(), w.clock.Status.WorkloadType)
	if w.utilization, w.sample, err = r.observeUtilization(ctx, w.runningPods); err != nil {
		return nil, err
	}
	return w, r.observeExtensions(ctx, w)
}

// heldPods returns the pods that hold GPUs or quota: those that run or, if none does, those that are
// bound or admitted.
func (w *workload) heldPods() []*podcache.Pod {
	if len(w.runningPods) > 0 {
		return w.runningPods
	}
	return slices.Concat(w.startingPods, w.admittedPods)
}

// seemsEnded reports whether the pods ended that ran or started according to the clock. After a
// restart of lifecycle they may not be resolved yet.
func (w *workload) seemsEnded() bool {
	s := &w.clock.Status
	ran := s.RunningSince != nil || s.IdleSince != nil // an idle active clock is paused
	return ran && len(w.runningPods) == 0 || s.StartingSince != nil && len(w.heldPods()) == 0
}

// allPods returns the pods that a stop must end.
func (w *workload) allPods() []*podcache.Pod {
	return slices.Concat(w.runningPods, w.startingPods, w.admittedPods, w.unboundPods)
}

// heldGPUs returns the GPUs of the bound pods, or nil if no pod is bound.
func (w *workload) heldGPUs() *resource.Quantity {
	bound := w.boundPods()
	if len(bound) == 0 {
		return nil
	}
	var sum int64
	for _, pod := range bound {
		sum += int64(pod.Milli)
	}
	return resource.NewMilliQuantity(sum, resource.DecimalSI)
}

// observePods sets the pods of the workload. A pod on a lost node does not count: its node is not
// ready or gone, and its grace period is over, but nothing reports that it ended.
func (r *Reconciler) observePods(ctx context.Context, w *workload, pods []*podcache.Pod) error {
	now := policytime.MachineNow()
	w.hasPods = slices.ContainsFunc(pods, isActivePod)
	for _, pod := range pods {
		if !pod.IsBound() {
			switch {
			case w.tenant == nil:
			case pod.Admitted && !pod.Deleting:
				w.admittedPods = append(w.admittedPods, pod)
			case w.end() != "":
				w.unboundPods = append(w.unboundPods, pod)
			}
			continue
		}
		if pod.Deleting {
			if left := pod.GraceEndsAt.Sub(now); left > 0 {
				w.requeueWithin(left + time.Second)
			} else if _, lost, err := inventory.IsNodeLost(ctx, r.Client, pod.Node); err != nil {
				return err
			} else if lost {
				continue
			} else {
				w.requeueWithin(notReadyRequeue) // its node can be lost later
			}
		}
		pod, err := r.observeUnreportedPod(ctx, w, pod)
		if err != nil {
			return err
		}
		if pod.Running {
			w.runningPods = append(w.runningPods, pod)
		} else {
			w.startingPods = append(w.startingPods, pod)
		}
	}
	return nil
}

// requeueWithin limits the time until the next reconciliation, in machine time.
func (w *workload) requeueWithin(limit time.Duration) {
	if w.requeueLimit == 0 || limit < w.requeueLimit {
		w.requeueLimit = limit
	}
}

// runningSince returns the start of the first running pod.
func (r *Reconciler) runningSince(w *workload) time.Time {
	return r.earliest(w, w.runningPods, func(pod *podcache.Pod) time.Time {
		if sampled, unreported := w.unreportedPods[pod.UID]; unreported {
			return sampled
		}
		return pod.EffectiveStart()
	})
}

// startingSince returns when the first pod was bound if none runs, or when the first was observed as
// admitted if none is bound: a pod does not show since when. It returns zero if none is either. A later time
// is recorded if its nodes were not available.
func (r *Reconciler) startingSince(w *workload) (since time.Time) {
	recorded := w.clock.Status.StartingSince
	switch {
	case len(w.runningPods) > 0 || len(w.heldPods()) == 0:
		return time.Time{}
	case len(w.startingPods) > 0:
		since = r.earliest(w, w.startingPods, func(pod *podcache.Pod) time.Time { return pod.BoundAt })
	case recorded == nil:
		return w.now
	}
	if recorded != nil {
		since = policytime.Later(since, recorded.Time)
	}
	return since
}

// earliest returns the earliest time of the pods, or the creation of the project if that is
// later: no limit applied before. It is not before the creation of a root whose clock
// starts at zero.
func (r *Reconciler) earliest(w *workload, pods []*podcache.Pod, timeOf func(*podcache.Pod) time.Time) (since time.Time) {
	for _, pod := range pods {
		if at := timeOf(pod); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	for _, created := range []time.Time{w.project.CreationTimestamp.Time, w.createdAt} {
		if since.Before(created) {
			since = created
		}
	}
	return r.toPolicyTime(since)
}

// toPolicyTime converts machine time in seconds to policy time. A step of policy time
// within that second does not count as running time.
func (r *Reconciler) toPolicyTime(at time.Time) time.Time {
	return policytime.FromTimestamp(r.Clock, at)
}

// observeExtensions adds the approved extensions that are not marked as applied.
func (r *Reconciler) observeExtensions(ctx context.Context, w *workload) error {
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(w.clock.Namespace)); err != nil {
		return fmt.Errorf("list extensions in namespace %s: %w", w.clock.Namespace, err)
	}
	for i := range all.Items {
		e := &all.Items[i]
		applied := meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionApplied)
		if !Extends(e, w.clock) || e.Status.Decision != v1alpha1.ExtensionApproved || applied {
			continue
		}
		w.grantedExtensions = append(w.grantedExtensions, e)
		w.limits.GrantedExtensions = append(w.limits.GrantedExtensions, v1alpha1.ClockExtension{
			Name: e.Name, By: *e.Spec.By, SelfService: e.Status.DecidedBy == "",
		})
	}
	return nil
}

// Extends reports whether an extension requests more time for the clock's workload.
func Extends(e *v1alpha1.Extension, clock *v1alpha1.WorkloadClock) bool {
	return e.Spec.Action == v1alpha1.ActionExtend && e.Spec.By != nil && TargetClock(e) == client.ObjectKeyFromObject(clock)
}

// TargetClock returns the name of the clock that an extension targets.
func TargetClock(e *v1alpha1.Extension) types.NamespacedName {
	target := v1alpha1.WorkloadReference{APIVersion: e.Spec.Target.APIVersion, Kind: e.Spec.Target.Kind, Name: e.Spec.Target.Name}
	return types.NamespacedName{Namespace: e.Namespace, Name: target.ClockName()}
}
