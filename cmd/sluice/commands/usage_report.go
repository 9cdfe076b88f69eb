// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func newReportCommand() *cobra.Command {
	var month, department, project, by string
	var efficiency bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report the GPU-hours of a month",
		Long: `Report the GPU-hours of a month by project, user and workload type, or by one of
project, user, type and node pool. The table rounds to tenths of an hour; CSV, JSON and
YAML are exact. With --efficiency it also shows in how many of these hours the GPUs were
used and idle, as far as it was measured; the efficiency is the used part of both. In CSV, names are escaped for spreadsheets. Usage records are for
administrators of the cluster.`,
		Example: `  # Report the GPU-hours of a month
  sluice report --month 2026-10

  # Report the users of a department in this month
  sluice report --department h2-students --by user

  # Report how much of the requested GPU-hours each user used
  sluice report --by user --efficiency

  # Report a month as CSV
  sluice report --month 2026-10 -o csv`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addListOutputFlag(cmd, csvFormat)
	cmd.Flags().StringVar(&month, "month", "", "Month as YYYY-MM (default: the current month of policy time)")
	cmd.Flags().StringVar(&department, "department", "", "Report this department only")
	cmd.Flags().StringVarP(&project, "project", "p", "", "Report this project only")
	completeFlag(cmd, "project", cluster.completeProjects)
	cmd.Flags().BoolVar(&efficiency, "efficiency", false, "Also report the used and the idle GPU-hours")
	addChoiceFlag(cmd, &by, "by", "", "Group the rows by this field (default: by project, user and type)",
		[]string{string(groupByProject), string(groupByUser), string(groupByType), string(groupByPool)})
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if month != "" {
			if month, err = parseMonth(month); err != nil {
				return fmt.Errorf("--month: %w", err)
			}
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		if month == "" {
			month = formatMonth(c.clock.Now(), time.Local)
		}
		records, err := listUsageRecords(cmd.Context(), c, month, department, project)
		if err != nil {
			return err
		}
		report, err := newUsageReport(month, usageGrouping(by), records)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), report, func(out io.Writer) error {
			columns := requestedColumns
			if efficiency {
				columns = efficiencyColumns
			}
			if output.format == csvFormat {
				return writeUsageCSV(out, report, columns)
			}
			return writeUsageTable(out, report, columns)
		})
	}
	return cmd
}

// usageGrouping selects the rows of a report.
type usageGrouping string

const (
	// groupByAll has a row for each project, user and type.
	groupByAll     usageGrouping = ""
	groupByProject usageGrouping = "project"
	groupByUser    usageGrouping = "user"
	groupByType    usageGrouping = "type"
	groupByPool    usageGrouping = "pool"
)

// usageRow is the sum of one group. Fields that do not define the group are empty.
type usageRow struct {
	Department string                `json:"department,omitempty"`
	Project    string                `json:"project,omitempty"`
	User       string                `json:"user,omitempty"`
	Type       v1alpha1.WorkloadType `json:"type,omitempty"`
	NodePool   string                `json:"nodePool,omitempty"`
	usageSums
}

// usageSums are exact sums in thousandths of a GPU times seconds.
type usageSums struct {
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
	// Used and Idle are the parts in which the GPUs were used and were not. The rest was not measured.
	Used int64 `json:"usedGPUMilliSeconds"`
	Idle int64 `json:"idleGPUMilliSeconds"`
}

// add adds the amounts of an entry. It fails if they are negative or inconsistent, or the sum overflows.
func (s *usageSums) add(entry *v1alpha1.UsageEntry) error {
	requested, used, idle := entry.GPUMilliSeconds, entry.UsedGPUMilliSeconds, entry.IdleGPUMilliSeconds
	if requested < 0 || s.GPUMilliSeconds > math.MaxInt64-requested {
		return fmt.Errorf("%d GPU-milli-seconds are out of range", requested)
	}
	if used < 0 || idle < 0 || idle > requested || used > requested-idle {
		return fmt.Errorf("%d used and %d idle GPU-milli-seconds are out of range: want parts of %d", used, idle, requested)
	}
	s.GPUMilliSeconds, s.Used, s.Idle = s.GPUMilliSeconds+requested, s.Used+used, s.Idle+idle
	return nil
}

// efficiency returns the used part of the measured hours in percent, rounded half up. It returns false if
// nothing was measured.
func (s usageSums) efficiency() (int64, bool) {
	measured := s.Used + s.Idle
	if measured <= 0 {
		return 0, false
	}
	return int64(math.Floor(100*float64(s.Used)/float64(measured) + 0.5)), true
}

// usageReport is the GPU use of a month.
type usageReport struct {
	// Month is YYYY-MM, in the time zone of each department.
	Month   string        `json:"month"`
	GroupBy usageGrouping `json:"groupBy,omitempty"`
	// Rows are in alphabetical order; never null.
	Rows []usageRow `json:"rows"`
	// usageSums are the sums of all rows.
	usageSums
}

// newUsageReport sums the entries of records. It fails if a record is negative or
// the sum overflows.
func newUsageReport(month string, by usageGrouping, records []v1alpha1.UsageRecord) (usageReport, error) {
	report := usageReport{Month: month, GroupBy: by, Rows: []usageRow{}}
	sums := map[usageRow]*usageSums{}
	for i := range records {
		entries := records[i].Status.Entries
		for j := range entries {
			if err := report.add(&entries[j]); err != nil {
				return report, fmt.Errorf("usage record %s: user %q: %w", records[i].Name, entries[j].User, err)
			}
			key := by.rowKey(&records[i], entries[j])
			if sums[key] == nil {
				sums[key] = &usageSums{}
			}
			_ = sums[key].add(&entries[j]) // No row overflows if the total does not.
		}
	}
	for row, sum := range sums {
		row.usageSums = *sum
		report.Rows = append(report.Rows, row)
	}
	slices.SortFunc(report.Rows, func(a, b usageRow) int {
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

// rowKey returns the row of an entry without a sum.
func (by usageGrouping) rowKey(record *v1alpha1.UsageRecord, entry v1alpha1.UsageEntry) usageRow {
	switch by {
	case groupByProject:
		return usageRow{Department: record.Status.Department, Project: record.Spec.Project}
	case groupByUser:
		return usageRow{User: entry.User}
	case groupByType:
		return usageRow{Type: entry.WorkloadType}
	case groupByPool:
		return usageRow{NodePool: entry.NodePool}
	default:
		return usageRow{Department: record.Status.Department, Project: record.Spec.Project, User: entry.User, Type: entry.WorkloadType}
	}
}

// listUsageRecords returns the records of a month. A department or project that is
// not empty limits the result.
func listUsageRecords(ctx context.Context, c client.Reader, month, department, project string) ([]v1alpha1.UsageRecord, error) {
	var records []v1alpha1.UsageRecord
	add := func(record *v1alpha1.UsageRecord) {
		if record.Spec.Month == month && (department == "" || record.Status.Department == department) {
			records = append(records, *record)
		}
	}
	const hint = "usage records are for administrators of the cluster"
	if project != "" {
		var record v1alpha1.UsageRecord
		err := c.Get(ctx, types.NamespacedName{Name: project + "-" + month}, &record)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("get usage record: %w", explainForbidden(err, hint))
		}
		add(&record)
		return records, nil
	}
	err := listPages(ctx, c, func(page *v1alpha1.UsageRecordList) {
		for i := range page.Items {
			add(&page.Items[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list usage records: %w", explainForbidden(err, hint))
	}
	return records, nil
}

// monthLayout is the format of a month in a UsageRecord.
const monthLayout = "2006-01"

func parseMonth(text string) (string, error) {
	at, err := time.Parse(monthLayout, text)
	if err != nil || at.Format(monthLayout) != text {
		return "", fmt.Errorf("%q: want a month as YYYY-MM, such as 2026-10", text)
	}
	return text, nil
}

func formatMonth(at time.Time, zone *time.Location) string { return at.In(zone).Format(monthLayout) }
