// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// pendingDeletionDocument is the JSON output of projects --pending-deletion.
type pendingDeletionDocument struct {
	// Now is the policy time of the rows.
	Now time.Time `json:"now"`
	// Projects are never null.
	Projects []pendingDeletionRow `json:"projects"`
}

// pendingDeletionRow is a project whose deletion awaits its approval, was approved, or has begun.
type pendingDeletionRow struct {
	Name       string                `json:"name"`
	Department string                `json:"department"`
	Namespace  string                `json:"namespace"`
	Phase      v1alpha1.ProjectPhase `json:"phase"`
	// Since is when the project came into its phase, ExpiresAt the end of its validity.
	Since     *time.Time `json:"since,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Suspended reports whether the project accepts no work with GPUs.
	Suspended bool `json:"suspended"`
	// expired reports whether it expired. One that its owners did not confirm is closed when its deletion begins.
	expired bool
	Owners  []v1alpha1.Owner `json:"owners"`
	// Guaranteed and Allocated are GPUs: those that others cannot be guaranteed, and those in use.
	Guaranteed resource.Quantity `json:"guaranteedGPUs"`
	Allocated  resource.Quantity `json:"allocatedGPUs"`
	// VolumeClaims is the number of claims in the namespace, which stays because of them; nil if the user may not list them.
	VolumeClaims *int `json:"volumeClaims,omitempty"`
	// Request is the Extension with which an administrator decides.
	Request string `json:"request,omitempty"`
	// ApprovedBy approved the deletion, with Message. It begins at DeletedFrom.
	ApprovedBy  string     `json:"approvedBy,omitempty"`
	Message     string     `json:"message,omitempty"`
	DeletedFrom *time.Time `json:"deletedFrom,omitempty"`
}

// newPendingDeletionRows returns the rows of the projects whose deletion is requested, approved or has begun, the oldest
// request first.
func newPendingDeletionRows(projects []v1alpha1.Project) []pendingDeletionRow {
	rows := []pendingDeletionRow{}
	for i := range projects {
		spec, status := &projects[i].Spec, &projects[i].Status
		deleting := !projects[i].DeletionTimestamp.IsZero() || status.Phase == v1alpha1.ProjectDeleting
		if !deleting && status.Phase != v1alpha1.ProjectPendingDeletion {
			continue
		}
		row := pendingDeletionRow{
			Name: projects[i].Name, Department: spec.Department, Namespace: projects[i].NamespaceName(), Phase: status.Phase,
			Since: optionalTime(status.PhaseSince), ExpiresAt: optionalTime(status.ExpiresAt), Suspended: status.ClosedAt != nil,
			Owners: spec.Owners, Guaranteed: status.GPU.Guaranteed, Allocated: status.GPU.Allocated, Request: status.DeletionRequest,
		}
		if deleting {
			row.Phase = v1alpha1.ProjectDeleting
		}
		row.expired = row.Suspended && (!deleting || !status.ClosedAt.Equal(status.PhaseSince))
		if status.Expiry != nil && status.Expiry.Deletion != nil {
			row.ApprovedBy, row.Message = status.Expiry.Deletion.ApprovedBy, status.Expiry.Deletion.Message
		}
		if next := status.Next; next != nil && next.Phase == v1alpha1.ProjectDeleting {
			row.DeletedFrom = optionalTime(&next.At)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b pendingDeletionRow) int {
		return cmp.Or(compareOptionalTimes(a.Since, b.Since), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// countVolumeClaims sets the number of claims of each project whose claims the user may list.
func countVolumeClaims(ctx context.Context, c client.Reader, rows []pendingDeletionRow) error {
	for i := range rows {
		claims := 0
		err := listPages(ctx, c, func(page *corev1.PersistentVolumeClaimList) { claims += len(page.Items) }, client.InNamespace(rows[i].Namespace))
		switch {
		case err == nil:
			rows[i].VolumeClaims = &claims
		case !apierrors.IsForbidden(err):
			return fmt.Errorf("list volume claims in namespace %s: %w", rows[i].Namespace, err)
		}
	}
	return nil
}

// pendingDeletionTable returns the table of rows, with times in zone.
func pendingDeletionTable(rows []pendingDeletionRow, zone *time.Location) printer.Table {
	table := printer.Table{Columns: printer.Columns("NAME", "DEPARTMENT", "SINCE", "WHY", "GPUS", "CLAIMS", "OWNER", "DELETION")}
	for _, name := range []string{"ALLOCATED", "REQUEST", "MESSAGE", "NAMESPACE"} {
		table.Columns = append(table.Columns, printer.Column{Name: name, Wide: true})
	}
	for _, r := range rows {
		claims := ""
		if r.VolumeClaims != nil {
			claims = strconv.Itoa(*r.VolumeClaims)
		}
		table.Rows = append(table.Rows, []string{
			r.Name, r.Department, formatOptionalMinute(r.Since, zone), r.describeReason(zone), r.Guaranteed.String(), claims,
			describeOwners(r.Owners), r.describeDeletion(zone), r.Allocated.String(), r.Request, r.Message, r.Namespace,
		})
	}
	return table
}

// describeReason says why the deletion is requested.
func (r *pendingDeletionRow) describeReason(zone *time.Location) string {
	switch {
	case r.Phase == v1alpha1.ProjectDeleting && r.ApprovedBy == "":
		return "deleted by hand"
	case !r.expired:
		return "not confirmed"
	}
	return "expired " + formatOptionalEnd(r.ExpiresAt, zone)
}

// describeDeletion says whether the deletion was approved, by whom, and when it begins.
func (r *pendingDeletionRow) describeDeletion(zone *time.Location) string {
	by := ""
	if r.ApprovedBy != "" {
		by = ", approved by " + r.ApprovedBy
	}
	switch {
	case r.Phase == v1alpha1.ProjectDeleting:
		return "in progress" + by
	case r.DeletedFrom != nil:
		return formatOptionalMinute(r.DeletedFrom, zone) + by
	case by != "":
		return "when its owners were told" + by
	}
	return "awaits approval"
}
