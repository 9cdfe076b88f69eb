// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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

	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/roots"
)

// Grouping knows which pods belong to which workload. It asks for the roots of
// pods as they come, once for all that have the same controller.
type Grouping struct {
	store  Pods
	finder *roots.Finder

	mu sync.Mutex
	// roots are the workloads that were found, by what directly controls their pods.
	roots map[parent]roots.Root
	// parents are the other way round, by the clock's name.
	parents map[types.NamespacedName]map[parent]struct{}
	// open are those whose root is not known yet, by namespace.
	open map[string]map[parent]struct{}
	// waiting are the clocks that are to be looked at again when none in their
	// namespace is open.
	waiting map[string]map[types.NamespacedName]struct{}
	// queue is that of the clocks' controller, once it runs.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// pods is closed when all pods that there were at the beginning are known.
	pods chan struct{}
}

// Pods are the GPU pods that are known: a gpupods.Store.
type Pods interface {
	ByUID(uid types.UID) (*gpupods.Pod, bool)
	ControlledBy(uid types.UID) iter.Seq[*gpupods.Pod]
	OnNode(node string) iter.Seq[*gpupods.Pod]
}

// parent is what directly controls pods: an owner, or a bare pod itself.
type parent struct {
	namespace string
	uid       types.UID
	bare      bool
}

func parentOf(pod *gpupods.Pod) parent {
	if pod.Controller.UID == "" {
		return parent{pod.Namespace, pod.UID, true}
	}
	return parent{pod.Namespace, pod.Controller.UID, false}
}

// NewGrouping is a Grouping of these pods.
func NewGrouping(store Pods, finder *roots.Finder) *Grouping {
	return &Grouping{
		store: store, finder: finder, pods: make(chan struct{}),
		roots: map[parent]roots.Root{}, parents: map[types.NamespacedName]map[parent]struct{}{}, open: map[string]map[parent]struct{}{},
		waiting: map[string]map[types.NamespacedName]struct{}{},
	}
}

// workers is how many roots are asked for, and how many clocks are looked at, at a
// time: nearly all of that is waiting for the API server.
const workers = 16

// SetupWithManager makes the manager run g on the changes of its pods.
func (g *Grouping) SetupWithManager(mgr ctrl.Manager, store *gpupods.Store) error {
	return builder.TypedControllerManagedBy[parent](mgr).
		Named("workload-roots").
		WithOptions(controller.TypedOptions[parent]{MaxConcurrentReconciles: workers}).
		WatchesRawSource(&heard{TypedSyncingSource: gpupods.Source(store, g.changed), all: g.pods}).
		Complete(reconcile.TypedFunc[parent](g.group))
}

// changed are those whose pods changed. It is called in the order of changes.
func (g *Grouping) changed(c gpupods.Change) []parent {
	g.mu.Lock()
	defer g.mu.Unlock()
	var changed []parent
	for _, pod := range []*gpupods.Pod{c.Before, c.After} {
		if pod == nil {
			continue
		}
		p := parentOf(pod)
		if len(changed) == 0 || changed[0] != p {
			changed = append(changed, p)
		}
		if _, known := g.roots[p]; !known && pod == c.After {
			put(g.open, p.namespace, p)
		}
	}
	return changed
}

// group finds the root of a parent's pods, and has its clock looked at.
func (g *Grouping) group(ctx context.Context, p parent) (reconcile.Result, error) {
	pod := g.first(p)
	if pod == nil {
		g.forget(p)
		return reconcile.Result{}, nil
	}
	root, ending, err := g.finder.Of(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if g.settle(p, root) {
		ctrl.LoggerFrom(ctx).V(1).Info("found a workload", "namespace", root.Namespace, "kind", root.Kind, "name", root.Name, "because", ending)
	}
	return reconcile.Result{}, nil
}

func (g *Grouping) first(p parent) *gpupods.Pod {
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

// settle records the root of a parent, and tells whether it is another than before.
func (g *Grouping) settle(p parent, root roots.Root) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, known := g.roots[p]
	if known && before != root {
		drop(g.parents, clockOf(before), p)
		g.wake(clockOf(before))
	}
	g.roots[p] = root
	put(g.parents, clockOf(root), p)
	g.wake(clockOf(root))
	g.settled(p)
	return !known || before != root
}

func (g *Grouping) forget(p parent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled(p)
	root, known := g.roots[p]
	if !known {
		return
	}
	delete(g.roots, p)
	drop(g.parents, clockOf(root), p)
	g.wake(clockOf(root))
}

// wake has a clock looked at. It is called with the lock held.
func (g *Grouping) wake(clock types.NamespacedName) {
	if g.queue != nil {
		g.queue.Add(reconcile.Request{NamespacedName: clock})
	}
}

// Clocks wakes the clocks' controller for what is found. It begins when all pods
// that there were are known.
func (g *Grouping) Clocks() source.Source { return found{g} }

// Of are the roots that a clock is for, that of the newest pod first, and their
// pods. There is more than one root where a workload was made again while the pods
// of the last still go.
func (g *Grouping) Of(clock types.NamespacedName) (found []roots.Root, pods []*gpupods.Pod) {
	g.mu.Lock()
	belongs := map[parent]roots.Root{}
	for p := range g.parents[clock] {
		belongs[p] = g.roots[p]
	}
	g.mu.Unlock()
	newest := map[roots.Root]time.Time{}
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
	return slices.SortedFunc(maps.Keys(newest), func(a, b roots.Root) int {
		return cmp.Or(newest[b].Compare(newest[a]), cmp.Compare(a.UID, b.UID))
	}), pods
}

func (g *Grouping) podsOf(p parent) (pods []*gpupods.Pod) {
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
func (g *Grouping) ClockOf(pod *gpupods.Pod) (types.NamespacedName, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	root, ok := g.roots[parentOf(pod)]
	return clockOf(root), ok
}

// inNamespace are the clocks of a namespace's workloads.
func (g *Grouping) inNamespace(namespace string) (requests []reconcile.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for clock := range g.parents {
		if clock.Namespace == namespace {
			requests = append(requests, reconcile.Request{NamespacedName: clock})
		}
	}
	return requests
}

// Again has the roots of a clock's pods found anew, since one of them is gone.
func (g *Grouping) Again(ctx context.Context, root roots.Root) error {
	g.finder.Forget(root)
	_, pods := g.Of(clockOf(root))
	for _, pod := range pods {
		again, _, err := g.finder.Of(ctx, pod)
		if err != nil {
			return fmt.Errorf("finding what is left of %s %s/%s: %w", root.Kind, root.Namespace, root.Name, err)
		}
		p := parentOf(pod)
		g.settle(p, again)
		if g.first(p) == nil {
			g.forget(p) // its last pod ended meanwhile, and was told of before
		}
	}
	return nil
}

func put[K comparable](sets map[K]map[parent]struct{}, key K, p parent) {
	if sets[key] == nil {
		sets[key] = map[parent]struct{}{}
	}
	sets[key][p] = struct{}{}
}

func drop[K comparable](sets map[K]map[parent]struct{}, key K, p parent) {
	delete(sets[key], p)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
