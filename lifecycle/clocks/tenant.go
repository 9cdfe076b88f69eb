// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// tenant is whose a namespace is.
type tenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
	zone       *time.Location
}

// tenant is whose a namespace is; nil where it is nobody's.
func (r *Reconciler) tenant(ctx context.Context, namespace string) (*tenant, error) {
	project, department, err := inventory.Owner(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	return &tenant{project: project, department: department, zone: r.zones.of(department.Spec.Notices.TimeZone)}, nil
}

// spared tells whether the project is exempt or held on that day, and so none of
// its workloads is ended.
func (t *tenant) spared(now time.Time) bool {
	return holds(t.project.Spec.Exempt, now, t.zone) || holds(t.project.Spec.Hold, now, t.zone)
}

// sparedUntil is when that may end; zero for never.
func (t *tenant) sparedUntil(now time.Time) (until time.Time) {
	for _, exception := range []*v1alpha1.Exception{t.project.Spec.Exempt, t.project.Spec.Hold} {
		if !holds(exception, now, t.zone) || exception.Until == nil {
			continue
		}
		if end := exception.Until.End(t.zone); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

func holds(exception *v1alpha1.Exception, now time.Time, zone *time.Location) bool {
	return exception != nil && (exception.Until == nil || now.Before(exception.Until.End(zone)))
}
