// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reconciler writes one UsageRecord for each project and month with GPU usage. A request names a
// namespace.
type Reconciler struct {
	// Client reads from the manager's cache: projects, departments and clocks.
	Client client.Client
	// Live reads records from the API server. They are not cached: three years of records are
	// many, and one is read only when it is written.
	Live client.Reader
	// ClockResolver finds the workload of a pod.
	ClockResolver ClockResolver
	// Clock is policy time.
	Clock policytime.Clock

	tracker  podTracker
	activity activityTracker
}

// ClockResolver finds the workloads of pods.
type ClockResolver interface {
	// ClockOf returns the name of the WorkloadClock of a pod's workload. It returns false
	// while it is unknown.
	ClockOf(pod *podcache.Pod) (types.NamespacedName, bool)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcileNamespace(ctx, req.Name, false)
	if errors.Is(err, errRecordChanged) {
		ctrl.LoggerFrom(ctx).V(1).Info("Usage record changed, retrying")
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return result, err
}

// reconcileNamespace writes the pending usage of a namespace if a write is due. With flush it
// writes all usage of ended pods.
func (r *Reconciler) reconcileNamespace(ctx context.Context, namespace string, flush bool) (reconcile.Result, error) {
	a, _ := r.tracker.snapshot(namespace)
	if a == nil {
		return reconcile.Result{}, nil
	}
	a.reconcileMu.Lock()
	defer a.reconcileMu.Unlock()
	owner, err := r.recordOwnerOf(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if a.owner != nil && !a.owner.isSame(owner) {
		if err := r.finishPreviousOwner(ctx, namespace, a); err != nil {
			return reconcile.Result{}, err
		}
	}
	if a.owner = owner; owner == nil {
		r.tracker.dropEnded(a, func(*usageInterval) bool { return true })
		return r.requeueIdle(namespace, a), nil
	}
	if err := r.observeLostNodes(ctx, a); err != nil {
		return reconcile.Result{}, err
	}
	l, err := r.computePending(ctx, namespace, a, flush)
	if err != nil {
		return reconcile.Result{}, err
	}
	l.startGPUSeconds()
	due := l.timeUntilWrite()
	switch {
	case due == 0, flush && l.hasEnded():
		if err := r.addUsage(ctx, l); err != nil {
			return reconcile.Result{}, err
		}
		due = minWriteInterval
	case l.isIdle():
		return r.requeueIdle(namespace, a), nil
	}
	return reconcile.Result{RequeueAfter: due}, nil
}

// observeLostNodes ends the charge of pods on lost nodes after their grace period: nothing reports
// their end. If a node returns and such a pod is still there, it is charged again from then on.
func (r *Reconciler) observeLostNodes(ctx context.Context, a *namespaceUsage) error {
	now := policytime.MachineNow()
	for s, node := range r.tracker.terminatedIntervals(a, now) {
		since, lost, err := inventory.IsNodeLost(ctx, r.Client, node)
		if err != nil {
			return err
		}
		r.tracker.setLost(a, s, lost, laterTime(s.from.time(), earlierTime(now, laterTime(s.graceEndsAt.time(), since))))
	}
	return nil
}

// requeueIdle removes a namespace that has been idle for a while and requeues others.
func (r *Reconciler) requeueIdle(namespace string, a *namespaceUsage) reconcile.Result {
	if policytime.MachineNow().Sub(a.lastWrite) > maxRequeueAfter && r.tracker.removeIfIdle(namespace) {
		a.forgetGPUSeconds()
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: maxRequeueAfter}
}

// finishPreviousOwner writes the usage of the project that had the namespace before.
func (r *Reconciler) finishPreviousOwner(ctx context.Context, namespace string, a *namespaceUsage) error {
	r.tracker.mu.Lock()
	a.splitIntervals(policytime.MachineNow())
	r.tracker.mu.Unlock()
	l, err := r.computePending(ctx, namespace, a, true)
	if err == nil {
		err = r.addUsage(ctx, l)
	}
	if err != nil {
		return err
	}
	a.reset()
	return nil
}

// maxConcurrentReconciles is the number of namespaces that are reconciled at the same time.
const maxConcurrentReconciles = 2

// SetupWithManager adds r to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pods *podcache.Store) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("usage").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		WatchesRawSource(podcache.Source(pods, r.tracker.handleChange)).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(requestsForProject), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Watches(&v1alpha1.GPUNode{}, handler.EnqueueRequestsFromMapFunc(r.activity.handleGPUNode)).
		Complete(apply.RequeueOnConflict(r))
}

// requestsForProject returns the request for the project's namespace.
func requestsForProject(_ context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project.NamespaceName()}}}
}

// recordOwner is the project of a namespace.
type recordOwner struct {
	project    string
	uid        types.UID
	department string
	zone       *time.Location
	// createdAt is when the project was created, in policy time.
	createdAt time.Time
}

// isSame reports whether both are the same project.
func (o *recordOwner) isSame(other *recordOwner) bool { return other != nil && o.uid == other.uid }

// recordName returns the name of the project's record of a month.
func (o *recordOwner) recordName(m month) string { return o.project + "-" + m.String() }

// recordOwnerOf returns the project of a namespace, or nil.
func (r *Reconciler) recordOwnerOf(ctx context.Context, namespace string) (*recordOwner, error) {
	project, err := inventory.ProjectForNamespace(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	zone, err := r.timeZoneOf(ctx, project.Spec.Department)
	if err != nil {
		return nil, err
	}
	return &recordOwner{
		project: project.Name, uid: project.UID, department: project.Spec.Department, zone: zone,
		createdAt: truncateToSecond(r.Clock.FromReal(project.CreationTimestamp.Time)),
	}, nil
}

// timeZoneOf returns the department's time zone, or UTC.
func (r *Reconciler) timeZoneOf(ctx context.Context, name string) (*time.Location, error) {
	department := &v1alpha1.Department{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, department); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return time.UTC, nil
		}
		return nil, fmt.Errorf("get department %s: %w", name, err)
	}
	zone, err := time.LoadLocation(department.Spec.Notices.TimeZone)
	if err != nil {
		return time.UTC, nil //nolint:nilerr // admission validates it; only an older object may be invalid
	}
	return zone, nil
}
