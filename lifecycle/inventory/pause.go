// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sluice.dev/api/v1alpha1"
)

// PausedUntil returns the end of the present or the last pause of Sluice at a policy time, and the
// zero time if there was none. The pause is in force while that end is ahead.
func PausedUntil(ctx context.Context, reader client.Reader, now time.Time) (time.Time, error) {
	var parameters v1alpha1.AdmissionParameters
	err := reader.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if client.IgnoreNotFound(err) != nil {
		return time.Time{}, fmt.Errorf("read the pause: %w", err)
	}
	return parameters.Status.Pause.HeldUntil(now), nil
}

// PauseChanged passes AdmissionParameters whose pause begins or changes.
var PauseChanged = builder.WithPredicates(predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && pauseOf(e.Object) != v1alpha1.Pause{} },
	UpdateFunc: func(e event.UpdateEvent) bool { return pauseOf(e.ObjectOld) != pauseOf(e.ObjectNew) },
	DeleteFunc: func(e event.DeleteEvent) bool { return pauseOf(e.Object) != v1alpha1.Pause{} },
})

func pauseOf(object client.Object) v1alpha1.Pause {
	parameters, ok := object.(*v1alpha1.AdmissionParameters)
	if !ok || parameters.Status.Pause == nil {
		return v1alpha1.Pause{}
	}
	return *parameters.Status.Pause
}
