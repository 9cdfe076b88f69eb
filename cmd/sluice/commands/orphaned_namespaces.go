// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// orphanedNamespaceRow is a namespace that stayed when its project was deleted.
type orphanedNamespaceRow struct {
	Namespace string `json:"namespace"`
	// Project and Department are the names of the former project and its department.
	Project    string     `json:"project,omitempty"`
	Department string     `json:"department,omitempty"`
	DeletedAt  *time.Time `json:"deletedAt,omitempty"`
	// ApprovedBy approved the deletion; empty for a project that was deleted by hand.
	ApprovedBy string `json:"approvedBy,omitempty"`
	// Cause is why the namespace stays: VolumeClaims, NamespaceAdopted or NamespaceUnmarked.
	Cause string `json:"cause,omitempty"`
	// VolumeClaims is the number of volume claims when the project was deleted.
	VolumeClaims int `json:"volumeClaims"`
	// Invalid says why the record of the namespace cannot be read.
	Invalid string `json:"invalid,omitempty"`
}

// listOrphanedNamespaces returns the namespaces that stayed when their projects were deleted, those of the longest deleted
// project first. A department that is not empty selects them.
func listOrphanedNamespaces(ctx context.Context, c client.Reader, department string) ([]orphanedNamespaceRow, error) {
	rows := []orphanedNamespaceRow{}
	err := listPages(ctx, c, func(page *corev1.NamespaceList) {
		for i := range page.Items {
			record, orphaned := page.Items[i].Annotations[v1alpha1.AnnotationFormerProject]
			if !orphaned {
				continue
			}
			if row := newOrphanedNamespaceRow(page.Items[i].Name, record); department == "" || row.Department == department {
				rows = append(rows, row)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", explainForbidden(err, "--orphaned is for administrators of the cluster"))
	}
	slices.SortFunc(rows, func(a, b orphanedNamespaceRow) int {
		return cmp.Or(compareOptionalTimes(a.DeletedAt, b.DeletedAt), cmp.Compare(a.Namespace, b.Namespace))
	})
	return rows, nil
}

// newOrphanedNamespaceRow reads the record on a namespace. Its administrators can edit it.
func newOrphanedNamespaceRow(namespace, record string) (row orphanedNamespaceRow) {
	if err := json.Unmarshal([]byte(record), &row); err != nil {
		row = orphanedNamespaceRow{Invalid: err.Error()}
	}
	row.Namespace = namespace
	return row
}

// compareOptionalTimes compares times, of which an unknown one is first.
func compareOptionalTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(*b)
}

// orphanedNamespaceTable returns the table of rows, with times in zone.
func orphanedNamespaceTable(rows []orphanedNamespaceRow, zone *time.Location) printer.Table {
	table := printer.Table{Columns: printer.Columns("NAMESPACE", "PROJECT", "DEPARTMENT", "DELETED", "APPROVED BY", "CLAIMS", "WHY IT STAYS")}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{
			r.Namespace, r.Project, r.Department, formatOptionalMinute(r.DeletedAt, zone), r.ApprovedBy,
			strconv.Itoa(r.VolumeClaims), r.describeCause(),
		})
	}
	return table
}

// describeCause says why the namespace stays.
func (r *orphanedNamespaceRow) describeCause() string {
	switch {
	case r.Invalid != "":
		return fmt.Sprintf("unknown: the annotation %s is invalid: %s", v1alpha1.AnnotationFormerProject, r.Invalid)
	case r.Cause == "VolumeClaims":
		return "it has volume claims"
	case r.Cause == "NamespaceAdopted":
		return "it existed before the project"
	case r.Cause == "NamespaceUnmarked":
		return "it does not show that Sluice created it"
	}
	return r.Cause
}
