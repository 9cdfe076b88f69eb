// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
)

// SetupWithManager adds the controller that resolves the roots of changed pods.
func (x *WorkloadIndex) SetupWithManager(mgr ctrl.Manager, store *podcache.Store) error {
	return builder.TypedControllerManagedBy[directOwner](mgr).
		Named("workload-roots").
		WithOptions(controller.TypedOptions[directOwner]{MaxConcurrentReconciles: maxConcurrentReconciles}).
		WatchesRawSource(&podSyncSource{TypedSyncingSource: podcache.Source(store, x.handlePodChange), index: x, clocks: mgr.GetClient()}).
		Complete(reconcile.TypedFunc[directOwner](x.reconcileOwner))
}

// handlePodChange returns the owners of a changed pod, and marks an unknown owner as
// unresolved. The pod cache calls it in the order of changes.
func (x *WorkloadIndex) handlePodChange(c podcache.Change) []directOwner {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recordRelease(c)
	var changed []directOwner
	for _, pod := range []*podcache.Pod{c.Before, c.After} {
		if pod == nil {
			continue
		}
		o := directOwnerOf(pod)
		if len(changed) == 0 || changed[0] != o {
			changed = append(changed, o)
		}
		root, known := x.roots[o]
		if !known && pod == c.After {
			addToSet(x.unresolved, o.namespace, o)
		}
		if known && c.After == nil {
			x.recordEnd(clockNameOf(root), pod)
		}
	}
	return changed
}

// recordRelease records the former clock of a pod whose controller was removed, as the deletion of a
// Job with propagationPolicy Orphan does. The caller holds the lock.
func (x *WorkloadIndex) recordRelease(c podcache.Change) {
	if c.Before == nil || c.After == nil || c.Before.UID != c.After.UID || c.After.Controller != (podcache.Owner{}) {
		return
	}
	if root, known := x.roots[directOwnerOf(c.Before)]; known && root.UID != c.After.UID {
		x.former[c.After.UID] = clockNameOf(root)
	}
}

// recordEnd records the pod of a clock that ended last. The caller holds the lock.
func (x *WorkloadIndex) recordEnd(clock types.NamespacedName, pod *podcache.Pod) {
	if pod.Running && !pod.Deleting {
		x.endedPods[clock] = pod
		return
	}
	delete(x.endedPods, clock)
}

// reconcileOwner resolves the root of an owner's pods and enqueues its clock.
func (x *WorkloadIndex) reconcileOwner(ctx context.Context, o directOwner) (reconcile.Result, error) {
	pod := x.anyPod(o)
	if pod == nil {
		x.removeOwner(o)
		return reconcile.Result{}, nil
	}
	root, outcome, err := x.resolver.Resolve(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if outcome == owner.OutcomeOwnerUnreadable { // it can be read later
		if result.RequeueAfter = notReadyRequeue; x.isResolved(o) {
			return result, nil
		}
	}
	if x.setRoot(o, root) {
		ctrl.LoggerFrom(ctx).V(1).Info("Resolved workload", "namespace", root.Namespace, "kind", root.Kind, "name", root.Name, "outcome", outcome)
	}
	return result, nil
}

// ownersBelowRoot returns the objects between pods and their root, each once.
func (x *WorkloadIndex) ownersBelowRoot(ctx context.Context, pods []*podcache.Pod) ([]owner.Root, error) {
	var all []owner.Root
	for _, pod := range pods {
		owners, err := x.resolver.OwnersBelowRoot(ctx, pod)
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			if !slices.Contains(all, o) {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// ResolveAgain resolves the roots of a root's pods again, because it does not exist any more.
func (x *WorkloadIndex) ResolveAgain(ctx context.Context, root owner.Root) error {
	x.resolver.Forget(root)
	_, pods := x.RootsAndPods(clockNameOf(root))
	for _, pod := range pods {
		next, _, err := x.resolver.Resolve(ctx, pod)
		if err != nil {
			return fmt.Errorf("resolve the pods of deleted %s %s/%s: %w", root.Kind, root.Namespace, root.Name, err)
		}
		o := directOwnerOf(pod)
		x.setRoot(o, next)
		if x.anyPod(o) == nil {
			x.removeOwner(o) // its last pod ended meanwhile; that change was handled before setRoot
		}
	}
	return nil
}

// podSyncSource closes podsSynced when the index has handled every pod of the initial list.
// Before that, a workload with running pods seems to have none.
type podSyncSource struct {
	source.TypedSyncingSource[directOwner]
	index *WorkloadIndex
	// clocks reads WorkloadClocks from the cache.
	clocks client.Reader
	queue  workqueue.TypedRateLimitingInterface[directOwner]
	once   sync.Once
}

// Start implements [source.TypedSource].
func (s *podSyncSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[directOwner]) error {
	s.queue = queue
	return s.TypedSyncingSource.Start(ctx, queue)
}

// WaitForSync implements [source.TypedSyncingSource]. Controllers call it after Start, and
// so after the initial pods were handled, and before they start workers.
func (s *podSyncSource) WaitForSync(ctx context.Context) error {
	if err := s.TypedSyncingSource.WaitForSync(ctx); err != nil {
		return err
	}
	if err := s.index.prioritizeOverdue(ctx, s.clocks, s.queue); err != nil {
		return err
	}
	s.once.Do(func() { close(s.index.podsSynced) })
	return nil
}

// prioritizeOverdue moves the unresolved owners of overdue workloads to the front of the queue.
// Owners that are no root themselves follow, such as ReplicaSets: which workload they belong to
// is known only when they are resolved.
func (x *WorkloadIndex) prioritizeOverdue(
	ctx context.Context, clocks client.Reader, queue workqueue.TypedRateLimitingInterface[directOwner],
) error {
	prioritized, ok := queue.(priorityqueue.PriorityQueue[directOwner])
	if !ok {
		return nil
	}
	var list v1alpha1.WorkloadClockList
	if err := clocks.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // waits until the cache is synced
		return fmt.Errorf("list clocks to find overdue workloads: %w", err)
	}
	now, overdue := x.clock.Now(), make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		s := &list.Items[i].Status
		overdue[s.RootUID] = timelimit.IsOverdue(s, now)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, owners := range x.unresolved {
		for o := range owners {
			switch first, known := overdue[o.uid]; {
			case first:
				prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(overduePriority)}, o)
			case !known:
				prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(unknownPriority)}, o)
			}
		}
	}
	return nil
}

// ClockSource returns the source of requests for the clocks of changed workloads. It is
// synced when the pods of the initial list were handled.
func (x *WorkloadIndex) ClockSource() source.Source { return clockSource{x} }

type clockSource struct{ index *WorkloadIndex }

// Start implements [source.TypedSource].
func (s clockSource) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = queue
	for clock := range x.owners {
		x.enqueueClock(clock)
	}
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (s clockSource) WaitForSync(ctx context.Context) error {
	select {
	case <-s.index.podsSynced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
