// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/cmd/sluice/usage"
)

func reportCommand() *cobra.Command {
	var options connect.Options
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
			rows, err := usage.ParseBy(by)
			if err != nil {
				return err
			}
			if month != "" {
				if month, err = usage.ParseMonth(month); err != nil {
					return err
				}
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			if month == "" {
				month = usage.MonthOf(c.Clock.Now(), time.Local)
			}
			records, err := usage.List(cmd.Context(), c, month, department, project)
			if err != nil {
				return err
			}
			report, err := usage.Sum(month, rows, records)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				return show.JSON(cmd.OutOrStdout(), report)
			case "csv":
				return usage.CSV(cmd.OutOrStdout(), report)
			default:
				return usage.Table(cmd.OutOrStdout(), report)
			}
		},
	}
	clusterFlags(cmd, &options)
	flags := cmd.Flags()
	flags.StringVar(&month, "month", "", "the `month`, YYYY-MM (default: the present one of policy time)")
	flags.StringVar(&department, "department", "", "of this `department` alone")
	flags.StringVar(&project, "project", "", "of this `project` alone")
	flags.StringVar(&by, "by", "", "a row for each project, user, type or pool (default: for each project, user and type)")
	outputFlag(cmd, &output, "table", "csv", "json")
	return cmd
}
