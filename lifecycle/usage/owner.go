// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// owner is whose a namespace is.
type owner struct {
	project    string
	uid        types.UID
	department string
	zone       *time.Location
	// since is since when, in policy time.
	since time.Time
}

// is tells whether both are the same project.
func (o *owner) is(other *owner) bool { return other != nil && o.uid == other.uid }

// record is the name of the project's record of a month.
func (o *owner) record(m month) string { return o.project + "-" + m.String() }

// ownerOf is whose a namespace is; nil where it is nobody's.
func (r *Reconciler) ownerOf(ctx context.Context, namespace string) (*owner, error) {
	project, err := inventory.ProjectOf(ctx, r.Client, namespace)
	if project == nil || err != nil {
		return nil, err
	}
	zone, err := r.zoneOf(ctx, project.Spec.Department)
	if err != nil {
		return nil, err
	}
	return &owner{
		project: project.Name, uid: project.UID, department: project.Spec.Department, zone: zone,
		since: whole(r.Clock.FromReal(project.CreationTimestamp.Time)),
	}, nil
}

// zoneOf is the department's time zone; UTC where it has none.
func (r *Reconciler) zoneOf(ctx context.Context, name string) (*time.Location, error) {
	department := &v1alpha1.Department{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, department); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return time.UTC, nil
		}
		return nil, fmt.Errorf("reading department %s: %w", name, err)
	}
	zone, err := time.LoadLocation(department.Spec.Notices.TimeZone)
	if err != nil {
		return time.UTC, nil //nolint:nilerr // admission checks it; an older object may have another
	}
	return zone, nil
}
