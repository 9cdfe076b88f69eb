// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"sluice.dev/api/v1alpha1"
)

// By says what a row of a report is.
type By string

// The rows that a report can have.
const (
	// ByAll is a row for each project, user and type: the default.
	ByAll By = ""
	// ByProject is a row for each project, as ByUser, ByType and ByPool are for
	// theirs, over all the projects that are reported on.
	ByProject By = "project"
	ByUser    By = "user"
	ByType    By = "type"
	ByPool    By = "pool"
)

// Row is a sum. Fields that its report does not tell apart are empty.
type Row struct {
	Department string                `json:"department,omitempty"`
	Project    string                `json:"project,omitempty"`
	User       string                `json:"user,omitempty"`
	Type       v1alpha1.WorkloadType `json:"type,omitempty"`
	NodePool   string                `json:"nodePool,omitempty"`
	// GPUMilliSeconds is the sum in thousandths of a GPU times seconds, exact.
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
}

// Report is the use of a month.
type Report struct {
	// Month is YYYY-MM, in each department's own time zone.
	Month string `json:"month"`
	// By says what a row is.
	By By `json:"by,omitempty"`
	// Rows are the sums, in alphabetical order; never null.
	Rows []Row `json:"rows"`
	// GPUMilliSeconds is the sum of all rows.
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
}

// ParseBy checks what a row shall be.
func ParseBy(text string) (By, error) {
	by := By(text)
	if !slices.Contains([]By{ByAll, ByProject, ByUser, ByType, ByPool}, by) {
		return ByAll, fmt.Errorf("by %q: want project, user, type or pool, or nothing for each project, user and type", text)
	}
	return by, nil
}

// Sum adds the entries of records up. It fails where a sum is beyond what a
// number here holds, and so a record is wrong.
func Sum(month string, by By, records []v1alpha1.UsageRecord) (Report, error) {
	report := Report{Month: month, By: by, Rows: []Row{}}
	sums := map[Row]int64{}
	for i := range records {
		for _, entry := range records[i].Status.Entries {
			used := entry.GPUMilliSeconds
			// The total is the largest sum of all, so it alone is looked at.
			if used < 0 || report.GPUMilliSeconds > math.MaxInt64-used {
				return report, fmt.Errorf("usage record %s: user %q: %d GPU-milli-seconds cannot be right", records[i].Name, entry.User, used)
			}
			report.GPUMilliSeconds += used
			sums[by.key(&records[i], entry)] += used
		}
	}
	for row, sum := range sums {
		row.GPUMilliSeconds = sum
		report.Rows = append(report.Rows, row)
	}
	slices.SortFunc(report.Rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(a.Department, b.Department),
			cmp.Compare(a.Project, b.Project),
			cmp.Compare(a.User, b.User),
			cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.NodePool, b.NodePool),
		)
	})
	return report, nil
}

// key is the row to which an entry belongs, its sum left out.
func (by By) key(record *v1alpha1.UsageRecord, entry v1alpha1.UsageEntry) Row {
	switch by {
	case ByProject:
		return Row{Department: record.Status.Department, Project: record.Spec.Project}
	case ByUser:
		return Row{User: entry.User}
	case ByType:
		return Row{Type: entry.WorkloadType}
	case ByPool:
		return Row{NodePool: entry.NodePool}
	default:
		return Row{Department: record.Status.Department, Project: record.Spec.Project, User: entry.User, Type: entry.WorkloadType}
	}
}
