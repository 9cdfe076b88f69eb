// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projectend stops the workloads without GPU pods of a project that is suspended or being deleted: queued and
// pending Jobs, CronJobs, Deployments whose pods the quota rejects. Those with pods have a clock, whose controller stops
// them (package controller).
//
// [Reconciler] lists each kind with pod templates that is installed, in the project's namespace only: when the project
// stops its workloads, at the start of lifecycle, and every few hours while it does. It stops the root workload of each
// object whose templates can request GPUs, by the stop action of its kind, and marks it. The mark is a time in the past: a
// closed project refuses the start, and a renewal allows it at once. After a renewal the marks are removed. Nothing starts
// by itself; events say how.
//
// The package never stops a workload without GPUs, never one that its user paused, and deletes nothing.
package projectend

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	clocks "sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Reconciler stops the workloads without GPU pods of projects that stop their workloads.
type Reconciler struct {
	// Client reads Projects from the cache.
	Client client.Client
	// Live lists workloads from the API server. A cache would watch every kind.
	Live client.Reader
	// Kinds has the installed kinds.
	Kinds meta.RESTMapper
	// Workloads finds the root of an object and whether it has GPU pods.
	Workloads Workloads
	// Stopper stops and releases workloads.
	Stopper Stopper
	// StopLimiter prevents mass stops by changed terms.
	StopLimiter StopLimiter
	// Events records events on workloads and projects.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// Workloads maps objects to root workloads. controller.WorkloadIndex implements it.
type Workloads interface {
	RootOf(ctx context.Context, object client.Object) (owner.Root, error)
	HasPods(root owner.Root) bool
	// IsSynced reports whether HasPods is complete in a namespace.
	IsSynced(namespace string) bool
}

// Stopper stops and releases workloads. suspend.Stopper implements it.
type Stopper interface {
	Stop(ctx context.Context, target suspend.Target, until time.Time, why string) error
	Release(ctx context.Context, target suspend.Target) error
}

// StopLimiter allows the stops that changed terms brought forward. controller.StopLimiter implements it.
type StopLimiter interface {
	Allow(ctx context.Context, department string, now time.Time) (bool, error)
}

// The pauses until a project is reconciled again, in machine time.
const (
	// sweepInterval is that between two searches while a project stops its workloads. Admission refuses the start of
	// others, so that they find what started while the webhook was unavailable.
	sweepInterval = 6 * time.Hour
	// notReadyRequeue is that until the pods of the namespace are known.
	notReadyRequeue = 5 * time.Second
	// deferredRequeue is that until the stop limiter is asked again.
	deferredRequeue = 30 * time.Second
	// pausedRequeue is the longest until the end of a pause, which can come early.
	pausedRequeue = time.Minute
)

// maxConcurrentReconciles is the number of workers. They mostly wait for the API server.
const maxConcurrentReconciles = 8

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("projectend").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Project{}, builder.WithPredicates(r.stopsOrReleases())).
		Complete(r)
}

// releasePeriod is the policy time since a project is Active in which the start of lifecycle removes marks that a crash
// left.
const releasePeriod = 24 * time.Hour

// stopsOrReleases passes projects that begin to stop their workloads, and those that were renewed; at the start of
// lifecycle those that stop them, and those that were renewed of late.
func (r *Reconciler) stopsOrReleases() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return stopsWorkloads(e.Object) || e.IsInInitialList && r.isRenewedOfLate(e.Object)
		},
		UpdateFunc: func(e event.UpdateEvent) bool { return stopsWorkloads(e.ObjectOld) != stopsWorkloads(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// isRenewedOfLate reports whether a project is Active since less than releasePeriod.
func (r *Reconciler) isRenewedOfLate(object client.Object) bool {
	project, ok := object.(*v1alpha1.Project)
	return ok && project.Status.Phase == v1alpha1.ProjectActive && project.Status.PhaseSince != nil &&
		r.Clock.Now().Before(project.Status.PhaseSince.Add(releasePeriod))
}

func stopsWorkloads(object client.Object) bool {
	project, ok := object.(*v1alpha1.Project)
	return ok && project.StopsWorkloads() != ""
}

// Reconcile implements reconcile.Reconciler for a Project. After a crash the next call, at the start of lifecycle, stops
// what is left.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	project := &v1alpha1.Project{}
	if err := r.Client.Get(ctx, req.NamespacedName, project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if project.Status.Namespace == nil {
		return reconcile.Result{}, nil
	}
	reason := project.StopsWorkloads()
	if reason == "" {
		return reconcile.Result{}, r.release(ctx, project)
	}
	if !r.Workloads.IsSynced(project.Status.Namespace.Name) {
		return reconcile.Result{RequeueAfter: notReadyRequeue}, nil
	}
	now := r.Clock.Now()
	if reason == v1alpha1.EndProjectSuspended {
		switch until, err := inventory.PausedUntil(ctx, r.Client, now); {
		case err != nil:
			return reconcile.Result{}, err
		case now.Before(until):
			return reconcile.Result{RequeueAfter: min(max(r.Clock.RealUntil(until), time.Second), pausedRequeue)}, nil
		}
	}
	if reason == v1alpha1.EndProjectSuspended && clocks.IsSuspendedEarly(project, now) {
		allowed, err := r.StopLimiter.Allow(ctx, project.Spec.Department, now)
		if err != nil || !allowed {
			return reconcile.Result{RequeueAfter: deferredRequeue}, err
		}
	}
	if err := r.stop(ctx, project, closedSince(project, now)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: sweepInterval}, nil
}

// closedSince returns since when a project refuses to start workloads, the same at each call. It is the time of the marks.
func closedSince(project *v1alpha1.Project, now time.Time) time.Time {
	for _, at := range []*metav1.Time{project.Status.ClosedAt, project.DeletionTimestamp, project.Status.PhaseSince} {
		if at != nil && !at.After(now) {
			return at.Time
		}
	}
	return now.Truncate(time.Second)
}

// stop stops the workloads of a project. It continues after an error. What cannot be stopped is reported as an event on
// the project.
func (r *Reconciler) stop(ctx context.Context, project *v1alpha1.Project, until time.Time) error {
	roots, err := r.findWorkloads(ctx, project.Status.Namespace.Name)
	problems, unstoppable := []error{err}, []string(nil)
	for _, root := range roots {
		err := r.Stopper.Stop(ctx, targetOf(root), until, stopMessage(project))
		switch {
		case errors.Is(err, suspend.ErrGone):
		case errors.Is(err, suspend.ErrForbidden), errors.Is(err, suspend.ErrUnsupported):
			unstoppable = append(unstoppable, root.Kind+" "+root.Name)
			ctrl.LoggerFrom(ctx).Error(err, "Failed to stop workload of project for good", "project", project.Name)
		case err != nil:
			problems = append(problems, err)
		default:
			ctrl.LoggerFrom(ctx).WithName("decisions").Info("Stopped workload without pods", "project", project.Name,
				"kind", root.Kind, "workload", root.Name, "reason", project.StopsWorkloads())
			r.Events.Eventf(regarding(root), project, corev1.EventTypeWarning, string(project.StopsWorkloads()), "Stop", "%s", stopMessage(project))
		}
	}
	if len(unstoppable) > 0 {
		r.Events.Eventf(project, nil, corev1.EventTypeWarning, "WorkloadsNotStopped", "Stop", "%s", describeUnstoppable(unstoppable))
	}
	return errors.Join(problems...)
}

// stopMessage explains a stop and says what to do.
func stopMessage(project *v1alpha1.Project) string {
	if project.StopsWorkloads() == v1alpha1.EndProjectDeleted {
		return fmt.Sprintf("Project %s is being deleted. In this namespace the workload cannot be started", project.Name)
	}
	return fmt.Sprintf("Project %s has expired and is suspended. The workload can be started after a renewal: "+
		"sluice renew project/%s --reason ...", project.Name, project.Name)
}
