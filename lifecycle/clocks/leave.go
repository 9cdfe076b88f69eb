// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// leave has the time of a workload stand still whose namespace is nobody's any
// more: its project was deleted, or has another. It runs on, and nobody ends it; a
// clock that said otherwise would never be taken away, and be counted by the brake.
func (r *Reconciler) leave(ctx context.Context, w *workload) error {
	s := &w.clock.Status
	if s.RunningSince == nil && s.Deadline == nil {
		return nil
	}
	terms := ending.Terms{Limits: v1alpha1.LimitsOf(s.WorkloadType, nil, nil), Leads: defaultLeads}
	if s.Limit != nil {
		terms.MaxRuntime = s.Limit.Configured
	}
	next := w.clock.DeepCopy()
	next.Status = ending.Decide(w.now, *s, ending.Seen{}, terms).Status
	next.Status.Local = local(&next.Status, time.UTC)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s of a namespace without project: %w", next.Namespace, next.Name, err)
	}
	return nil
}
