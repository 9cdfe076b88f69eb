// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/clocks"
	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/show"
)

func clocksCommand() *cobra.Command {
	var options connect.Options
	var all bool
	var project, output string
	cmd := &cobra.Command{
		Use:   "clocks",
		Short: "Show how long workloads have run, are idle, and may run on",
		Long: `clocks shows each workload's time as of now, what ends soonest first. It needs no
right beyond reading the clocks of one namespace.`,
		Example: `  sluice clocks -n thesis-mueller
  sluice clocks --project thesis-mueller
  sluice clocks -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atMostOne(all, options.Namespace, project); err != nil {
				return err
			}
			c, err := open(cmd, options)
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			found, err := clocks.List(cmd.Context(), c, namespace, project)
			if err != nil {
				return err
			}
			now := c.Clock.Now()
			rows := clocks.Rows(found.Clocks, found.Projects, now)
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), clocks.Document{Now: now, Clocks: rows})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), clocks.None(found.Namespace))
				return nil
			}
			return clocks.Table(cmd.OutOrStdout(), rows, all, time.Local)
		},
	}
	clusterFlags(cmd, &options)
	namespaceFlag(cmd, &options)
	allFlag(cmd, &all)
	cmd.Flags().StringVar(&project, "project", "", "the `project` whose workloads are meant")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// allFlag is for all namespaces, as kubectl has it.
func allFlag(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "in all namespaces")
}

// atMostOne refuses what contradicts itself.
func atMostOne(all bool, namespace, project string) error {
	given := 0
	for _, is := range []bool{all, namespace != "", project != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		return errors.New("want one of -n, -A and --project: each says where to look")
	}
	return nil
}
