// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
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
	"sluice.dev/lifecycle/rendering/conflict"
)

// maxRejectedPerPass is how many refused objects of a project are looked at in one pass,
// the oldest ones.
const maxRejectedPerPass = 100

// pendingRequeueAfter is after how long a project of which something waits is looked at again,
// in machine time: nobody tells when a workload is scaled down.
const pendingRequeueAfter = 30 * time.Second

// Reconciler looks after what waits of each Project.
type Reconciler struct {
	// Client reads from a cache that has the quotas which lifecycle rendered and the
	// events of [Cached].
	Client client.Client
	// Live reads workloads and pods, of which there are too many to keep.
	Live client.Reader
	// Pods are the GPU pods.
	Pods PodReader
	// Events tells people why their workloads wait.
	Events events.EventRecorder

	// pendingSince is of whom it is known since when they wait, and told of whom Kueue's
	// reasons were told, by project. One pass at a time touches them.
	pendingSince map[string]pendingTimes
	announced    map[string]announcements
	// leadingSince is since when this process has the turn, in machine time.
	leadingSince time.Time

	kueue     kueueReader
	waitTimes waitRecorder
}

// PodReader knows the GPU pods: a gpupods.Store.
type PodReader interface {
	// InNamespace are the pods of a namespace.
	InNamespace(namespace string) iter.Seq[*podcache.Pod]
	// ByUID is the pod of that UID; false where there is none.
	ByUID(uid types.UID) (*podcache.Pod, bool)
	// Subscribe tells of those that are there, before it returns, and of each change
	// until cancel is called.
	Subscribe(handler func(podcache.Change)) (cancel func())
	// WaitForSync waits until all are known.
	WaitForSync(ctx context.Context) error
}

var _ PodReader = (*podcache.Store)(nil)

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.initState()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("waiting").
		Watches(&corev1.Event{}, enqueueSettled(r.requestsForNamespace), builder.WithPredicates(rejectionEvents)).
		Watches(&corev1.ResourceQuota{}, enqueueSettled(requestsForQuota), builder.WithPredicates(quotaStatusChanged)).
		Watches(&v1alpha1.Project{}, enqueueSettled(requestForObject), builder.WithPredicates(nodePoolsChanged)).
		WatchesRawSource(&podChangeSource{reconciler: r}).
		Build(conflict.WithRetry(r))
	if err != nil {
		return fmt.Errorf("looking after what waits: %w", err)
	}
	return r.watchKueueWorkloads(mgr, c)
}

func (r *Reconciler) initState() {
	r.pendingSince, r.announced = map[string]pendingTimes{}, map[string]announcements{}
	r.waitTimes.waitsByProject = map[string][]podWait{}
	r.leadingSince = policytime.MachineNow()
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	if apierrors.IsNotFound(err) || err == nil && (!project.DeletionTimestamp.IsZero() || project.Status.Namespace == nil) {
		delete(r.pendingSince, req.Name)
		delete(r.announced, req.Name)
		recordPendingWorkloads(req.Name, 0)
		r.waitTimes.forgetProject(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading project %s: %w", req.Name, err)
	}
	place := apply.ProjectTarget(&project)
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(place.Namespace), client.MatchingLabels{v1alpha1.LabelProject: place.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the quotas of project %s: %w", project.Name, err)
	}
	now := policytime.MachineNow()
	refused, err := r.listRejected(ctx, place.Namespace, quotas.Items, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	waiting, err := r.observeRejected(ctx, refused, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.announceRejected(&project, waiting, quotas.Items)
	result := reconcile.Result{}
	for _, w := range SelectToWake(waiting, quotas.Items, now) {
		if err := r.wakeWorkload(ctx, &w, now); err != nil {
			return reconcile.Result{}, err
		}
		result.RequeueAfter = wakeGracePeriod
	}
	queued, err := r.reconcileQueued(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.waitTimes.observeWaits(&project)
	recordPendingWorkloads(project.Name, len(waiting)+len(queued))
	seen := ObservedState{Quotas: quotas.Items, Charges: SumPodCharges(r.Pods.InNamespace(place.Namespace), project.Name), Rejected: waiting, Queued: queued}
	if result.RequeueAfter == 0 && len(refused) > 0 {
		result.RequeueAfter = pendingRequeueAfter
	}
	status := DesiredStatus(&project, seen, metav1.NewTime(now))
	if err := apply.Status(ctx, r.Client, fieldManager, statusFields(&project, &project.Status), statusFields(&project, &status)); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of project %s: %w", project.Name, err)
	}
	return result, nil
}

// listRejected are the objects of the namespace whose pods did not fit into one of
// these quotas.
func (r *Reconciler) listRejected(ctx context.Context, namespace string, quotas []corev1.ResourceQuota, now time.Time) ([]RejectedObject, error) {
	var told corev1.EventList
	if err := r.Client.List(ctx, &told, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the refusals in namespace %s: %w", namespace, err)
	}
	refused := slices.DeleteFunc(LatestRejections(told.Items, now), func(o RejectedObject) bool {
		return o.Namespace != namespace || !slices.ContainsFunc(quotas, func(q corev1.ResourceQuota) bool { return q.Name == o.Quota })
	})
	return refused[:min(len(refused), maxRejectedPerPass)], nil
}

// observeRejected reads each object, and keeps those that wait.
func (r *Reconciler) observeRejected(ctx context.Context, refused []RejectedObject, now time.Time) ([]Workload, error) {
	var waiting []Workload
	for _, one := range refused {
		object := workloadKinds[one.Kind].newObject()
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: one.Namespace, Name: one.Name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s/%s: %w", one.Kind, one.Namespace, one.Name, err)
		}
		if w, waits := ObserveWorkload(one, object, now); waits {
			waiting = append(waiting, w)
		}
	}
	return waiting, nil
}

// announceRejected tells the authors of those that are new, and puts all in the order in
// which they began to wait.
func (r *Reconciler) announceRejected(project *v1alpha1.Project, waiting []Workload, quotas []corev1.ResourceQuota) {
	before, now := r.pendingSince[project.Name], pendingTimes{}
	for i := range waiting {
		w := &waiting[i]
		since, told := before[w.UID]
		if told && since.Before(w.Since) {
			w.Since = since
		}
		now[w.UID] = w.Since
		if !told {
			r.Events.Eventf(&w.Root, nil, corev1.EventTypeWarning, reasonWaitingForQuota, "Wait", "%s", describeRejected(w, project, quotas))
		}
	}
	if r.pendingSince[project.Name] = now; len(now) == 0 {
		delete(r.pendingSince, project.Name)
	}
	slices.SortFunc(waiting, compareAge)
}

// wakeWorkload changes an annotation of the very object that was looked at, upon which
// its controller tries again.
func (r *Reconciler) wakeWorkload(ctx context.Context, w *Workload, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.UID, "annotations": map[string]string{v1alpha1.AnnotationRetriedAt: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return fmt.Errorf("waking %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	object.SetGroupVersionKind(workloadKinds[w.Kind].GroupVersionKind)
	err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // it is gone, or another has its name
	case err != nil:
		return fmt.Errorf("waking %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	wakesTotal.WithLabelValues(w.Kind).Inc()
	r.Events.Eventf(&w.Root, nil, corev1.EventTypeNormal, reasonQuotaAvailable, "Wake", "there is room in the GPU quota for a pod of %s; it is made now", describeCharge(w))
	return nil
}
