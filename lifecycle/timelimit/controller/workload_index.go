// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/owner"
)

// WorkloadIndex maps pods to workloads and their clocks. It resolves the root once for all
// pods of the same direct owner. It is safe for concurrent use.
type WorkloadIndex struct {
	store    PodLister
	resolver *owner.Resolver
	clock    policytime.Clock

	mu sync.Mutex
	// roots are the resolved roots by the direct owner of pods.
	roots map[directOwner]owner.Root
	// owners is the inverse of roots, by the name of the root's clock. They are slices, since most
	// workloads have one owner and an empty set takes more memory than it.
	owners map[types.NamespacedName][]directOwner
	// unresolved are the owners without a root yet, by namespace.
	unresolved map[string]sets.Set[directOwner]
	// awaitingResolution are the clocks to enqueue when no owner of their namespace is
	// unresolved.
	awaitingResolution map[string]sets.Set[types.NamespacedName]
	// endedPods are the pods that ended last and were not being deleted, by clock, until the
	// clock controller observed their end.
	endedPods map[types.NamespacedName]*podcache.Pod
	// former are the clocks under which the pods of a root ran before their owner released them, by
	// the UID of the root.
	former map[types.UID]types.NamespacedName
	// queue is the queue of the clock controller, once it runs.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// podsSynced is closed when the pods of the initial list were handled.
	podsSynced chan struct{}
}

// PodLister finds GPU pods. podcache.Store implements it.
type PodLister interface {
	ByUID(uid types.UID) (*podcache.Pod, bool)
	ControlledBy(uid types.UID) iter.Seq[*podcache.Pod]
	OnNode(node string) iter.Seq[*podcache.Pod]
}

// directOwner is the controller of pods, or a pod without controller.
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

// NewWorkloadIndex returns an index of the pods of store. clock is policy time.
func NewWorkloadIndex(store PodLister, resolver *owner.Resolver, clock policytime.Clock) *WorkloadIndex {
	return &WorkloadIndex{
		store: store, resolver: resolver, clock: clock, podsSynced: make(chan struct{}),
		roots: map[directOwner]owner.Root{}, owners: map[types.NamespacedName][]directOwner{},
		unresolved: map[string]sets.Set[directOwner]{}, awaitingResolution: map[string]sets.Set[types.NamespacedName]{},
		endedPods: map[types.NamespacedName]*podcache.Pod{}, former: map[types.UID]types.NamespacedName{},
	}
}

// RootsAndPods returns the roots of a clock, that of the newest pod first, and their pods. A
// workload that was created again has several roots while pods of the old one exist.
func (x *WorkloadIndex) RootsAndPods(clock types.NamespacedName) (roots []owner.Root, pods []*podcache.Pod) {
	x.mu.Lock()
	rootOf := map[directOwner]owner.Root{}
	for _, o := range x.owners[clock] {
		rootOf[o] = x.roots[o]
	}
	x.mu.Unlock()
	newest := map[owner.Root]time.Time{}
	for o, root := range rootOf {
		if _, known := newest[root]; !known {
			newest[root] = time.Time{} // a root counts without pods, too
		}
		for pod := range x.podsOf(o) {
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

func (x *WorkloadIndex) podsOf(o directOwner) iter.Seq[*podcache.Pod] {
	return func(yield func(*podcache.Pod) bool) {
		if o.bare {
			if pod, ok := x.store.ByUID(o.uid); ok {
				yield(pod)
			}
			return
		}
		for pod := range x.store.ControlledBy(o.uid) {
			if pod.Namespace == o.namespace && !yield(pod) {
				return
			}
		}
	}
}

// anyPod returns one of an owner's pods, or nil.
func (x *WorkloadIndex) anyPod(o directOwner) *podcache.Pod {
	for pod := range x.podsOf(o) {
		return pod
	}
	return nil
}

// ClockOf returns the name of the clock of a pod's workload, and false if its root is not
// resolved yet.
func (x *WorkloadIndex) ClockOf(pod *podcache.Pod) (types.NamespacedName, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	root, ok := x.roots[directOwnerOf(pod)]
	return clockNameOf(root), ok
}

// RootOf returns the root workload of an object that may have no pods.
func (x *WorkloadIndex) RootOf(ctx context.Context, object client.Object) (owner.Root, error) {
	return x.resolver.ResolveObject(ctx, object)
}

// HasPods reports whether GPU pods of a root exist. It is complete only if IsSynced.
func (x *WorkloadIndex) HasPods(root owner.Root) bool {
	_, pods := x.RootsAndPods(clockNameOf(root))
	return len(pods) > 0
}

// IsSynced reports whether the roots of all GPU pods in a namespace are known, after the start too.
func (x *WorkloadIndex) IsSynced(namespace string) bool {
	select {
	case <-x.podsSynced:
		return x.IsComplete(namespace)
	default:
		return false
	}
}

// lastEndedPod returns the pod of a clock that ended last, or nil if it was being deleted.
func (x *WorkloadIndex) lastEndedPod(clock types.NamespacedName) *podcache.Pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.endedPods[clock]
}

// formerClock returns the clock under which the pods of a root ran before their owner was deleted
// without them.
func (x *WorkloadIndex) formerClock(root owner.Root) (types.NamespacedName, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clock, known := x.former[root.UID]
	return clock, known
}

// forgetFormerClock forgets the former clock of a root, after the root continued it.
func (x *WorkloadIndex) forgetFormerClock(root owner.Root) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.former, root.UID)
}

func (x *WorkloadIndex) forgetEndedPod(clock types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.endedPods, clock)
}

// clocksInNamespace returns requests for the clocks of a namespace's workloads.
func (x *WorkloadIndex) clocksInNamespace(namespace string) (requests []reconcile.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for clock := range x.owners {
		if clock.Namespace == namespace {
			requests = append(requests, reconcile.Request{NamespacedName: clock})
		}
	}
	return requests
}

// IsComplete reports whether the roots of all pods in a namespace are resolved.
func (x *WorkloadIndex) IsComplete(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.unresolved[namespace]) == 0
}

// enqueueWhenComplete enqueues a clock when the roots of all pods in its namespace are resolved.
func (x *WorkloadIndex) enqueueWhenComplete(clock types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.unresolved[clock.Namespace]) == 0 {
		x.enqueueClock(clock)
		return
	}
	addToSet(x.awaitingResolution, clock.Namespace, clock)
}

// setRoot records the root of an owner's pods and reports whether it changed.
func (x *WorkloadIndex) setRoot(o directOwner, root owner.Root) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, known := x.roots[o]
	if known && before != root {
		if before.UID != root.UID {
			x.former[root.UID] = clockNameOf(before)
		}
		x.removeOwnerOf(clockNameOf(before), o)
	}
	x.roots[o] = root
	clock := clockNameOf(root)
	if !slices.Contains(x.owners[clock], o) {
		x.owners[clock] = append(x.owners[clock], o)
	}
	x.enqueueClock(clock)
	x.markResolved(o)
	return !known || before != root
}

// isResolved reports whether the root of an owner's pods is known.
func (x *WorkloadIndex) isResolved(o directOwner) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, known := x.roots[o]
	return known
}

// removeOwner forgets an owner without pods.
func (x *WorkloadIndex) removeOwner(o directOwner) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.markResolved(o)
	root, known := x.roots[o]
	if !known {
		return
	}
	delete(x.roots, o)
	delete(x.former, root.UID)
	x.removeOwnerOf(clockNameOf(root), o)
}

// removeOwnerOf removes an owner from a clock and enqueues the clock. The caller holds the lock.
func (x *WorkloadIndex) removeOwnerOf(clock types.NamespacedName, o directOwner) {
	if at := slices.Index(x.owners[clock], o); at >= 0 {
		x.owners[clock] = slices.Delete(x.owners[clock], at, at+1)
	}
	if len(x.owners[clock]) == 0 {
		delete(x.owners, clock)
	}
	x.enqueueClock(clock)
}

// markResolved removes an owner from the unresolved ones. The caller holds the lock.
func (x *WorkloadIndex) markResolved(o directOwner) {
	removeFromSet(x.unresolved, o.namespace, o)
	if len(x.unresolved[o.namespace]) > 0 {
		return
	}
	for clock := range x.awaitingResolution[o.namespace] {
		x.enqueueClock(clock)
	}
	delete(x.awaitingResolution, o.namespace)
}

// enqueueClock adds a clock to the controller's queue. The caller holds the lock.
func (x *WorkloadIndex) enqueueClock(clock types.NamespacedName) {
	if x.queue != nil {
		x.queue.Add(reconcile.Request{NamespacedName: clock})
	}
}

func addToSet[K, E comparable](all map[K]sets.Set[E], key K, element E) {
	if all[key] == nil {
		all[key] = sets.New[E]()
	}
	all[key].Insert(element)
}

func removeFromSet[K, E comparable](all map[K]sets.Set[E], key K, element E) {
	all[key].Delete(element)
	if len(all[key]) == 0 {
		delete(all, key)
	}
}
