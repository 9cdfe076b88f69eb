// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workload/kinds"
)

// Stopper stops root workloads, and lets them be started again. It may be used
// from several goroutines.
type Stopper struct {
	// Client reads unstructured objects from the API server, not from a cache: a
	// cache would watch every kind that was ever stopped, and what is stopped
	// must be the object as it is now.
	Client client.Client
	// DeleteUnknown allows the deletion of a root of a kind that is not known and
	// has neither spec.suspend nor a scale subresource, with foreground
	// propagation. Default false: such a kind is ErrUnsupported.
	DeleteUnknown bool
}

// tries are how often a write is tried while others write the object, too. The
// last one asks for the same object and not for the same version of it: who
// writes without pause would never be stopped.
const tries = 4

// root is a target as it was read.
type root struct {
	Target
	kind   kinds.Kind
	object *unstructured.Unstructured
	// anyVersion is true where a later version of the object is as good.
	anyVersion bool
}

// Stop stops the workload until a time in policy time; zero means until somebody
// decides. The verb and the mark sluice.dev/stopped-until are one write, on the
// object that was read: what was made anew under its name stays as it is. Why is
// for people, and short. To stop what is stopped is no error and no write. To
// stop again what is [Stopping] helps a StatefulSet on that waits for a pod that
// never becomes ready, or never goes.
func (s *Stopper) Stop(ctx context.Context, t Target, until time.Time, why string) error {
	return t.explained("stopping", s.retried(ctx, t, func(r root) error {
		switch {
		case r.isPod():
			return s.deletePod(ctx, r, why)
		case r.kind.Verb.Form == kinds.FormDelete:
			return s.deleteRoot(ctx, r)
		}
		// What Kueue does not let go is suspended all the same.
		queued := s.deactivate(ctx, r, until)
		return errors.Join(queued, s.write(ctx, r, kinds.FormatUntil(until)), s.advance(ctx, r))
	}))
}

// Release takes the mark off, so that the owner may start the workload again. It
// starts nothing.
func (s *Stopper) Release(ctx context.Context, t Target) error {
	return t.explained("releasing", s.retried(ctx, t, func(r root) error {
		if r.kind.Verb.Form == kinds.FormDelete {
			return nil
		}
		if err := s.releaseQueued(ctx, r); err != nil {
			return err
		}
		return s.unmark(ctx, r)
	}))
}

// State is what the workload says of itself now. That it is gone is no error.
func (s *Stopper) State(ctx context.Context, t Target) (State, error) {
	r, err := s.read(ctx, t)
	err = t.explained("reading", err)
	switch {
	case errors.Is(err, ErrGone):
		return Gone, nil
	case err != nil:
		return "", err
	case r.kind.HasEnded(r.object):
		return Stopped, nil
	case r.kind.AsksToRun(r.object):
		return Running, nil
	case r.kind.IsBusy(r.object) || r.kind.Verb.Form == kinds.FormDelete:
		return Stopping, nil
	}
	return Stopped, nil
}

// retried does something with the object as it is now, again where it changed
// between the reading and the writing.
func (s *Stopper) retried(ctx context.Context, t Target, do func(root) error) error {
	var err error
	for try := range tries {
		var r root
		if r, err = s.read(ctx, t); err == nil {
			r.anyVersion = try == tries-1
			err = classified(do(r))
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			break
		}
	}
	if apierrors.IsInvalid(err) {
		// So the API server says, too, that another object has the name by now.
		if _, again := s.read(ctx, t); errors.Is(again, ErrGone) {
			return again
		}
	}
	return err
}

// read finds the row of the target's kind, and the object itself.
func (s *Stopper) read(ctx context.Context, t Target) (root, error) {
	if !kinds.CanBeStopped(t.GroupKind()) {
		return root{}, neverTouched(t)
	}
	mapping, err := s.mapping(t)
	if err != nil {
		return root{}, classified(err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return root{}, neverTouched(t)
	}
	r := root{Target: t, object: &unstructured.Unstructured{}}
	r.object.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, r.object); err != nil {
		return root{}, classified(err)
	}
	if r.object.GetUID() != t.UID {
		return root{}, ErrGone
	}
	kind, known := kinds.Of(t.GroupKind())
	if !known {
		kind, err = s.unknown(ctx, mapping)
	}
	r.kind = kind
	return r, classified(err)
}

// mapping is the resource of the target's kind, in its version or in the one
// that the cluster prefers.
func (s *Stopper) mapping(t Target) (*meta.RESTMapping, error) {
	mapping, err := s.Client.RESTMapper().RESTMapping(t.GroupKind(), t.Version)
	if meta.IsNoMatchError(err) {
		return s.Client.RESTMapper().RESTMapping(t.GroupKind())
	}
	return mapping, err
}
