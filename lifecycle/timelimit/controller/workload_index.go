// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/owner"
)

// WorkloadIndex knows which pods belong to which workload. It asks for the roots of
// pods as they come, once for all that have the same controller.
type WorkloadIndex struct {
	store    PodLister
	resolver *owner.Resolver

	mu sync.Mutex
	// roots are the workloads that were found, by what directly controls their pods.
	roots map[directOwner]owner.Root
	// owners are the other way round, by the clock's name.
	owners map[types.NamespacedName]map[directOwner]struct{}
	// unresolved are those whose root is not known yet, by namespace.
	unresolved map[string]map[directOwner]struct{}
	// awaitingResolution are the clocks that are to be looked at again when none in their
	// namespace is open.
	awaitingResolution map[string]map[types.NamespacedName]struct{}
	// queue is that of the clocks' controller, once it runs.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// podsSynced is closed when all pods that there were at the beginning are known.
	podsSynced chan struct{}
}

// PodLister are the GPU pods that are known: a gpupods.Store.
type PodLister interface {
	ByUID(uid types.UID) (*podcache.Pod, bool)
	ControlledBy(uid types.UID) iter.Seq[*podcache.Pod]
	OnNode(node string) iter.Seq[*podcache.Pod]
}

// directOwner is what directly controls pods: an owner, or a bare pod itself.
type directOwner struct {
	namespace string
	uid       types.UID
	bare      bool
}

func directOwnerOf(pod *podcache.Pod) directOwner {
	if pod.Controller.UID == "" {
		return directOwner{pod.Namespace, pod.UID, true}
	}
	return directOwner{pod.Namespace, pod.Controller.UID, false}
}

// NewWorkloadIndex is a Grouping of these pods.
func NewWorkloadIndex(store PodLister, finder *owner.Resolver) *WorkloadIndex {
	return &WorkloadIndex{
		store: store, resolver: finder, podsSynced: make(chan struct{}),
		roots: map[directOwner]owner.Root{}, owners: map[types.NamespacedName]map[directOwner]struct{}{}, unresolved: map[string]map[directOwner]struct{}{},
		awaitingResolution: map[string]map[types.NamespacedName]struct{}{},
	}
}

// maxConcurrentReconciles is how many roots are asked for, and how many clocks are looked at, at a
// time: nearly all of that is waiting for the API server.
const maxConcurrentReconciles = 16

// SetupWithManager makes the manager run g on the changes of its pods.
func (g *WorkloadIndex) SetupWithManager(mgr ctrl.Manager, store *podcache.Store) error {
	return builder.TypedControllerManagedBy[directOwner](mgr).
		Named("workload-roots").
		WithOptions(controller.TypedOptions[directOwner]{MaxConcurrentReconciles: maxConcurrentReconciles}).
		WatchesRawSource(&podSyncSource{TypedSyncingSource: podcache.Source(store, g.handlePodChange), podsSynced: g.podsSynced}).
		Complete(reconcile.TypedFunc[directOwner](g.reconcileRoot))
}

// handlePodChange are those whose pods changed. It is called in the order of changes.
func (g *WorkloadIndex) handlePodChange(c podcache.Change) []directOwner {
	g.mu.Lock()
	defer g.mu.Unlock()
	var changed []directOwner
	for _, pod := range []*podcache.Pod{c.Before, c.After} {
		if pod == nil {
			continue
		}
		p := directOwnerOf(pod)
		if len(changed) == 0 || changed[0] != p {
			changed = append(changed, p)
		}
		if _, known := g.roots[p]; !known && pod == c.After {
			addToSet(g.unresolved, p.namespace, p)
		}
	}
	return changed
}

// reconcileRoot finds the root of a parent's pods, and has its clock looked at.
func (g *WorkloadIndex) reconcileRoot(ctx context.Context, p directOwner) (reconcile.Result, error) {
	pod := g.anyPod(p)
	if pod == nil {
		g.removeOwner(p)
		return reconcile.Result{}, nil
	}
	root, ending, err := g.resolver.Resolve(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if g.setRoot(p, root) {
		ctrl.LoggerFrom(ctx).V(1).Info("found a workload", "namespace", root.Namespace, "kind", root.Kind, "name", root.Name, "because", ending)
	}
	return reconcile.Result{}, nil
}

func (g *WorkloadIndex) anyPod(p directOwner) *podcache.Pod {
	if p.bare {
		pod, _ := g.store.ByUID(p.uid)
		return pod
	}
	for pod := range g.store.ControlledBy(p.uid) {
		if pod.Namespace == p.namespace {
			return pod
		}
	}
	return nil
}

// setRoot records the root of a parent, and tells whether it is another than before.
func (g *WorkloadIndex) setRoot(p directOwner, root owner.Root) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, known := g.roots[p]
	if known && before != root {
		removeFromSet(g.owners, clockNameOf(before), p)
		g.enqueueClock(clockNameOf(before))
	}
	g.roots[p] = root
	addToSet(g.owners, clockNameOf(root), p)
	g.enqueueClock(clockNameOf(root))
	g.markResolved(p)
	return !known || before != root
}

func (g *WorkloadIndex) removeOwner(p directOwner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.markResolved(p)
	root, known := g.roots[p]
	if !known {
		return
	}
	delete(g.roots, p)
	removeFromSet(g.owners, clockNameOf(root), p)
	g.enqueueClock(clockNameOf(root))
}

// enqueueClock has a clock looked at. It is called with the lock held.
func (g *WorkloadIndex) enqueueClock(clock types.NamespacedName) {
	if g.queue != nil {
		g.queue.Add(reconcile.Request{NamespacedName: clock})
	}
}

// ClockSource wakes the clocks' controller for what is found. It begins when all pods
// that there were are known.
func (g *WorkloadIndex) ClockSource() source.Source { return clockSource{g} }

// RootsAndPods are the roots that a clock is for, that of the newest pod first, and their
// pods. There is more than one root where a workload was made again while the pods
// of the last still go.
func (g *WorkloadIndex) RootsAndPods(clock types.NamespacedName) (found []owner.Root, pods []*podcache.Pod) {
	g.mu.Lock()
	belongs := map[directOwner]owner.Root{}
	for p := range g.owners[clock] {
		belongs[p] = g.roots[p]
	}
	g.mu.Unlock()
	newest := map[owner.Root]time.Time{}
	for p, root := range belongs {
		if _, seen := newest[root]; !seen {
			newest[root] = time.Time{} // it counts without pods, too
		}
		for _, pod := range g.podsOf(p) {
			pods = append(pods, pod)
			if pod.CreatedAt.After(newest[root]) {
				newest[root] = pod.CreatedAt
			}
		}
	}
	return slices.SortedFunc(maps.Keys(newest), func(a, b owner.Root) int {
		return cmp.Or(newest[b].Compare(newest[a]), cmp.Compare(a.UID, b.UID))
	}), pods
}

func (g *WorkloadIndex) podsOf(p directOwner) (pods []*podcache.Pod) {
	if p.bare {
		if pod, ok := g.store.ByUID(p.uid); ok {
			pods = append(pods, pod)
		}
		return pods
	}
	for pod := range g.store.ControlledBy(p.uid) {
		if pod.Namespace == p.namespace {
			pods = append(pods, pod)
		}
	}
	return pods
}

// ClockOf is the clock of a pod's workload; false while that is not known.
func (g *WorkloadIndex) ClockOf(pod *podcache.Pod) (types.NamespacedName, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	root, ok := g.roots[directOwnerOf(pod)]
	return clockNameOf(root), ok
}

// clocksInNamespace are the clocks of a namespace's workloads.
func (g *WorkloadIndex) clocksInNamespace(namespace string) (requests []reconcile.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for clock := range g.owners {
		if clock.Namespace == namespace {
			requests = append(requests, reconcile.Request{NamespacedName: clock})
		}
	}
	return requests
}

// ResolveAgain has the roots of a clock's pods found anew, since one of them is gone.
func (g *WorkloadIndex) ResolveAgain(ctx context.Context, root owner.Root) error {
	g.resolver.Forget(root)
	_, pods := g.RootsAndPods(clockNameOf(root))
	for _, pod := range pods {
		again, _, err := g.resolver.Resolve(ctx, pod)
		if err != nil {
			return fmt.Errorf("finding what is left of %s %s/%s: %w", root.Kind, root.Namespace, root.Name, err)
		}
		p := directOwnerOf(pod)
		g.setRoot(p, again)
		if g.anyPod(p) == nil {
			g.removeOwner(p) // its last pod ended meanwhile, and was told of before
		}
	}
	return nil
}

func addToSet[K comparable](sets map[K]map[directOwner]struct{}, key K, p directOwner) {
	if sets[key] == nil {
		sets[key] = map[directOwner]struct{}{}
	}
	sets[key][p] = struct{}{}
}

func removeFromSet[K comparable](sets map[K]map[directOwner]struct{}, key K, p directOwner) {
	delete(sets[key], p)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
