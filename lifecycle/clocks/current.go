// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// current makes sure, before anybody is told anything, that the clock is the one
// that was written last. The cache may lag behind, and what follows from an older
// clock may be another limit, and so another message, or the mark of an older stop.
// The error is a conflict where it is not.
func (r *Reconciler) current(ctx context.Context, w *workload, d ending.Decision) error {
	if len(d.Warnings) == 0 && !d.Stopped && !d.Released {
		return nil
	}
	var now v1alpha1.WorkloadClock
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(w.clock), &now); err != nil {
		return fmt.Errorf("reading clock %s/%s: %w", w.clock.Namespace, w.clock.Name, err)
	}
	if now.UID != w.clock.UID || now.ResourceVersion != w.clock.ResourceVersion {
		resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workloadclocks"}
		return apierrors.NewConflict(resource, w.clock.Name, fmt.Errorf("the cache has version %s, and it is %s", w.clock.ResourceVersion, now.ResourceVersion))
	}
	return nil
}
