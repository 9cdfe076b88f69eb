// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
)

// discoveryInterval is the interval of API discovery until a scheduler's kind is found, in machine time.
const discoveryInterval = 30 * time.Second

// kueueReader reads Kueue's Workloads once their kind is served.
type kueueReader struct{ reader atomic.Pointer[client.Reader] }

// listWorkloads returns the Workloads of a namespace.
func (q *kueueReader) listWorkloads(ctx context.Context, namespace string) ([]kueueWorkload, error) {
	reader := q.reader.Load()
	if reader == nil {
		return nil, nil
	}
	var list kueueWorkloadList
	if err := (*reader).List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list Kueue workloads in namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// watchKueueWorkloads watches Kueue's Workloads as soon as their kind is served.
func (r *Reconciler) watchKueueWorkloads(mgr ctrl.Manager, c controller.Controller) error {
	scheme := newKueueScheme()
	return watchWhenServed(mgr, kueueGroupVersion.WithKind("Workload"), func(ctx context.Context) error {
		watched, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper(), DefaultTransform: trimKueueWorkload,
			DefaultWatchErrorHandler: ignoreNotFoundWatchError,
		})
		if err != nil {
			return fmt.Errorf("watch Kueue's Workloads: %w", err)
		}
		if err := c.Watch(source.Kind[client.Object](watched, &kueueWorkload{}, enqueueSettled(r.requestsForNamespace))); err != nil {
			return fmt.Errorf("watch Kueue's Workloads: %w", err)
		}
		go func() { _ = watched.Start(ctx) }() // returns nil when ctx ends
		if !watched.WaitForCacheSync(ctx) {
			return ctx.Err()
		}
		var reader client.Reader = watched
		r.kueue.reader.Store(&reader)
		return nil
	})
}

// watchWhenServed calls watch once, as soon as the API server serves the kind.
func watchWhenServed(mgr ctrl.Manager, kind schema.GroupVersionKind, watch func(context.Context) error) error {
	discover := func(ctx context.Context) (bool, error) {
		_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("discover %s: %w", kind.Kind, err)
		}
		err = watch(ctx)
		return err == nil, err
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		_ = wait.PollUntilContextCancel(ctx, discoveryInterval, true, func(ctx context.Context) (bool, error) {
			found, err := discover(ctx)
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Failed to watch queued workloads", "kind", kind)
			}
			return found, nil
		}) // returns when ctx ends or the kind is watched
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	return nil
}

// ignoreNotFoundWatchError does not log that the kind is missing, as after Kueue was uninstalled.
func ignoreNotFoundWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// reconcileQueued returns the project's workloads that its schedulers have not admitted, the quota by node pool of those
// that Kueue admitted and that have no pods, and when it has to run again. It records events on those that are new or
// have a new reason, and on evicted ones.
func (r *Reconciler) reconcileQueued(
	ctx context.Context, project *v1alpha1.Project,
) (queued []QueuedWorkload, reserved poolCharges, wait time.Duration, err error) {
	all, err := r.kueue.listWorkloads(ctx, project.NamespaceName())
	if err != nil {
		return nil, nil, 0, err
	}
	queued = ListQueued(all, r.Pods.ByUID)
	unscheduled, err := r.listUnscheduled(ctx, project)
	if err != nil {
		return nil, nil, 0, err
	}
	if queued = append(queued, unscheduled...); len(unscheduled) > 0 {
		slices.SortFunc(queued, compareQueued)
	}
	before, now := r.announced[project.Name], announcements{}
	if err := r.announceQueued(ctx, project, queued, before, now); err != nil {
		return nil, nil, 0, err
	}
	if err := r.announceEvicted(ctx, project, listEvictions(all, r.Pods.ByUID), before, now); err != nil {
		return nil, nil, 0, err
	}
	if r.announced[project.Name] = now; len(now) == 0 {
		delete(r.announced, project.Name)
	}
	if err := r.releaseDeletedGroups(ctx, all); err != nil {
		return nil, nil, 0, err
	}
	unused := r.listWithoutPods(project.NamespaceName(), all)
	wait, err = r.reconcileUnused(ctx, project, all, unused)
	return queued, sumReserved(unused), wait, err
}

// Reasons of the events on queued workloads.
const (
	reasonQueued  = "Queued"
	reasonEvicted = "EvictedByKueue"
)

// maxAnnouncedQueued is the largest number of queued workloads of a project that get events and
// are named in the status, the oldest first.
const maxAnnouncedQueued = 100

// announcements are the events recorded so far, by the UID of the owner or of the evicted
// Workload.
type announcements map[types.UID]announcement

type announcement struct {
	root corev1.ObjectReference
	// summary is the last reason, and announcedReasons are all reasons recorded while it is
	// pending. Alternating reasons are recorded once each.
	summary          string
	announcedReasons []string
	// evictedAt is the time of the last eviction that was recorded.
	evictedAt time.Time
}

// leaderOverlap is the time before this process became the leader in which another one may have recorded
// events, in machine time.
const leaderOverlap = time.Minute

// announceQueued resolves the root of each queued workload and records events for new reasons.
// The previous leader recorded the earlier ones.
func (r *Reconciler) announceQueued(
	ctx context.Context, project *v1alpha1.Project, queued []QueuedWorkload, before, now announcements,
) error {
	for i := range queued[:min(len(queued), maxAnnouncedQueued)] {
		q := &queued[i]
		last, known := before[q.Owner.UID]
		if !known {
			root, err := r.rootOwner(ctx, q.Owner)
			if err != nil {
				return err
			}
			last.root = root
		}
		q.Root = last.root
		if q.Reason.Transient && last.summary != "" {
			q.Reason.Summary = last.summary
		}
		last.summary = q.Reason.Summary
		if !q.Reason.Transient && !slices.Contains(last.announcedReasons, q.Reason.Summary) && len(last.announcedReasons) < maxNamedWorkloads {
			if known || q.Since.After(r.leadingSince.Add(-leaderOverlap)) {
				r.Events.Eventf(&q.Root, nil, corev1.EventTypeWarning, reasonQueued, "Queue", "%s",
					describeQueued(q, project.Name, project.Spec.Department))
			}
			last.announcedReasons = append(slices.Clone(last.announcedReasons), q.Reason.Summary)
		}
		now[q.Owner.UID] = last
	}
	return nil
}

// announceEvicted records events on evicted workloads.
func (r *Reconciler) announceEvicted(
	ctx context.Context, project *v1alpha1.Project, evictions []eviction, before, now announcements,
) error {
	for _, e := range evictions[:min(len(evictions), maxAnnouncedQueued)] {
		if e.at.After(r.leadingSince.Add(-leaderOverlap)) && e.at.After(before[e.uid].evictedAt) {
			root, err := r.rootOwner(ctx, e.owner)
			if err != nil {
				return err
			}
			r.Events.Eventf(&root, nil, corev1.EventTypeWarning, reasonEvicted, "Evict",
				"it was stopped %s; it is queued again in project %s and starts automatically when quota is free", e.reason, project.Name)
		}
		next := now[e.uid]
		next.evictedAt = e.at
		now[e.uid] = next
	}
	return nil
}

// rootOwner returns the Deployment of a ReplicaSet, else the owner itself.
func (r *Reconciler) rootOwner(ctx context.Context, owner corev1.ObjectReference) (corev1.ObjectReference, error) {
	set := workloadKinds["ReplicaSet"]
	if owner.Kind != set.Kind || owner.APIVersion != set.GroupVersion().String() {
		return owner, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(set.GroupVersionKind)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err) || err == nil && object.UID != owner.UID:
		return owner, nil
	case err != nil:
		return owner, fmt.Errorf("get ReplicaSet %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	if by := metav1.GetControllerOf(object); by != nil {
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = by.APIVersion, by.Kind, by.Name, by.UID
	}
	return owner, nil
}
