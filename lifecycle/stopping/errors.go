// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// classified is an error of the API server about a target; what is classified
// already stays as it is.
func classified(err error) error {
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

// explained is the error as a caller gets it.
func (t Target) explained(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, t, classified(err))
}
