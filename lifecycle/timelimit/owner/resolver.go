// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owner resolves the root workload of a pod: the object that its user created, that
// has the clock, and that is stopped.
//
// [Resolver] follows controller references, live and metadata only; other owner references
// do not count. So launcher and workers of an MPIJob meet at the job, and the executors of a
// Spark application at the root of their driver. Pods without controller that Kueue admitted
// as a group meet at the Workload of the group.
//
// Each owner is read and its UID compared. The walk ends below an owner that does not exist,
// was replaced, cannot be read, has an unknown kind, is cluster-scoped or of a kind that never
// controls the object. It passes by owners of a kind that cannot be stopped, such as a revision
// of a Knative service. So a root always exists and can be stopped. An error of the network or
// the server is returned: the root is then unknown. If the server keeps answering with an error,
// the walk ends there too. Schedules such as CronJobs are no roots, because each run is a
// workload.
//
// # Trust
//
// Users write owner references and labels. So a root never determines the project, the
// limits or the charge of a pod: the namespace does, and every root is in the namespace of
// its pod. What a forged reference could gain is time:
//
//   - A pod or workload that names another's root would share its clock until both are stopped.
//     In governed namespaces only a controller of the owner's kind may set a controller reference
//     (admission policy controller-references), and Kubernetes' own kinds control nothing but
//     what their controllers create. A pod belongs to a group only if Kueue's Workload names the
//     pod's UID.
//   - A reference to a nonexistent owner, or to one that cannot be stopped or read, to avoid a
//     clock, ends the walk at the last object before it, which can be stopped.
//   - A new root has a new clock. The clock controller lets it inherit the clock of a deleted
//     or stopped workload of the same creator with the same name or template.
//   - A root that is already stopped is not stopped again because a pod runs. The caller must
//     make sure that its pods terminate.
//
// The package writes nothing, and caches a bounded number of owners.
package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
)

const (
	// maxDepth limits the number of owners above a pod. The deepest known workload, a
	// Knative service of KServe, is six above its pods.
	maxDepth = 8
	// maxCachedOwners is enough for 20 000 workloads with three owners each, in about 20 MiB.
	maxCachedOwners = 60_000
	// ownerCacheTTL is the time for which the controller of an existing owner is cached, in machine
	// time. It changes only if it is orphaned or adopted.
	ownerCacheTTL = time.Hour
	// unresolvedCacheTTL is the time for which an owner that ended a walk is cached, in machine time. A
	// permission can be granted, or a kind installed.
	unresolvedCacheTTL = time.Minute
	// lastingErrorAge is the time for which the server must answer with errors, in machine time, before an
	// owner counts as unreadable.
	lastingErrorAge = time.Minute
)

// Resolver resolves roots. It is safe for concurrent use.
type Resolver struct {
	reader client.Reader
	mapper meta.RESTMapper
	// canStop reports whether the objects of a kind can be stopped that package workloadkind does
	// not know.
	canStop func(context.Context, *meta.RESTMapping) (bool, error)
	// owners caches resolvedOwners by ownerKey, groups the roots of pod groups by pod UID.
	owners, groups *cache.LRUExpireCache
	// failures are the times of the first of the server's errors, by ownerKey.
	failures *cache.LRUExpireCache
}

// NewResolver returns a Resolver. The reader must not be a cache: a cached read would watch
// all objects of a kind, and a forbidden one would never return. canStop reports whether the
// objects of a kind can be stopped that package workloadkind does not know.
func NewResolver(
	reader client.Reader, mapper meta.RESTMapper, canStop func(context.Context, *meta.RESTMapping) (bool, error),
) *Resolver {
	return &Resolver{
		reader: reader, mapper: mapper, canStop: canStop,
		owners:   cache.NewLRUExpireCache(maxCachedOwners),
		groups:   cache.NewLRUExpireCache(maxCachedOwners),
		failures: cache.NewLRUExpireCache(maxCachedOwners),
	}
}

// Resolve returns the root of a pod and why the walk ended there. After an error the root is
// unknown; the caller must try again.
func (r *Resolver) Resolve(ctx context.Context, pod *podcache.Pod) (Root, Outcome, error) {
	if pod.Controller == (podcache.Owner{}) {
		return r.resolveGroup(ctx, pod, rootOfPod(pod))
	}
	chain, outcome, err := r.walk(ctx, rootOfPod(pod), pod.Controller)
	if err != nil {
		return Root{}, "", err
	}
	return chain[len(chain)-1], outcome, nil
}

// ResolveObject returns the root of a workload that may have no pods: the object itself, if nothing
// controls it that can be stopped.
func (r *Resolver) ResolveObject(ctx context.Context, object client.Object) (Root, error) {
	root := Root{
		GroupVersionKind: object.GetObjectKind().GroupVersionKind(),
		Namespace:        object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}
	chain, _, err := r.walk(ctx, root, controllerOf(object))
	if err != nil {
		return Root{}, err
	}
	return chain[len(chain)-1], nil
}

// OwnersBelowRoot returns the objects between a pod and its root that can be stopped, the
// pod's controller first.
func (r *Resolver) OwnersBelowRoot(ctx context.Context, pod *podcache.Pod) ([]Root, error) {
	chain, _, err := r.walk(ctx, rootOfPod(pod), pod.Controller)
	if err != nil || len(chain) < 3 {
		return nil, err
	}
	return chain[1 : len(chain)-1], nil
}

func rootOfPod(pod *podcache.Pod) Root {
	return Root{GroupVersionKind: podKind, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// walk returns an object, such as a pod, its owners from next on that can be stopped, the root last,
// and why the walk ended.
func (r *Resolver) walk(ctx context.Context, object Root, next podcache.Owner) ([]Root, Outcome, error) {
	chain := []Root{object}
	visited, child, end := map[types.UID]bool{object.UID: true}, object.GroupKind(), OutcomeTop
	for range maxDepth {
		switch {
		case next == (podcache.Owner{}):
			return chain, end, nil
		case visited[next.UID]:
			return chain, OutcomeCycle, nil
		}
		visited[next.UID] = true
		kind := schema.FromAPIVersionAndKind(next.APIVersion, next.Kind).GroupKind()
		if !workloadkind.MayControl(kind, child) {
			return chain, OutcomeOwnerImplausible, nil
		}
		step, err := r.resolveOwner(ctx, object.Namespace, next)
		if err != nil {
			return nil, "", fmt.Errorf("resolve the root of %s %s/%s: %w", object.Kind, object.Namespace, object.Name, err)
		}
		if step.outcome != "" {
			if root := &chain[len(chain)-1]; kind == cronJobKind && root.GroupKind() == jobKind {
				root.CronJob = next.Name
			}
			return chain, step.outcome, nil
		}
		if end = OutcomeOwnerNotWorkload; step.canStop {
			chain = append(chain, Root{GroupVersionKind: step.kind, Namespace: object.Namespace, Name: next.Name, UID: next.UID})
			end = OutcomeTop
		}
		child, next = kind, step.controller
	}
	if next != (podcache.Owner{}) {
		return chain, OutcomeMaxDepth, nil
	}
	return chain, end, nil
}

// resolvedOwner is either the outcome that ends a walk below an owner, or the owner's kind,
// whether it can be stopped, and its controller.
type resolvedOwner struct {
	outcome    Outcome
	kind       schema.GroupVersionKind
	canStop    bool
	controller podcache.Owner
}

// ownerKey is an owner reference and its namespace. All fields are part of the key, so that
// a wrong reference does not affect a correct one.
type ownerKey struct {
	namespace string
	owner     podcache.Owner
}

// resolveOwner returns an owner from the cache or the API server.
func (r *Resolver) resolveOwner(ctx context.Context, namespace string, owner podcache.Owner) (resolvedOwner, error) {
	key := ownerKey{namespace, owner}
	if cached, ok := r.owners.Get(key); ok {
		return cached.(resolvedOwner), nil
	}
	resolved, err := r.readOwner(ctx, namespace, owner)
	switch {
	case err != nil && r.isLastingError(key, err):
		return resolvedOwner{outcome: OutcomeOwnerUnreadable}, nil
	case err != nil:
		return resolvedOwner{}, err
	}
	r.failures.Remove(key)
	ttl := ownerCacheTTL
	if resolved.outcome != "" {
		ttl = unresolvedCacheTTL
	}
	r.owners.Add(key, resolved, ttl)
	return resolved, nil
}

// isLastingError reports whether the server has answered with errors for lastingErrorAge. An
// error without an answer, or of an overloaded server, says nothing about the owner.
func (r *Resolver) isLastingError(key ownerKey, err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) {
		return false
	}
	now := policytime.MachineNow()
	first, ok := r.failures.Get(key)
	if !ok {
		first = now
		r.failures.Add(key, first, ownerCacheTTL)
	}
	return now.Sub(first.(time.Time)) >= lastingErrorAge
}

// Forget removes a root from the cache. Groups expire after a minute.
func (r *Resolver) Forget(root Root) {
	r.owners.RemoveAll(func(key any) bool {
		k, ok := key.(ownerKey)
		return ok && k.namespace == root.Namespace && k.owner.UID == root.UID
	})
}

// resolveGroup returns the root of a pod without controller: the Kueue Workload of its group
// or, if it belongs to none, the pod itself. The latter is not cached, because a pod can
// join a group later.
func (r *Resolver) resolveGroup(ctx context.Context, pod *podcache.Pod, podRoot Root) (Root, Outcome, error) {
	if pod.Group == "" {
		return podRoot, OutcomeTop, nil
	}
	if cached, ok := r.groups.Get(pod.UID); ok {
		return cached.(Root), OutcomePodGroup, nil
	}
	kind := kueueWorkloadKind.WithVersion("")
	object, outcome, err := r.getMetadata(ctx, kind, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Group})
	if err != nil {
		return Root{}, "", fmt.Errorf("resolve the group of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if outcome != "" || !hasOwnerPod(object, pod) {
		return podRoot, OutcomeTop, nil
	}
	root := Root{GroupVersionKind: object.GroupVersionKind(), Namespace: pod.Namespace, Name: pod.Group, UID: object.UID}
	r.groups.Add(pod.UID, root, unresolvedCacheTTL) // Kueue replaces a Workload that does not match its pods
	return root, OutcomePodGroup, nil
}

// hasOwnerPod reports whether the pod is an owner of a group's Workload. Kueue makes each
// pod of a group an owner.
func hasOwnerPod(workload *metav1.PartialObjectMetadata, pod *podcache.Pod) bool {
	for i := range workload.OwnerReferences {
		if owner := &workload.OwnerReferences[i]; owner.UID == pod.UID && owner.Kind == podKind.Kind {
			return true
		}
	}
	return false
}
