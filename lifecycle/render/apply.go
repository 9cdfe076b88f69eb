// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	Queues QueueKindsSeen
	// Memory spares requests that would change nothing; nil remembers nothing.
	Memory *Memory
}

// Applied is what is there after an Apply.
type Applied struct {
	// Quotas are the ResourceQuotas among what is wanted, as the API server
	// answered.
	Quotas []corev1.ResourceQuota
	// Queues name the objects of queue kinds that are there, for people.
	Queues []string
	// Faults are what could not be had, those of the Wanted included.
	Faults []Fault
}

// Apply applies what is wanted, and takes back what was rendered for the place
// and is not wanted any more: nothing while there are faults, and nothing before
// each quota is counted, so that the limit holds all the time. The error is for
// another try.
func (a *Applier) Apply(ctx context.Context, place Place, wanted Wanted) (Applied, error) {
	present, err := a.present(ctx, place)
	if err != nil {
		return Applied{}, err
	}
	applied := Applied{Faults: wanted.Faults}
	before, marks := a.Memory.recall(place), map[key]mark{}
	// What is remembered of a pass that ends early is true as well.
	defer func() { a.Memory.remember(place, marks) }()
	for _, object := range wanted.Objects {
		k := keyOf(object)
		seen := present[k]
		delete(present, k)
		now := mark{wanted: digest(object.Object)}
		if then := before[k]; then.holds(k, now, seen) {
			marks[k] = then
			applied.take(k, seen)
			continue
		}
		there, fault, err := a.applyKind(ctx, place, object, seen != nil)
		switch {
		case err != nil:
			return Applied{}, err
		case fault != nil:
			applied.Faults = append(applied.Faults, *fault)
			continue
		}
		now.there = looks(k, there)
		marks[k] = now
		applied.take(k, there)
	}
	if len(applied.Faults) > 0 || len(present) == 0 || len(Uncounted(applied.Quotas)) > 0 {
		return applied, nil
	}
	return applied, a.takeBack(ctx, place, present)
}

// take notes an object that is there.
func (applied *Applied) take(k key, there client.Object) {
	if kinds[k.kind].isQueue() {
		applied.Queues = append(applied.Queues, k.String())
	} else if quota, ok := there.(*corev1.ResourceQuota); ok {
		applied.Quotas = append(applied.Quotas, *quota)
	}
}

// applyKind applies an object of whatever kind, and returns it as it is there, of a
// kind of Kubernetes in its own type. An engine that is not well keeps nobody from
// the rest: its errors are faults.
func (a *Applier) applyKind(ctx context.Context, place Place, object *unstructured.Unstructured, known bool) (client.Object, *Fault, error) {
	k := kinds[keyOf(object).kind]
	known = known || place.Fresh && k.namespaced
	problem, err := a.apply(ctx, place, object, known)
	if fault := cmp.Or(ofEngine(ctx, k, err), ofObject(k, problem)); fault != nil {
		return nil, fault, nil
	}
	switch {
	case err != nil:
		return nil, nil, err
	case k.isQueue():
		return object, nil, nil
	}
	there := k.object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, there); err != nil {
		return nil, nil, fmt.Errorf("reading the API server's answer for %s: %w", at(object), err)
	}
	return there, nil, nil
}

// ofObject is what is wrong with an object as a fault; nil where nothing is.
func ofObject(k kind, problem error) *Fault {
	if problem == nil {
		return nil
	}
	return &Fault{Quota: k.GroupVersionKind == quotaKind, Queue: k.isQueue(), Err: problem}
}

// ofEngine is an error as the fault of an engine that is not well; nil where it is
// not an engine's, or is for another try.
func ofEngine(ctx context.Context, k kind, err error) *Fault {
	if err == nil || !k.isQueue() || ctx.Err() != nil || apierrors.IsConflict(err) {
		return nil
	}
	return &Fault{Queue: true, Passing: !apierrors.IsForbidden(err), Err: err}
}

// apply applies one object, which is known to be the subject's or may be another's;
// the fault is for people.
func (a *Applier) apply(ctx context.Context, place Place, object *unstructured.Unstructured, known bool) (fault, err error) {
	k := keyOf(object)
	if kinds[k.kind].isQueue() {
		if a.Queues.Absent(kinds[k.kind].GroupVersionKind) {
			return notServed(kinds[k.kind]), nil
		}
		if !a.Queues.Watched(kinds[k.kind].GroupVersionKind) {
			return nil, fmt.Errorf("waiting until each %s can be watched, before %s is applied", kinds[k.kind].Kind, k)
		}
	}
	if !known {
		if fault, err := a.claim(ctx, place, object); fault != nil || err != nil {
			return fault, err
		}
	}
	wanted := object.DeepCopy()
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		if there, _ := a.live(ctx, wanted); there != nil {
			if fault, err := a.scoped(ctx, wanted, there); fault != nil || err != nil {
				return fault, err
			}
		}
		return fmt.Errorf("the API server refuses %s: %w", k, err), nil
	case meta.IsNoMatchError(err):
		return notServed(kinds[k.kind]), nil
	case err != nil:
		return nil, fmt.Errorf("applying %s: %w", at(object), err)
	case object.GetDeletionTimestamp() != nil:
		// Its going is heard of, and brings the subject here again.
		return fmt.Errorf("%s is being deleted; it is made anew once it is gone", at(object)), nil
	}
	return a.scoped(ctx, wanted, object)
}

func notServed(k kind) error {
	apiVersion, name := k.ToAPIVersionAndKind()
	return fmt.Errorf("the API server does not serve %s %s; install the engine of that version, or give the node pool another scheduler", apiVersion, name)
}

// at is an object for people, with where it is.
func at(object client.Object) string {
	said := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
	if object.GetNamespace() != "" {
		said += " in namespace " + object.GetNamespace()
	}
	return said
}

// live is an object as the API server has it.
func (a *Applier) live(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	if err := a.Live.Get(ctx, client.ObjectKeyFromObject(object), there); err != nil {
		return nil, fmt.Errorf("reading %s: %w", at(object), err)
	}
	return there, nil
}
