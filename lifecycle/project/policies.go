// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/engine"
)

// Changes tells listeners of every change of the policies in force, after it.
type Changes interface {
	OnReports(listener func([]engine.Report))
}

// otherPolicies looks at every project again when other policies are in force,
// since they may render something else.
func (r *Reconciler) otherPolicies() source.Source {
	// One change that waits is enough: whoever takes it sees all of them.
	changed := make(chan event.GenericEvent, 1)
	r.Changes.OnReports(func([]engine.Report) {
		select {
		case changed <- event.GenericEvent{Object: &v1alpha1.Policy{}}:
		default:
		}
	})
	return source.Channel(changed, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects); err != nil {
			log.FromContext(ctx).Error(err, "listing projects")
			return nil
		}
		return inventory.Requests(&projects)
	}))
}
