// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status applies one controller's fields of an object's status under the controller's
// own field manager. Both configurations have all fields of that controller and no
// others: cached as the cache has them, desired as they are to be. A field that desired
// lacks is removed. Status sends nothing if the two are equal, and returns nil if the
// object is gone.
//
// No resource version is sent, so that writers of other fields cause no conflict; a pass
// that read a deleted object may write to its successor, whose own pass follows. After
// the last element of a list or map is removed the API server keeps null, which the
// schema has to allow (+nullable).
func Status(ctx context.Context, c client.Client, manager string, cached, desired runtime.ApplyConfiguration) error {
	if equality.Semantic.DeepEqual(cached, desired) {
		return nil
	}
	return client.IgnoreNotFound(c.Status().Apply(ctx, desired, client.FieldOwner(manager), client.ForceOwnership))
}

// Conditions returns the conditions of these types in the form in which they are applied.
func Conditions(all []metav1.Condition, types ...string) []*metav1ac.ConditionApplyConfiguration {
	var applied []*metav1ac.ConditionApplyConfiguration
	for i := range all {
		c := &all[i]
		if slices.Contains(types, c.Type) {
			applied = append(applied, metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
				WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
		}
	}
	return applied
}
