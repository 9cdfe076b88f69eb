// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

// maxRejectedPerPass is the largest number of rejected objects of a project that one pass reads,
// the oldest first.
const maxRejectedPerPass = 100

// pendingRequeueAfter is the interval at which a project with pending workloads is reconciled, in
// machine time. Scaling a workload down causes no event that the controller watches.
const pendingRequeueAfter = 30 * time.Second

// Reconciler reports the pending work of each Project.
type Reconciler struct {
	// Client reads from a cache that has the rendered quotas and the events of
	// EventCacheOptions.
	Client client.Client
	// Live reads workloads from the API server. They are not cached.
	Live client.Reader
	// Pods reads the GPU pods.
	Pods PodReader
	// Clocks finds the workloads of pods.
	Clocks ClockResolver
	// Events records why workloads are pending.
	Events events.EventRecorder
	// Clock is policy time, for start timeouts.
	Clock policytime.Clock

	// pendingSince holds since when workloads are pending, and announced the events recorded
	// for queued ones, by project. Only one pass at a time uses them.
	pendingSince map[string]pendingTimes
	announced    map[string]announcements
	// unused holds the Workloads that hold quota without pods, by project and UID.
	unused map[string]map[types.UID]unusedReservation
	// listedAt is when the list of workloads changed last, by project, in machine time.
	listedAt map[string]time.Time
	// queueChecks holds the comparisons with KAI-Scheduler's usage, by project.
	queueChecks map[string]queueCheck
	// leadingSince is when this process became the leader, in machine time.
	leadingSince time.Time

	kueue     kueueReader
	groups    groupReader
	waitTimes waitRecorder
}

// PodReader reads the GPU pods. Package podcache implements it.
type PodReader interface {
	// InNamespace returns the pods of a namespace.
	InNamespace(namespace string) iter.Seq[*podcache.Pod]
	// ByUID returns the pod with that UID.
	ByUID(uid types.UID) (*podcache.Pod, bool)
	// Subscribe calls handler for all existing pods before it returns, and for each change
	// until cancel is called.
	Subscribe(handler func(podcache.Change)) (cancel func())
	// WaitForSync waits until all pods are known.
	WaitForSync(ctx context.Context) error
}

var _ PodReader = (*podcache.Store)(nil)

// SetupWithManager adds r to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.initState()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("pending").
		Watches(&corev1.Event{}, enqueueSettled(r.requestsForNamespace), builder.WithPredicates(rejectionEvents)).
		Watches(&corev1.ResourceQuota{}, enqueueSettled(requestsForQuota), builder.WithPredicates(quotaStatusChanged)).
		Watches(&v1alpha1.WorkloadClock{}, enqueueSettled(r.requestsForNamespace), builder.WithPredicates(holderChanged)).
		Watches(&v1alpha1.Project{}, enqueueSettled(requestForObject), builder.WithPredicates(nodePoolsChanged)).
		WatchesRawSource(&podChangeSource{reconciler: r}).
		Build(apply.RequeueOnConflict(r))
	if err != nil {
		return fmt.Errorf("set up controller of pending workloads: %w", err)
	}
	return cmp.Or(r.watchKueueWorkloads(mgr, c), r.watchGroups(mgr, c))
}

func (r *Reconciler) initState() {
	r.pendingSince, r.announced, r.listedAt = map[string]pendingTimes{}, map[string]announcements{}, map[string]time.Time{}
	r.unused, r.queueChecks = map[string]map[types.UID]unusedReservation{}, map[string]queueCheck{}
	r.waitTimes.waitsByProject = map[string][]podWait{}
	r.leadingSince = policytime.MachineNow()
}

// Reconcile implements reconcile.Reconciler for the project with the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	isDeleted := err == nil && !project.DeletionTimestamp.IsZero()
	if apierrors.IsNotFound(err) || isDeleted || err == nil && project.Status.Namespace == nil {
		delete(r.pendingSince, req.Name)
		delete(r.announced, req.Name)
		delete(r.unused, req.Name)
		delete(r.queueChecks, req.Name)
		recordPending(req.Name, nil, time.Time{})
		r.waitTimes.drain(req.Name)
		if isDeleted && project.Status.Namespace != nil {
			return r.reconcileDeleted(ctx, &project)
		}
		delete(r.listedAt, req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("get project %s: %w", req.Name, err)
	}
	target := apply.ProjectTarget(&project)
	quota, err := apply.GetQuota(ctx, r.Client, target)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := policytime.MachineNow()
	rejected, err := r.listRejected(ctx, target.Namespace, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	pending, err := r.observeRejected(ctx, rejected, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.announceRejected(&project, pending, quota)
	result := reconcile.Result{}
	for _, w := range SelectToRetry(pending, quota, now) {
		if err := r.triggerRetry(ctx, &w, now); err != nil {
			return reconcile.Result{}, err
		}
		result.RequeueAfter = retryGracePeriod
	}
	queued, reserved, unusedWait, err := r.reconcileQueued(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.waitTimes.observeWaits(&project)
	observed := ObservedState{Quota: quota, Rejected: pending, Queued: queued, Reserved: reserved}
	recordPending(project.Name, observed.countReasons(), observed.oldestPending())
	if result.RequeueAfter == 0 && len(rejected) > 0 {
		result.RequeueAfter = pendingRequeueAfter
	}
	var compareWait time.Duration
	if observed.UsageDifference, compareWait, err = r.compareQueues(ctx, &project, now); err != nil {
		return reconcile.Result{}, err
	}
	listWait, err := r.updateStatus(ctx, &project, observed, now)
	for _, wait := range []time.Duration{listWait, unusedWait, compareWait} {
		if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
			result.RequeueAfter = wait
		}
	}
	return result, err
}

// reconcileDeleted updates the status of a project that is being deleted: its namespace can wait
// long for the end of the last workload. Nothing is pending any more.
func (r *Reconciler) reconcileDeleted(ctx context.Context, project *v1alpha1.Project) (reconcile.Result, error) {
	quota, err := apply.GetQuota(ctx, r.Client, apply.ProjectTarget(project))
	if err != nil {
		return reconcile.Result{}, err
	}
	wait, err := r.updateStatus(ctx, project, ObservedState{Quota: quota}, policytime.MachineNow())
	return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
}

// updateStatus observes the pods besides, and writes the status. It returns when the list of workloads may change again.
func (r *Reconciler) updateStatus(ctx context.Context, project *v1alpha1.Project, observed ObservedState, now time.Time) (time.Duration, error) {
	observed.Charges = SumPodCharges(r.Pods.InNamespace(project.NamespaceName()), project.Name)
	list, more, wait, err := r.observeWorkloads(ctx, project, now)
	if err != nil {
		return 0, err
	}
	observed.Workloads, observed.MoreWorkloads = list, more
	status := DesiredStatus(project, observed, metav1.NewTime(now))
	if err := apply.Status(ctx, r.Client, fieldManager, statusFields(project, &project.Status), statusFields(project, &status)); err != nil {
		return 0, fmt.Errorf("apply status of project %s: %w", project.Name, err)
	}
	return wait, nil
}

// listRejected returns the objects of the namespace whose pods exceeded the project's quota.
func (r *Reconciler) listRejected(ctx context.Context, namespace string, now time.Time) ([]RejectedObject, error) {
	var list corev1.EventList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list events in namespace %s: %w", namespace, err)
	}
	rejected := slices.DeleteFunc(LatestRejections(list.Items, now), func(o RejectedObject) bool {
		return o.Namespace != namespace || o.Quota != v1alpha1.QuotaName
	})
	return rejected[:min(len(rejected), maxRejectedPerPass)], nil
}

// observeRejected reads each object and returns those that are still pending.
func (r *Reconciler) observeRejected(ctx context.Context, rejected []RejectedObject, now time.Time) ([]Workload, error) {
	if len(rejected) == 0 {
		return nil, nil
	}
	existing := map[types.UID]int32{} // by controller
	for pod := range r.Pods.InNamespace(rejected[0].Namespace) {
		if !pod.Deleting {
			existing[pod.Controller.UID]++
		}
	}
	var pending []Workload
	for _, one := range rejected {
		object := workloadKinds[one.Kind].newObject()
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: one.Namespace, Name: one.Name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s %s/%s: %w", one.Kind, one.Namespace, one.Name, err)
		}
		if w, waits := ObserveWorkload(one, object, existing[one.UID], now); waits {
			pending = append(pending, w)
		}
	}
	return pending, nil
}

// announceRejected records an event on each workload that is newly pending. It sorts all by age,
// the oldest first.
func (r *Reconciler) announceRejected(project *v1alpha1.Project, pending []Workload, quota *corev1.ResourceQuota) {
	before, now := r.pendingSince[project.Name], pendingTimes{}
	for i := range pending {
		w := &pending[i]
		since, known := before[w.UID]
		if known && since.Before(w.Since) {
			w.Since = since
		}
		now[w.UID] = w.Since
		if !known {
			r.Events.Eventf(&w.Root, nil, corev1.EventTypeWarning, reasonQuotaExceeded, "CreatePod", "%s", describeRejected(w, project, quota))
		}
	}
	if r.pendingSince[project.Name] = now; len(now) == 0 {
		delete(r.pendingSince, project.Name)
	}
	slices.SortFunc(pending, compareAge)
}

// triggerRetry sets an annotation on the object, which makes its controller retry.
func (r *Reconciler) triggerRetry(ctx context.Context, w *Workload, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.UID, "annotations": map[string]string{v1alpha1.AnnotationRetriedAt: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return fmt.Errorf("trigger retry of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	object.SetGroupVersionKind(workloadKinds[w.Kind].GroupVersionKind)
	err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // it was deleted, or replaced by another object
	case err != nil:
		return fmt.Errorf("trigger retry of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	retriesTotal.WithLabelValues(w.Kind).Inc()
	r.Events.Eventf(&w.Root, nil, corev1.EventTypeNormal, reasonQuotaAvailable, "Retry",
		"GPU quota is available for a pod of %s; its controller creates it now", describeCharge(w))
	return nil
}
