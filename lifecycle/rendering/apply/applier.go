// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Applier applies and prunes the objects of sets.
type Applier struct {
	// Client reads from a cache that has at least the objects with ManagedLabels.
	Client client.Client
	// Live reads from the API server, to distinguish a missing object from another
	// person's.
	Live client.Reader
	// Queues lists objects of queue kinds; nil where no set has one.
	Queues QueueLister
	// Cache remembers what was applied; without it, objects of kinds with defaults
	// are applied each time.
	Cache *Cache
}

// Result is what an Applier applied.
type Result struct {
	// Quota is the applied ResourceQuota, as the API server or the cache has it, or the
	// former one if it was not applied; nil without one.
	Quota *corev1.ResourceQuota
	// Queues are the kinds and names of the applied objects of queue kinds.
	Queues []string
	// Failures are the objects that could not be applied.
	Failures []Failure

	// obsolete are the objects of the set that are not desired.
	obsolete map[objectKey]client.Object
}

// ApplySet applies the objects of a set. Failures need a person; the error needs
// another try.
func (a *Applier) ApplySet(ctx context.Context, set Set, objects []*unstructured.Unstructured) (Result, error) {
	existing, err := a.listExisting(ctx, set)
	if err != nil {
		return Result{}, err
	}
	result := Result{obsolete: existing}
	before, digests := a.Cache.get(set.Owner), map[objectKey]digestPair{}
	// A pass that ends early has true digests, too.
	defer func() { a.Cache.set(set.Owner, digests) }()
	for _, object := range objects {
		key := keyOf(object)
		kind, _ := set.kind(key.GroupVersionKind)
		cached := existing[key]
		delete(existing, key)
		now := digestPair{desired: digest(object.Object)}
		current, err := isCurrent(kind, object, cached, before[key], now)
		if err != nil {
			return Result{}, err
		}
		if current {
			digests[key] = before[key]
			result.record(kind, key, cached)
			continue
		}
		observed, failure, err := a.applyObject(ctx, set, kind, object, cached)
		switch {
		case err != nil:
			return Result{}, err
		case failure != nil:
			result.Failures = append(result.Failures, *failure)
			continue
		}
		now.observed = observedDigest(kind, observed)
		digests[key] = now
		result.record(kind, key, observed)
	}
	return result, nil
}

// isCurrent reports whether the cached object is as desired.
func isCurrent(kind Kind, object *unstructured.Unstructured, cached client.Object, before, now digestPair) (bool, error) {
	if cached == nil || !kind.NoDefaults {
		return before.isCurrent(kind, now, cached), nil
	}
	desired, err := kind.typed(object)
	return err == nil && kind.matches(cached, desired), err
}

func (r *Result) record(kind Kind, key objectKey, observed client.Object) {
	if kind.isQueue() {
		r.Queues = append(r.Queues, key.String())
	} else if quota, ok := observed.(*corev1.ResourceQuota); ok {
		r.Quota = quota
	}
}

// applyObject applies one object and returns it as the API server answered. An error
// of a scheduler's kind is a Failure, so that it stops nothing else.
func (a *Applier) applyObject(
	ctx context.Context, set Set, kind Kind, object *unstructured.Unstructured, cached client.Object,
) (client.Object, *Failure, error) {
	observed, problem, err := a.serverSideApply(ctx, set, kind, object, cached)
	if failure := cmp.Or(queueFailure(ctx, kind, err), objectFailure(kind, problem)); failure != nil {
		return nil, failure, nil
	}
	return observed, nil, err
}

func objectFailure(kind Kind, problem error) *Failure {
	if problem == nil {
		return nil
	}
	return &Failure{AffectsQuota: kind.GroupVersionKind == quotaKind, AffectsQueue: kind.isQueue(), Err: problem}
}

// queueFailure returns the failure of a scheduler that is not healthy; nil for an
// error that is for another try.
func queueFailure(ctx context.Context, kind Kind, err error) *Failure {
	if err == nil || !kind.isQueue() || ctx.Err() != nil || apierrors.IsConflict(err) {
		return nil
	}
	return &Failure{AffectsQueue: true, Transient: !apierrors.IsForbidden(err), Err: err}
}

// serverSideApply applies one object. The problem needs a person.
func (a *Applier) serverSideApply(
	ctx context.Context, set Set, kind Kind, object *unstructured.Unstructured, cached client.Object,
) (observed client.Object, problem, err error) {
	if kind.isQueue() {
		if a.Queues.IsAbsent(kind.GroupVersionKind) {
			return nil, notServedError(kind), nil
		}
		if !a.Queues.IsWatched(kind.GroupVersionKind) {
			return nil, nil, fmt.Errorf("wait for the watch of each %s before %s is applied", kind.Kind, describeObject(object))
		}
	}
	desired := object.DeepCopy()
	if cached == nil && (!set.NewNamespace || !kind.Namespaced) {
		problem, err = a.checkOwnership(ctx, set, desired)
	} else if cached != nil && !kind.isQueue() {
		problem, err = a.checkImmutable(ctx, kind, desired, cached)
	}
	if problem != nil || err != nil {
		return nil, problem, err
	}
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		if problem, err := a.checkLiveImmutable(ctx, kind, desired); problem != nil || err != nil {
			return nil, problem, err
		}
		return nil, fmt.Errorf("the API server refuses %s: %w", describeObject(desired), err), nil
	case meta.IsNoMatchError(err):
		return nil, notServedError(kind), nil
	case err != nil:
		return nil, nil, fmt.Errorf("apply %s: %w", describeObject(desired), err)
	case object.GetDeletionTimestamp() != nil:
		// The event of its deletion brings the owner back.
		return nil, fmt.Errorf("%s is being deleted; it is created again once it is gone", describeObject(desired)), nil
	case kind.isQueue():
		return object, nil, nil
	}
	if observed, err = kind.typed(object); err != nil {
		return nil, nil, err
	}
	problem, err = a.checkImmutable(ctx, kind, desired, observed)
	return observed, problem, err
}

func notServedError(kind Kind) error {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return fmt.Errorf("the API server does not serve %s %s; install the engine of that version, or give the node pool another scheduler",
		apiVersion, name)
}

// checkOwnership reads an object that no cache has. The problem is another person's
// object of that name.
func (a *Applier) checkOwnership(ctx context.Context, set Set, object *unstructured.Unstructured) (problem, err error) {
	existing := &metav1.PartialObjectMetadata{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(object), existing)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", describeObject(object), err)
	}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	return set.conflict(existing), nil
}

// checkImmutable deletes an observed object whose immutable part is not as desired:
// applying would be refused, or would merge the two. The event of the deletion brings
// the owner back, which creates the object again.
func (a *Applier) checkImmutable(
	ctx context.Context, kind Kind, object *unstructured.Unstructured, observed client.Object,
) (problem, err error) {
	if kind.Immutable == nil {
		return nil, nil
	}
	desired, err := kind.typed(object)
	if err != nil || equality.Semantic.DeepEqual(kind.Immutable(desired), kind.Immutable(observed)) {
		return nil, err
	}
	uid := observed.GetUID()
	if err := a.Client.Delete(ctx, observed, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("delete %s, which has to be created again: %w", describeObject(object), err)
	}
	return fmt.Errorf("%s differed in a field that cannot be changed; it is deleted and created again", describeObject(object)), nil
}

// checkLiveImmutable does so with the object as the API server has it.
func (a *Applier) checkLiveImmutable(ctx context.Context, kind Kind, desired *unstructured.Unstructured) (problem, err error) {
	if kind.Immutable == nil {
		return nil, nil
	}
	live := kind.New()
	if a.Live.Get(ctx, client.ObjectKeyFromObject(desired), live) != nil {
		return nil, nil //nolint:nilerr // the API server's refusal is reported
	}
	return a.checkImmutable(ctx, kind, desired, live)
}
