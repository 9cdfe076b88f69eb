// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workloadkind"
)

// Stopper stops root workloads, and lets them be started again. It may be used
// from several goroutines.
type Stopper struct {
	// Client reads unstructured objects from the API server, not from a cache: a
	// cache would watch every kind that was ever stopped, and what is stopped
	// must be the object as it is now.
	Client client.Client
	// DeleteUnknownKinds allows the deletion of a root of a kind that is not known and
	// has neither spec.suspend nor a scale subresource, with foreground
	// propagation. Default false: such a kind is ErrUnsupported.
	DeleteUnknownKinds bool
}

// maxWriteAttempts are how often a write is tried while others write the object, too. The
// last one asks for the same object and not for the same version of it: who
// writes without pause would never be stopped.
const maxWriteAttempts = 4

// root is a target as it was read.
type root struct {
	Target
	kind   workloadkind.Kind
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
	return t.wrapError("stopping", s.retryOnConflict(ctx, t, func(r root) error {
		switch {
		case r.isPod():
			return s.deletePod(ctx, r, why)
		case r.kind.StopAction.Method == workloadkind.StopByDeletion:
			return s.deleteRoot(ctx, r)
		}
		// What Kueue does not let go is suspended all the same.
		queued := s.deactivateQueued(ctx, r, until)
		return errors.Join(queued, s.patchStop(ctx, r, workloadkind.FormatStoppedUntil(until)), s.deleteRemainingPods(ctx, r))
	}))
}

// Release takes the mark off, so that the owner may start the workload again. It
// starts nothing.
func (s *Stopper) Release(ctx context.Context, t Target) error {
	return t.wrapError("releasing", s.retryOnConflict(ctx, t, func(r root) error {
		if r.kind.StopAction.Method == workloadkind.StopByDeletion {
			return nil
		}
		if err := s.releaseQueued(ctx, r); err != nil {
			return err
		}
		return s.removeStopAnnotation(ctx, r)
	}))
}

// ObserveState is what the workload says of itself now. That it is gone is no error.
func (s *Stopper) ObserveState(ctx context.Context, t Target) (State, error) {
	r, err := s.getRoot(ctx, t)
	err = t.wrapError("reading", err)
	switch {
	case errors.Is(err, ErrGone):
		return StateGone, nil
	case err != nil:
		return "", err
	case r.kind.IsFinished(r.object):
		return StateStopped, nil
	case r.kind.RequestsPods(r.object):
		return StateRunning, nil
	case r.kind.HasActivePods(r.object) || r.kind.StopAction.Method == workloadkind.StopByDeletion:
		return StateStopping, nil
	}
	return StateStopped, nil
}

// retryOnConflict does something with the object as it is now, again where it changed
// between the reading and the writing.
func (s *Stopper) retryOnConflict(ctx context.Context, t Target, do func(root) error) error {
	var err error
	for try := range maxWriteAttempts {
		var r root
		if r, err = s.getRoot(ctx, t); err == nil {
			r.anyVersion = try == maxWriteAttempts-1
			err = classifyError(do(r))
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			break
		}
	}
	if apierrors.IsInvalid(err) {
		// So the API server says, too, that another object has the name by now.
		if _, again := s.getRoot(ctx, t); errors.Is(again, ErrGone) {
			return again
		}
	}
	return err
}

// getRoot finds the row of the target's kind, and the object itself.
func (s *Stopper) getRoot(ctx context.Context, t Target) (root, error) {
	if !workloadkind.IsStoppable(t.GroupKind()) {
		return root{}, unsupportedKindError(t)
	}
	mapping, err := s.restMapping(t)
	if err != nil {
		return root{}, classifyError(err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return root{}, unsupportedKindError(t)
	}
	r := root{Target: t, object: &unstructured.Unstructured{}}
	r.object.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, r.object); err != nil {
		return root{}, classifyError(err)
	}
	if r.object.GetUID() != t.UID {
		return root{}, ErrGone
	}
	kind, known := workloadkind.Lookup(t.GroupKind())
	if !known {
		kind, err = s.resolveUnknownKind(ctx, mapping)
	}
	r.kind = kind
	return r, classifyError(err)
}

// restMapping is the resource of the target's kind, in its version or in the one
// that the cluster prefers.
func (s *Stopper) restMapping(t Target) (*meta.RESTMapping, error) {
	mapping, err := s.Client.RESTMapper().RESTMapping(t.GroupKind(), t.Version)
	if meta.IsNoMatchError(err) {
		return s.Client.RESTMapper().RESTMapping(t.GroupKind())
	}
	return mapping, err
}

// Target is the root workload that is meant. The version is the one it was seen
// in; where the cluster does not serve that any more, another one is used.
type Target struct {
	schema.GroupVersionKind
	Namespace, Name string
	// UID tells it from another that was made under its name. It is required.
	UID types.UID
}

func (t Target) String() string {
	return fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name)
}

// State is what a root workload says of itself.
type State string

// The states.
const (
	// StateRunning: it asks to run.
	StateRunning State = "Running"
	// StateStopping: it does not ask to run, and says that it still has pods, or is
	// being deleted. Other kinds that do not count their pods are never Stopping.
	StateStopping State = "Stopping"
	// StateStopped: it does not ask to run, or has ended by itself. Whether pods are
	// left the pods tell.
	StateStopped State = "Stopped"
	// StateGone: there is no such object, or another one has its name.
	StateGone State = "Gone"
)

// What may keep a workload from being stopped. The errors of a [Stopper] wrap
// one of these, and the API server's own where there is one; others are for
// another try.
var (
	// ErrGone: there is no such object any more, or another one has its name.
	ErrGone = errors.New("is gone")
	// ErrForbidden: lifecycle lacks the right, or somebody's admission refuses.
	ErrForbidden = errors.New("may not be stopped by lifecycle")
	// ErrConflict: somebody else writes the object all the time. Try again.
	ErrConflict = errors.New("was changed meanwhile")
	// ErrUnsupported: nothing is known that stops its kind.
	ErrUnsupported = errors.New("cannot be stopped")
)

// classifyError is an error of the API server about a target; what is classified
// already stays as it is.
func classifyError(err error) error {
	for _, class := range []error{ErrGone, ErrForbidden, ErrConflict, ErrUnsupported} {
		if errors.Is(err, class) {
			return err
		}
	}
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// wrapError is the error as a caller gets it.
func (t Target) wrapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, t, classifyError(err))
}
