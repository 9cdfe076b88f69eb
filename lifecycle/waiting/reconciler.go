// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/render"
)

// maxLooked is how many refused objects of a project are looked at in one pass,
// the oldest ones.
const maxLooked = 100

// again is after how long a project of which something waits is looked at again,
// in machine time: nobody tells when a workload is scaled down.
const again = 30 * time.Second

// Reconciler looks after what waits of each Project.
type Reconciler struct {
	// Client reads from a cache that has the quotas which lifecycle rendered and the
	// events of [Cached].
	Client client.Client
	// Live reads workloads and pods, of which there are too many to keep.
	Live client.Reader
	// Pods are the GPU pods.
	Pods Pods
	// Events tells people why their workloads wait.
	Events events.EventRecorder

	// since is of whom it is known since when they wait, and told of whom Kueue's
	// reasons were told, by project. One pass at a time touches them.
	since map[string]known
	told  map[string]tellings
	// began is since when this process has the turn, in machine time.
	began time.Time

	queues queues
	waits  waits
}

// Pods knows the GPU pods: a gpupods.Store.
type Pods interface {
	// InNamespace are the pods of a namespace.
	InNamespace(namespace string) iter.Seq[*gpupods.Pod]
	// ByUID is the pod of that UID; false where there is none.
	ByUID(uid types.UID) (*gpupods.Pod, bool)
	// Changes tells of those that are there, before it returns, and of each change
	// until cancel is called.
	Changes(handler func(gpupods.Change)) (cancel func())
	// WaitForSync waits until all are known.
	WaitForSync(ctx context.Context) error
}

var _ Pods = (*gpupods.Store)(nil)

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.begin()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("waiting").
		Watches(&corev1.Event{}, soon(r.projectOf), builder.WithPredicates(refusals)).
		Watches(&corev1.ResourceQuota{}, soon(projectOfQuota), builder.WithPredicates(counts)).
		Watches(&v1alpha1.Project{}, soon(itself), builder.WithPredicates(poolsChanged)).
		WatchesRawSource(&podChanges{r: r}).
		Build(conflict.Retried(r))
	if err != nil {
		return fmt.Errorf("looking after what waits: %w", err)
	}
	return r.watchQueues(mgr, c)
}

func (r *Reconciler) begin() {
	r.since, r.told = map[string]known{}, map[string]tellings{}
	r.waits.by = map[string][]pause{}
	r.began = clock.MachineNow()
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	if apierrors.IsNotFound(err) || err == nil && (!project.DeletionTimestamp.IsZero() || project.Status.Namespace == nil) {
		delete(r.since, req.Name)
		delete(r.told, req.Name)
		observe(req.Name, 0)
		r.waits.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading project %s: %w", req.Name, err)
	}
	place := render.PlaceOf(&project)
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(place.Namespace), client.MatchingLabels{v1alpha1.LabelProject: place.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the quotas of project %s: %w", project.Name, err)
	}
	now := clock.MachineNow()
	refused, err := r.refused(ctx, place.Namespace, quotas.Items, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	waiting, err := r.look(ctx, refused, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.remember(&project, waiting, quotas.Items)
	result := reconcile.Result{}
	for _, w := range Choose(waiting, quotas.Items, now) {
		if err := r.wake(ctx, &w, now); err != nil {
			return reconcile.Result{}, err
		}
		result.RequeueAfter = trying
	}
	queued, err := r.queued(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.waits.observe(&project)
	observe(project.Name, len(waiting)+len(queued))
	seen := Seen{Quotas: quotas.Items, Charged: Charge(r.Pods.InNamespace(place.Namespace), project.Name), Refused: waiting, Queued: queued}
	if result.RequeueAfter == 0 && len(refused) > 0 {
		result.RequeueAfter = again
	}
	status := Status(&project, seen, metav1.NewTime(now))
	if equality.Semantic.DeepEqual(status, project.Status) {
		return result, nil
	}
	project.Status = status
	if err := r.Client.Status().Update(ctx, &project); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing what waits of project %s: %w", project.Name, err)
	}
	return result, nil
}

// refused are the objects of the namespace whose pods did not fit into one of
// these quotas.
func (r *Reconciler) refused(ctx context.Context, namespace string, quotas []corev1.ResourceQuota, now time.Time) ([]Refused, error) {
	var told corev1.EventList
	if err := r.Client.List(ctx, &told, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the refusals in namespace %s: %w", namespace, err)
	}
	refused := slices.DeleteFunc(Latest(told.Items, now), func(o Refused) bool {
		return o.Namespace != namespace || !slices.ContainsFunc(quotas, func(q corev1.ResourceQuota) bool { return q.Name == o.Quota })
	})
	return refused[:min(len(refused), maxLooked)], nil
}

// look reads each object, and keeps those that wait.
func (r *Reconciler) look(ctx context.Context, refused []Refused, now time.Time) ([]Workload, error) {
	var waiting []Workload
	for _, one := range refused {
		object := kinds[one.Kind].object()
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: one.Namespace, Name: one.Name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s/%s: %w", one.Kind, one.Namespace, one.Name, err)
		}
		if w, waits := Look(one, object, now); waits {
			waiting = append(waiting, w)
		}
	}
	return waiting, nil
}

// remember tells the authors of those that are new, and puts all in the order in
// which they began to wait.
func (r *Reconciler) remember(project *v1alpha1.Project, waiting []Workload, quotas []corev1.ResourceQuota) {
	before, now := r.since[project.Name], known{}
	for i := range waiting {
		w := &waiting[i]
		since, told := before[w.UID]
		if told && since.Before(w.Since) {
			w.Since = since
		}
		now[w.UID] = w.Since
		if !told {
			r.Events.Eventf(&w.Root, nil, corev1.EventTypeWarning, reasonWaiting, "Wait", "%s", explain(w, project, quotas))
		}
	}
	if r.since[project.Name] = now; len(now) == 0 {
		delete(r.since, project.Name)
	}
	slices.SortFunc(waiting, olderFirst)
}

// wake changes an annotation of the very object that was looked at, upon which
// its controller tries again.
func (r *Reconciler) wake(ctx context.Context, w *Workload, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.UID, "annotations": map[string]string{v1alpha1.AnnotationWokenAt: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return fmt.Errorf("waking %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	object.SetGroupVersionKind(kinds[w.Kind].GroupVersionKind)
	err = r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // it is gone, or another has its name
	case err != nil:
		return fmt.Errorf("waking %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	wakes.WithLabelValues(w.Kind).Inc()
	r.Events.Eventf(&w.Root, nil, corev1.EventTypeNormal, reasonWoken, "Wake", "there is room in the GPU quota for a pod of %s; it is made now", share(w))
	return nil
}
