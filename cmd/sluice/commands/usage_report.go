// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

func reportCommand() *cobra.Command {
	var options ClusterOptions
	var month, department, project, by, output string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report who used how many GPU-hours in a month",
		Long: `report adds up the GPU-hours of a month by project, user and type of workload, or
by one of project, user, type and node pool. The table rounds to tenths of an hour; CSV and
JSON are exact. In CSV, names are made harmless to spreadsheets; in JSON they are
as they are. Usage records are for administrators.`,
		Example: `  sluice report --month 2026-10
  sluice report --department h2-students --by user
  sluice report --month 2026-10 -o csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := ParseUsageGrouping(by)
			if err != nil {
				return err
			}
			if month != "" {
				if month, err = ParseMonth(month); err != nil {
					return err
				}
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			if month == "" {
				month = FormatMonth(c.Clock.Now(), time.Local)
			}
			records, err := ListUsageRecords(cmd.Context(), c, month, department, project)
			if err != nil {
				return err
			}
			report, err := NewUsageReport(month, rows, records)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				return printer.WriteJSON(cmd.OutOrStdout(), report)
			case "csv":
				return WriteUsageCSV(cmd.OutOrStdout(), report)
			default:
				return WriteUsageTable(cmd.OutOrStdout(), report)
			}
		},
	}
	addClusterFlags(cmd, &options)
	flags := cmd.Flags()
	flags.StringVar(&month, "month", "", "the `month`, YYYY-MM (default: the present one of policy time)")
	flags.StringVar(&department, "department", "", "of this `department` alone")
	flags.StringVar(&project, "project", "", "of this `project` alone")
	flags.StringVar(&by, "by", "", "a row for each project, user, type or pool (default: for each project, user and type)")
	addOutputFlag(cmd, &output, "table", "csv", "json")
	return cmd
}

// UsageGrouping says what a row of a report is.
type UsageGrouping string

// The rows that a report can have.
const (
	// GroupByAll is a row for each project, user and type: the default.
	GroupByAll UsageGrouping = ""
	// GroupByProject is a row for each project, as ByUser, ByType and ByPool are for
	// theirs, over all the projects that are reported on.
	GroupByProject UsageGrouping = "project"
	GroupByUser    UsageGrouping = "user"
	GroupByType    UsageGrouping = "type"
	GroupByPool    UsageGrouping = "pool"
)

// UsageRow is a sum. Fields that its report does not tell apart are empty.
type UsageRow struct {
	Department string                `json:"department,omitempty"`
	Project    string                `json:"project,omitempty"`
	User       string                `json:"user,omitempty"`
	Type       v1alpha1.WorkloadType `json:"type,omitempty"`
	NodePool   string                `json:"nodePool,omitempty"`
	// GPUMilliSeconds is the sum in thousandths of a GPU times seconds, exact.
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
}

// UsageReport is the use of a month.
type UsageReport struct {
	// Month is YYYY-MM, in each department's own time zone.
	Month string `json:"month"`
	// GroupBy says what a row is.
	GroupBy UsageGrouping `json:"by,omitempty"`
	// Rows are the sums, in alphabetical order; never null.
	Rows []UsageRow `json:"rows"`
	// GPUMilliSeconds is the sum of all rows.
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
}

// ParseUsageGrouping checks what a row shall be.
func ParseUsageGrouping(text string) (UsageGrouping, error) {
	by := UsageGrouping(text)
	if !slices.Contains([]UsageGrouping{GroupByAll, GroupByProject, GroupByUser, GroupByType, GroupByPool}, by) {
		return GroupByAll, fmt.Errorf("by %q: want project, user, type or pool, or nothing for each project, user and type", text)
	}
	return by, nil
}

// NewUsageReport adds the entries of records up. It fails where a sum is beyond what a
// number here holds, and so a record is wrong.
func NewUsageReport(month string, by UsageGrouping, records []v1alpha1.UsageRecord) (UsageReport, error) {
	report := UsageReport{Month: month, GroupBy: by, Rows: []UsageRow{}}
	sums := map[UsageRow]int64{}
	for i := range records {
		for _, entry := range records[i].Status.Entries {
			used := entry.GPUMilliSeconds
			// The total is the largest sum of all, so it alone is looked at.
			if used < 0 || report.GPUMilliSeconds > math.MaxInt64-used {
				return report, fmt.Errorf("usage record %s: user %q: %d GPU-milli-seconds cannot be right", records[i].Name, entry.User, used)
			}
			report.GPUMilliSeconds += used
			sums[by.rowKey(&records[i], entry)] += used
		}
	}
	for row, sum := range sums {
		row.GPUMilliSeconds = sum
		report.Rows = append(report.Rows, row)
	}
	slices.SortFunc(report.Rows, func(a, b UsageRow) int {
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

// rowKey is the row to which an entry belongs, its sum left out.
func (by UsageGrouping) rowKey(record *v1alpha1.UsageRecord, entry v1alpha1.UsageEntry) UsageRow {
	switch by {
	case GroupByProject:
		return UsageRow{Department: record.Status.Department, Project: record.Spec.Project}
	case GroupByUser:
		return UsageRow{User: entry.User}
	case GroupByType:
		return UsageRow{Type: entry.WorkloadType}
	case GroupByPool:
		return UsageRow{NodePool: entry.NodePool}
	default:
		return UsageRow{Department: record.Status.Department, Project: record.Spec.Project, User: entry.User, Type: entry.WorkloadType}
	}
}

// usagePageSize is how many records are asked for at once: most are of other months.
const usagePageSize = 500

// ListUsageRecords reads the records of a month, of all departments and projects or of those
// that are named.
func ListUsageRecords(ctx context.Context, c client.Reader, month, department, project string) ([]v1alpha1.UsageRecord, error) {
	var found []v1alpha1.UsageRecord
	add := func(record *v1alpha1.UsageRecord) {
		if record.Spec.Month == month && (department == "" || record.Status.Department == department) {
			found = append(found, *record)
		}
	}
	if project != "" {
		var record v1alpha1.UsageRecord
		err := c.Get(ctx, types.NamespacedName{Name: project + "-" + month}, &record)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, usageListError(err)
		}
		add(&record)
		return found, nil
	}
	list := v1alpha1.UsageRecordList{}
	for {
		if err := c.List(ctx, &list, client.Limit(usagePageSize), client.Continue(list.Continue)); err != nil {
			return nil, usageListError(err)
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
		if list.Continue == "" {
			return found, nil
		}
	}
}

func usageListError(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("reading usage records, which are for administrators: %w", err)
	}
	return fmt.Errorf("reading usage records: %w", err)
}

// monthLayout is how a month is written.
const monthLayout = "2006-01"

// ParseMonth checks a month, YYYY-MM, as a UsageRecord names it.
func ParseMonth(text string) (string, error) {
	at, err := time.Parse(monthLayout, text)
	if err != nil || at.Format(monthLayout) != text {
		return "", fmt.Errorf("month %q: want a month as YYYY-MM, such as 2026-10", text)
	}
	return text, nil
}

// FormatMonth is the month of an instant in zone.
func FormatMonth(at time.Time, zone *time.Location) string { return at.In(zone).Format(monthLayout) }
