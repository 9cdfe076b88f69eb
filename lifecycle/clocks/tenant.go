// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// tenant is whose a namespace is.
type tenant struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
	zone       *time.Location
}

// tenant is whose a namespace is; nil where it is nobody's. The namespace says it,
// and the project's status that it has it: nothing that a workload's author writes.
func (r *Reconciler) tenant(ctx context.Context, namespace string) (*tenant, error) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNamespace: namespace}); err != nil {
		return nil, fmt.Errorf("looking for the project of namespace %s: %w", namespace, err)
	}
	for i := range projects.Items {
		project := &projects.Items[i]
		if has := project.Status.Namespace; has == nil || has.Name != namespace {
			continue
		}
		department := &v1alpha1.Department{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, department); err != nil {
			return nil, fmt.Errorf("reading department %s of project %s: %w", project.Spec.Department, project.Name, err)
		}
		zone, err := time.LoadLocation(department.Spec.Notices.TimeZone)
		if err != nil {
			zone = time.UTC // admission checks it; an older object may have another
		}
		return &tenant{project: project, department: department, zone: zone}, nil
	}
	return nil, nil
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
