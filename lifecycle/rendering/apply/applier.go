// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Applier makes the cluster have what is wanted. What is there already is
// applied again at no cost but the request's: the API server writes nothing.
type Applier struct {
	// Client reads from a cache that has what lifecycle rendered of the kinds of
	// Kubernetes, and may have nothing else of them.
	Client client.Client
	// Live reads from the API server, to tell what is not there from what is
	// somebody else's.
	Live client.Reader
	// Queues knows what is there of the queue kinds.
	Queues QueueLister
	// Cache spares requests that would change nothing; nil remembers nothing.
	Cache *Cache
}

// Result is what is there after an Apply.
type Result struct {
	// Quotas are the ResourceQuotas among what is wanted, as the API server
	// answered.
	Quotas []corev1.ResourceQuota
	// Queues name the objects of queue kinds that are there, for people.
	Queues []string
	// Failures are what could not be had, those of the Wanted included.
	Failures []Failure
}

// Apply applies what is wanted, and takes back what was rendered for the place
// and is not wanted any more: nothing while there are faults, and nothing before
// each quota is counted, so that the limit holds all the time. The error is for
// another try.
func (a *Applier) Apply(ctx context.Context, place Target, wanted Desired) (Result, error) {
	present, err := a.listExisting(ctx, place)
	if err != nil {
		return Result{}, err
	}
	applied := Result{Failures: wanted.Failures}
	before, marks := a.Cache.get(place), map[objectKey]digestPair{}
	// What is remembered of a pass that ends early is true as well.
	defer func() { a.Cache.set(place, marks) }()
	for _, object := range wanted.Objects {
		k := objectKeyOf(object)
		seen := present[k]
		delete(present, k)
		now := digestPair{desired: digest(object.Object)}
		if then := before[k]; then.isCurrent(k, now, seen) {
			marks[k] = then
			applied.record(k, seen)
			continue
		}
		there, fault, err := a.applyObject(ctx, place, object, seen != nil)
		switch {
		case err != nil:
			return Result{}, err
		case fault != nil:
			applied.Failures = append(applied.Failures, *fault)
			continue
		}
		now.observed = observedDigest(k, there)
		marks[k] = now
		applied.record(k, there)
	}
	if len(applied.Failures) > 0 || len(present) == 0 || len(UncountedQuotas(applied.Quotas)) > 0 {
		return applied, nil
	}
	return applied, a.prune(ctx, place, present)
}

// record notes an object that is there.
func (applied *Result) record(k objectKey, there client.Object) {
	if supportedKinds[k.kind].isQueue() {
		applied.Queues = append(applied.Queues, k.String())
	} else if quota, ok := there.(*corev1.ResourceQuota); ok {
		applied.Quotas = append(applied.Quotas, *quota)
	}
}

// applyObject applies an object of whatever kind, and returns it as it is there, of a
// kind of Kubernetes in its own type. An engine that is not well keeps nobody from
// the rest: its errors are faults.
func (a *Applier) applyObject(ctx context.Context, place Target, object *unstructured.Unstructured, known bool) (client.Object, *Failure, error) {
	k := supportedKinds[objectKeyOf(object).kind]
	known = known || place.NewNamespace && k.namespaced
	problem, err := a.serverSideApply(ctx, place, object, known)
	if fault := cmp.Or(engineFailure(ctx, k, err), objectFailure(k, problem)); fault != nil {
		return nil, fault, nil
	}
	switch {
	case err != nil:
		return nil, nil, err
	case k.isQueue():
		return object, nil, nil
	}
	there := k.newObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, there); err != nil {
		return nil, nil, fmt.Errorf("reading the API server's answer for %s: %w", describeObject(object), err)
	}
	return there, nil, nil
}

// objectFailure is what is wrong with an object as a fault; nil where nothing is.
func objectFailure(k kindInfo, problem error) *Failure {
	if problem == nil {
		return nil
	}
	return &Failure{AffectsQuota: k.GroupVersionKind == quotaKind, AffectsQueue: k.isQueue(), Err: problem}
}

// engineFailure is an error as the fault of an engine that is not well; nil where it is
// not an engine's, or is for another try.
func engineFailure(ctx context.Context, k kindInfo, err error) *Failure {
	if err == nil || !k.isQueue() || ctx.Err() != nil || apierrors.IsConflict(err) {
		return nil
	}
	return &Failure{AffectsQueue: true, Transient: !apierrors.IsForbidden(err), Err: err}
}

// serverSideApply applies one object, which is known to be the subject's or may be another's;
// the fault is for people.
func (a *Applier) serverSideApply(ctx context.Context, place Target, object *unstructured.Unstructured, known bool) (fault, err error) {
	k := objectKeyOf(object)
	if supportedKinds[k.kind].isQueue() {
		if a.Queues.IsAbsent(supportedKinds[k.kind].GroupVersionKind) {
			return notServedError(supportedKinds[k.kind]), nil
		}
		if !a.Queues.IsWatched(supportedKinds[k.kind].GroupVersionKind) {
			return nil, fmt.Errorf("waiting until each %s can be watched, before %s is applied", supportedKinds[k.kind].Kind, k)
		}
	}
	if !known {
		if fault, err := a.checkOwnership(ctx, place, object); fault != nil || err != nil {
			return fault, err
		}
	}
	wanted := object.DeepCopy()
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		if there, _ := a.getLive(ctx, wanted); there != nil {
			if fault, err := a.checkQuotaScope(ctx, wanted, there); fault != nil || err != nil {
				return fault, err
			}
		}
		return fmt.Errorf("the API server refuses %s: %w", k, err), nil
	case meta.IsNoMatchError(err):
		return notServedError(supportedKinds[k.kind]), nil
	case err != nil:
		return nil, fmt.Errorf("applying %s: %w", describeObject(object), err)
	case object.GetDeletionTimestamp() != nil:
		// Its going is heard of, and brings the subject here again.
		return fmt.Errorf("%s is being deleted; it is made anew once it is gone", describeObject(object)), nil
	}
	return a.checkQuotaScope(ctx, wanted, object)
}

func notServedError(k kindInfo) error {
	apiVersion, name := k.ToAPIVersionAndKind()
	return fmt.Errorf("the API server does not serve %s %s; install the engine of that version, or give the node pool another scheduler", apiVersion, name)
}

// describeObject is an object for people, with where it is.
func describeObject(object client.Object) string {
	said := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
	if object.GetNamespace() != "" {
		said += " in namespace " + object.GetNamespace()
	}
	return said
}

// getLive is an object as the API server has it.
func (a *Applier) getLive(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	if err := a.Live.Get(ctx, client.ObjectKeyFromObject(object), there); err != nil {
		return nil, fmt.Errorf("reading %s: %w", describeObject(object), err)
	}
	return there, nil
}

// checkQuotaScope makes sure that a quota counts the pods that it is rendered for. Which
// those are cannot be changed once a quota is made, and what somebody had said
// of it before is not overwritten by applying: such a quota would look right and
// count nothing. It is deleted, and made anew when lifecycle hears of that.
//
// There is the object after it was applied; where that was refused, as it is.
func (a *Applier) checkQuotaScope(ctx context.Context, wanted, there *unstructured.Unstructured) (fault, err error) {
	if wanted.GroupVersionKind() != quotaKind {
		return nil, nil
	}
	var want, have corev1.ResourceQuota
	for from, into := range map[*unstructured.Unstructured]*corev1.ResourceQuota{wanted: &want, there: &have} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, into); err != nil {
			return nil, fmt.Errorf("reading %s: %w", describeObject(wanted), err)
		}
	}
	if equality.Semantic.DeepEqual(want.Spec.Scopes, have.Spec.Scopes) && equality.Semantic.DeepEqual(want.Spec.ScopeSelector, have.Spec.ScopeSelector) {
		return nil, nil
	}
	if err := a.Client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("deleting %s, which counts other pods than it should: %w", describeObject(wanted), err)
	}
	return fmt.Errorf("%s counted other pods than it should, since somebody had made it before; it is made anew", describeObject(wanted)), nil
}

// Cache remembers what was applied for each subject and how it then looked, so
// that the API server is not asked to apply again what nobody changed. Without it
// everything is applied each time.
type Cache struct {
	mu      sync.Mutex
	digests map[string]map[objectKey]digestPair
}

// digestPair is a digest of what was wanted, and one of what was there after it was
// applied. The zero digest is of nothing.
type digestPair struct{ desired, observed [sha256.Size]byte }

// get is what is remembered of a subject. It is not to be changed.
func (m *Cache) get(place Target) map[objectKey]digestPair {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.digests[place.String()]
}

// set keeps this of a subject, and nothing else; nothing where it is empty.
func (m *Cache) set(place Target, marks map[objectKey]digestPair) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(marks) == 0 {
		delete(m.digests, place.String())
		return
	}
	if m.digests == nil {
		m.digests = map[string]map[objectKey]digestPair{}
	}
	m.digests[place.String()] = marks
}

// isCurrent tells whether what is wanted was applied, and nobody changed it since, as
// far as a cache knows.
func (k digestPair) isCurrent(of objectKey, wanted digestPair, seen client.Object) bool {
	return seen != nil && seen.GetDeletionTimestamp() == nil && k.desired != [sha256.Size]byte{} &&
		k.desired == wanted.desired && k.observed == observedDigest(of, seen)
}

// observedDigest is a digest of what lifecycle renders of an object. A queue kind counts its
// changes itself; of the kinds of Kubernetes not all do.
func observedDigest(of objectKey, there client.Object) [sha256.Size]byte {
	seen := []any{there.GetUID(), there.GetLabels(), there.GetAnnotations()}
	if k := supportedKinds[of.kind]; k.isQueue() {
		seen = append(seen, there.GetGeneration())
	} else {
		seen = append(seen, k.specOf(there))
	}
	return digest(seen)
}

// digest is of a value of JSON; nothing is remembered of another.
func digest(value any) [sha256.Size]byte {
	raw, err := json.Marshal(value)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(raw)
}
