// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package roots

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/lifecycle/gpupods"
)

const (
	// maxDepth is how many owners a walk goes up. A Knative service of KServe's,
	// the deepest that is known, is six above its pods.
	maxDepth = 8
	// kept is how many owners are remembered: of 20 000 workloads, three each, in
	// about 20 MiB at most.
	kept = 60_000
	// readAgainAfter is how long what controls a living object is believed, in
	// machine time. It changes only where somebody orphans or adopts it.
	readAgainAfter = time.Hour
	// askAgainAfter is how long an owner that ends the walk below it is not asked
	// for again: a right may be granted, a kind installed.
	askAgainAfter = time.Minute
)

// Finder finds roots. It is safe for concurrent use.
type Finder struct {
	reader client.Reader
	mapper meta.RESTMapper
	// owners are the steps that were read, by the owner's reference and namespace;
	// groups are roots by the UID of a pod of the group.
	owners, groups *cache.LRUExpireCache
}

// New is a Finder that reads by reader, which must not be a cache: a cached read
// of a kind would begin to watch all of that kind, and one that is forbidden would
// never end. It reads metadata only.
func New(reader client.Reader, mapper meta.RESTMapper) *Finder {
	return &Finder{reader: reader, mapper: mapper, owners: cache.NewLRUExpireCache(kept), groups: cache.NewLRUExpireCache(kept)}
}

// Of is the root of a pod, and why it is that. The error means that it cannot be
// told at present, and that one should ask again.
func (f *Finder) Of(ctx context.Context, pod *gpupods.Pod) (Root, Ending, error) {
	root := Root{GroupVersionKind: podKind, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	next := pod.Controller
	if next == (gpupods.Owner{}) {
		return f.group(ctx, pod, root)
	}
	seen := map[types.UID]bool{pod.UID: true}
	for range maxDepth {
		switch {
		case next == (gpupods.Owner{}):
			return root, EndedAtTop, nil
		case seen[next.UID]:
			return root, EndedAtCycle, nil
		}
		seen[next.UID] = true
		step, err := f.step(ctx, pod.Namespace, next)
		if err != nil {
			return Root{}, "", fmt.Errorf("finding what pod %s/%s belongs to: %w", pod.Namespace, pod.Name, err)
		}
		if step.ending != "" {
			return root, step.ending, nil
		}
		root = Root{GroupVersionKind: step.kind, Namespace: pod.Namespace, Name: next.Name, UID: next.UID}
		next = step.controller
	}
	if next != (gpupods.Owner{}) {
		return root, EndedAtDepth, nil
	}
	return root, EndedAtTop, nil
}

// step is what was learned of an owner: why the walk ends below it, or what it is
// and what controls it.
type step struct {
	ending     Ending
	kind       schema.GroupVersionKind
	controller gpupods.Owner
}

// place is an owner as something in a namespace refers to it. All of it counts:
// what one reference says wrongly must not be believed of another.
type place struct {
	namespace string
	owner     gpupods.Owner
}

// step looks at one owner, if it was not just looked at.
func (f *Finder) step(ctx context.Context, namespace string, owner gpupods.Owner) (step, error) {
	at := place{namespace, owner}
	if known, ok := f.owners.Get(at); ok {
		return known.(step), nil
	}
	found, err := f.look(ctx, namespace, owner)
	if err != nil {
		return step{}, err
	}
	age := readAgainAfter
	if found.ending != "" {
		age = askAgainAfter
	}
	f.owners.Add(at, found, age)
	return found, nil
}

// Forget makes the next walk read the root anew, for whoever found it gone. A
// group is read anew every minute in any case.
func (f *Finder) Forget(root Root) {
	f.owners.RemoveAll(func(key any) bool {
		at, ok := key.(place)
		return ok && at.namespace == root.Namespace && at.owner.UID == root.UID
	})
}
