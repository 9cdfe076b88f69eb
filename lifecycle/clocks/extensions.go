// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// granted are the approved extensions of the workload that were not carried out
// yet; they go into its terms.
func (r *Reconciler) granted(ctx context.Context, w *workload) ([]*v1alpha1.Extension, error) {
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(w.clock.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for extensions in %s: %w", w.clock.Namespace, err)
	}
	var granted []*v1alpha1.Extension
	for i := range all.Items {
		e := &all.Items[i]
		if !Extends(e, w.clock) || e.Status.Decision != v1alpha1.ExtensionApproved || meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionApplied) {
			continue
		}
		granted = append(granted, e)
		w.terms.Granted = append(w.terms.Granted, v1alpha1.ClockExtension{
			Name: e.Name, By: *e.Spec.By, SelfService: e.Status.DecidedBy == "",
		})
	}
	return granted, nil
}

// Extends tells whether an extension asks for more time for the clock's workload.
func Extends(e *v1alpha1.Extension, clock *v1alpha1.WorkloadClock) bool {
	target, root := e.Spec.Target, clock.Spec.Root
	return e.Spec.Action == v1alpha1.ActionExtend && e.Spec.By != nil &&
		target.Name == root.Name && target.Kind == root.Kind && groupOf(target.APIVersion) == groupOf(root.APIVersion)
}

func groupOf(apiVersion string) string { return schema.FromAPIVersionAndKind(apiVersion, "").Group }

// reasonExtended is the reason of the condition Applied.
const reasonExtended = "Extended"

// markApplied says on the extensions that they were carried out, once the clock
// has them.
func (r *Reconciler) markApplied(ctx context.Context, w *workload, d ending.Decision) error {
	for _, e := range w.extensions {
		has := slices.ContainsFunc(d.Status.Extensions, func(c v1alpha1.ClockExtension) bool { return c.Name == e.Name })
		if !has {
			continue
		}
		next := e.DeepCopy()
		message := "the workload has that much more time"
		if d.Status.Deadline != nil {
			next.Status.NewEnd = &d.Status.Deadline.At
			message = "the workload ends at " + d.Status.Deadline.At.In(w.zone).Format(localTime)
		}
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: reasonExtended, Message: message,
		})
		if err := r.Client.Status().Update(ctx, next); err != nil {
			return fmt.Errorf("marking extension %s/%s as applied: %w", e.Namespace, e.Name, err)
		}
	}
	return nil
}
