// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/lifecycle/rendering/apply"
)

func TestRequeueOnConflict(t *testing.T) {
	resource := schema.GroupResource{Resource: "projects"}
	other := errors.New("disk full")
	tests := map[string]struct {
		err   error
		again bool
		fails bool
	}{
		"in order":           {},
		"a conflict":         {err: fmt.Errorf("writing: %w", apierrors.NewConflict(resource, "p", other)), again: true},
		"created by another": {err: fmt.Errorf("making: %w", apierrors.NewAlreadyExists(resource, "p")), again: true},
		"any other failure":  {err: other, fails: true},
		"forbidden is loud":  {err: apierrors.NewForbidden(resource, "p", other), fails: true},
		"not found, as well": {err: apierrors.NewNotFound(resource, "p"), fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := apply.RequeueOnConflict(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, tc.err
			}))
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			if (err != nil) != tc.fails || (result.RequeueAfter > 0) != tc.again {
				t.Errorf("= %+v, %v", result, err)
			}
		})
	}
}
