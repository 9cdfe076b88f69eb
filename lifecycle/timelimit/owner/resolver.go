// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roots finds the workload that a pod belongs to: what a person made, what
// has the clock and what is stopped.
//
// Enters: a pod, as package gpupods keeps it, and the metadata of those above it,
// read live. Leaves: the pod's [Root], and why the walk ended there. The walk goes
// up by controller references alone; other owners own for the garbage collector
// and say nothing of who decides. So the launcher and the workers of an MPIJob
// meet at the job, the head and the workers of a Ray cluster at what made it, the
// executors of a Spark application at what made their driver. Pods without a
// controller that Kueue admitted as a group meet at the group's Workload.
//
// What is above a pod counts only while it is there: each owner is read and its
// UID compared. Where one is gone, was made anew under its name, may not be read,
// is of a kind that the server does not have, or lies in no namespace, the walk
// ends below it. So a root is always something that exists and can be stopped.
// A fault of the network or the server is none of these: it is an error, and says
// nothing of the root. Schedules (CronJobs and their like) are no roots, since
// each of their runs is a workload of its own.
//
// # What is relied upon
//
// Owner references and labels are their author's. A root therefore never says
// whose a pod is, what limits it or what it is charged: the namespace says that,
// and every root lies in its pod's namespace. What is left to gain is time:
//
//   - A pod that points at another's root would run on that clock: until it is
//     stopped with the other, or so that the other ends sooner. Only known
//     controllers may write a pod's controller reference (the admission policy
//     controller-references of package doors, in governed namespaces); and a pod
//     counts as one of a group only where Kueue's Workload names the pod's UID.
//   - A reference to what does not exist, to be without a clock or to have one that
//     nobody can stop, ends the walk at the pod itself, which can be stopped.
//   - A new root for a fresh clock is what anybody has who makes a workload anew:
//     that clocks are handed on by name and by template is for the clocks to see.
//   - A root that is stopped already is not stopped again by the pod's running:
//     whoever stops a root must see that its pods go, and take those that stay.
//
// It never writes, never trusts a name without its UID, and never keeps more than
// a bounded number of owners in memory.
package owner

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/lifecycle/podcache"
)

const (
	// maxDepth is how many owners a walk goes up. A Knative service of KServe's,
	// the deepest that is known, is six above its pods.
	maxDepth = 8
	// maxCachedOwners is how many owners are remembered: of 20 000 workloads, three each, in
	// about 20 MiB at most.
	maxCachedOwners = 60_000
	// ownerCacheTTL is how long what controls a living object is believed, in
	// machine time. It changes only where somebody orphans or adopts it.
	ownerCacheTTL = time.Hour
	// unresolvedCacheTTL is how long an owner that ends the walk below it is not asked
	// for again: a right may be granted, a kind installed.
	unresolvedCacheTTL = time.Minute
)

// Resolver finds roots. It is safe for concurrent use.
type Resolver struct {
	reader client.Reader
	mapper meta.RESTMapper
	// owners are the steps that were read, by the owner's reference and namespace;
	// groups are roots by the UID of a pod of the group.
	owners, groups *cache.LRUExpireCache
}

// NewResolver is a Finder that reads by reader, which must not be a cache: a cached read
// of a kind would begin to watch all of that kind, and one that is forbidden would
// never end. It reads metadata only.
func NewResolver(reader client.Reader, mapper meta.RESTMapper) *Resolver {
	return &Resolver{reader: reader, mapper: mapper, owners: cache.NewLRUExpireCache(maxCachedOwners), groups: cache.NewLRUExpireCache(maxCachedOwners)}
}

// Resolve is the root of a pod, and why it is that. The error means that it cannot be
// told at present, and that one should ask again.
func (f *Resolver) Resolve(ctx context.Context, pod *podcache.Pod) (Root, Outcome, error) {
	root := Root{GroupVersionKind: podKind, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	next := pod.Controller
	if next == (podcache.Owner{}) {
		return f.resolveGroup(ctx, pod, root)
	}
	seen := map[types.UID]bool{pod.UID: true}
	for range maxDepth {
		switch {
		case next == (podcache.Owner{}):
			return root, OutcomeTop, nil
		case seen[next.UID]:
			return root, OutcomeCycle, nil
		}
		seen[next.UID] = true
		step, err := f.resolveOwner(ctx, pod.Namespace, next)
		if err != nil {
			return Root{}, "", fmt.Errorf("finding what pod %s/%s belongs to: %w", pod.Namespace, pod.Name, err)
		}
		if step.outcome != "" {
			return root, step.outcome, nil
		}
		root = Root{GroupVersionKind: step.kind, Namespace: pod.Namespace, Name: next.Name, UID: next.UID}
		next = step.controller
	}
	if next != (podcache.Owner{}) {
		return root, OutcomeMaxDepth, nil
	}
	return root, OutcomeTop, nil
}

// resolvedOwner is what was learned of an owner: why the walk ends below it, or what it is
// and what controls it.
type resolvedOwner struct {
	outcome    Outcome
	kind       schema.GroupVersionKind
	controller podcache.Owner
}

// ownerKey is an owner as something in a namespace refers to it. All of it counts:
// what one reference says wrongly must not be believed of another.
type ownerKey struct {
	namespace string
	owner     podcache.Owner
}

// resolveOwner looks at one owner, if it was not just looked at.
func (f *Resolver) resolveOwner(ctx context.Context, namespace string, owner podcache.Owner) (resolvedOwner, error) {
	at := ownerKey{namespace, owner}
	if known, ok := f.owners.Get(at); ok {
		return known.(resolvedOwner), nil
	}
	found, err := f.readOwner(ctx, namespace, owner)
	if err != nil {
		return resolvedOwner{}, err
	}
	age := ownerCacheTTL
	if found.outcome != "" {
		age = unresolvedCacheTTL
	}
	f.owners.Add(at, found, age)
	return found, nil
}

// Forget makes the next walk read the root anew, for whoever found it gone. A
// group is read anew every minute in any case.
func (f *Resolver) Forget(root Root) {
	f.owners.RemoveAll(func(key any) bool {
		at, ok := key.(ownerKey)
		return ok && at.namespace == root.Namespace && at.owner.UID == root.UID
	})
}

// readOwner reads an owner.
func (f *Resolver) readOwner(ctx context.Context, namespace string, owner podcache.Owner) (resolvedOwner, error) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if kind.Version == "" || kind.Kind == "" || owner.Name == "" {
		return resolvedOwner{outcome: OutcomeOwnerKindUnknown}, nil // no server has such a kind
	}
	if isNonWorkloadKind(kind.GroupKind()) {
		return resolvedOwner{outcome: OutcomeOwnerNotWorkload}, nil
	}
	object, ending, err := f.getMetadata(ctx, kind, client.ObjectKey{Namespace: namespace, Name: owner.Name})
	switch {
	case err != nil || ending != "":
		return resolvedOwner{outcome: ending}, err
	case object.UID != owner.UID:
		return resolvedOwner{outcome: OutcomeOwnerReplaced}, nil
	}
	found := resolvedOwner{kind: object.GroupVersionKind()}
	if above := metav1.GetControllerOfNoCopy(object); above != nil {
		found.controller = podcache.Owner{APIVersion: above.APIVersion, Kind: above.Kind, Name: above.Name, UID: above.UID}
	}
	return found, nil
}

// getMetadata reads the metadata of one object, or says why there is none to be had.
//
// The object's kind is in a version that is served.
func (f *Resolver) getMetadata(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, Outcome, error) {
	mapping, err := f.restMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return nil, OutcomeOwnerKindUnknown, nil
	case err != nil:
		return nil, "", fmt.Errorf("asking what %s is: %w", kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return nil, OutcomeOwnerClusterScoped, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	err = f.reader.Get(ctx, key, object)
	switch {
	case err == nil:
		object.SetGroupVersionKind(mapping.GroupVersionKind)
		return object, "", nil
	case meta.IsNoMatchError(err):
		return nil, OutcomeOwnerKindUnknown, nil
	case apierrors.IsNotFound(err):
		return nil, OutcomeOwnerNotFound, nil
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, OutcomeOwnerForbidden, nil
	default:
		return nil, "", fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	}
}

// restMapping is how the server serves a kind: in the version of the reference, or in
// another where that is not served any more.
func (f *Resolver) restMapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return f.mapper.RESTMapping(kind.GroupKind())
	}
	return mapping, err
}

// resolveGroup is the root of a pod without a controller: the Workload of its group where
// Kueue says so, else the pod itself. A pod may become one of a group only later,
// so that it is none is not remembered.
func (f *Resolver) resolveGroup(ctx context.Context, pod *podcache.Pod, itself Root) (Root, Outcome, error) {
	if pod.Group == "" {
		return itself, OutcomeTop, nil
	}
	if known, ok := f.groups.Get(pod.UID); ok {
		return known.(Root), OutcomePodGroup, nil
	}
	kind := kueueWorkloadKind.WithVersion("")
	object, ending, err := f.getMetadata(ctx, kind, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Group})
	if err != nil {
		return Root{}, "", fmt.Errorf("finding the group of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if ending != "" || !hasOwnerPod(object, pod) {
		return itself, OutcomeTop, nil
	}
	root := Root{GroupVersionKind: object.GroupVersionKind(), Namespace: pod.Namespace, Name: pod.Group, UID: object.UID}
	f.groups.Add(pod.UID, root, unresolvedCacheTTL) // Kueue makes a Workload anew that does not fit its pods
	return root, OutcomePodGroup, nil
}

// hasOwnerPod is whether the pod is among the owners of a group's Workload: Kueue makes
// each pod one that it takes into the group.
func hasOwnerPod(workload *metav1.PartialObjectMetadata, pod *podcache.Pod) bool {
	for i := range workload.OwnerReferences {
		if owner := &workload.OwnerReferences[i]; owner.UID == pod.UID && owner.Kind == podKind.Kind {
			return true
		}
	}
	return false
}
