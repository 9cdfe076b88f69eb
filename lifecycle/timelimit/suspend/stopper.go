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

// Stopper stops and releases root workloads. It is safe for concurrent use.
type Stopper struct {
	// Client reads unstructured objects from the API server. A cache would watch every kind
	// that was ever stopped, and a stop needs the current object.
	Client client.Client
	// DeleteUnknownKinds allows the deletion, with foreground propagation, of roots of an
	// unknown kind with neither spec.suspend nor a scale subresource. The default is false:
	// stopping such a kind returns ErrUnsupported.
	DeleteUnknownKinds bool
}

// maxWriteAttempts limits the attempts to write an object that others change. The last
// attempt ignores the resource version: an author who writes without pause could otherwise
// prevent the stop.
const maxWriteAttempts = 4

// root is a target as read from the API server.
type root struct {
	Target
	kind   workloadkind.Kind
	object *unstructured.Unstructured
	// anyVersion is true if the write does not depend on the resource version.
	anyVersion bool
}

// Stop stops the workload until a policy time; the zero time means without end. The action
// and the annotation sluice.dev/stopped-until are one write on the object that was read. An
// object that replaced it is not changed. The message says why; it is written on a bare pod.
// Stopping a stopped workload writes nothing. Stopping again helps a StatefulSet that waits
// for a pod that never becomes ready or never terminates.
func (s *Stopper) Stop(ctx context.Context, t Target, until time.Time, message string) error {
	return t.wrapError("stop", s.retryOnConflict(ctx, t, func(r root) error {
		switch {
		case r.isPod():
			return s.deletePod(ctx, r, message)
		case r.kind.StopAction.Method == workloadkind.StopByDeletion:
			return s.deleteRoot(ctx, r)
		}
		// The root is suspended even if its Kueue Workload cannot be deactivated.
		queued := s.deactivateQueued(ctx, r, until)
		return errors.Join(queued, s.patchStop(ctx, r, workloadkind.FormatStoppedUntil(until)), s.deleteRemainingPods(ctx, r))
	}))
}

// Release removes the annotation, so that the owner may start the workload again. It does
// not start it.
func (s *Stopper) Release(ctx context.Context, t Target) error {
	return t.wrapError("release", s.retryOnConflict(ctx, t, func(r root) error {
		if r.kind.StopAction.Method == workloadkind.StopByDeletion {
			return nil
		}
		if err := s.releaseQueued(ctx, r); err != nil {
			return err
		}
		return s.removeStopAnnotation(ctx, r)
	}))
}

// retryOnConflict reads the object and calls write, again if the object changed in between.
func (s *Stopper) retryOnConflict(ctx context.Context, t Target, write func(root) error) error {
	var err error
	for attempt := range maxWriteAttempts {
		var r root
		if r, err = s.getRoot(ctx, t); err == nil {
			r.anyVersion = attempt == maxWriteAttempts-1
			err = classifyError(write(r))
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			break
		}
	}
	if apierrors.IsInvalid(err) {
		// The API server also returns Invalid if another object has the name now.
		if _, gone := s.getRoot(ctx, t); errors.Is(gone, ErrGone) {
			return gone
		}
	}
	return err
}

// getRoot reads the object and looks up its kind.
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
	r.kind = kind.ForObject(r.object)
	return r, classifyError(err)
}

// restMapping returns the resource of the target's kind, in its version or in the one that
// the cluster prefers.
func (s *Stopper) restMapping(t Target) (*meta.RESTMapping, error) {
	mapping, err := s.Client.RESTMapper().RESTMapping(t.GroupKind(), t.Version)
	if meta.IsNoMatchError(err) {
		return s.Client.RESTMapper().RESTMapping(t.GroupKind())
	}
	return mapping, err
}

// Target identifies a root workload. If the cluster does not serve the version any more, the
// Stopper uses another one.
type Target struct {
	schema.GroupVersionKind
	Namespace, Name string
	// UID is required. It excludes another object with the same name.
	UID types.UID
}

func (t Target) String() string {
	return fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name)
}

// The errors of a [Stopper] wrap one of these if another attempt alone does not help, and
// the error of the API server.
var (
	// ErrGone: the object does not exist, or another one has its name.
	ErrGone = errors.New("is gone")
	// ErrForbidden: lifecycle lacks a permission, or an admission webhook refuses the stop.
	ErrForbidden = errors.New("must not be stopped by lifecycle")
	// ErrConflict: the object changed during every attempt. Try again later.
	ErrConflict = errors.New("was changed meanwhile")
	// ErrUnsupported: Sluice knows no way to stop the kind.
	ErrUnsupported = errors.New("cannot be stopped")
)

// classifyError wraps an error of the API server in one of these. It returns a classified
// error unchanged.
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

// wrapError classifies an error and adds the operation and the target.
func (t Target) wrapError(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, t, classifyError(err))
}
