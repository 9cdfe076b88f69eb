// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/explanation"
)

func newWhyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why [KIND/]NAME",
		Short: "Explain why a workload waits, was refused, stopped or preempted, or when it ends",
		Long: `Explain in plain words why a workload waits, was refused, stopped or preempted, or when and
why it ends, and what you can do about it now.

The answer comes from the workload and its pods, its clock, the queues and the scheduler,
the events of its controllers, and the quotas of the namespace. A member of the project may
read all of them. NAME may be that of a pod: its workload is explained.`,
		Example: `  # Explain why a Job has not started
  sluice why training -n thesis-mueller

  # Explain one of several workloads with the same name
  sluice why deployment/web --project campus-assistant

  # Print the answer as JSON
  sluice why training -o json`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	project := cmd.Flags().StringP("project", "p", "", "Project of the workload")
	cmd.MarkFlagsMutuallyExclusive("namespace", "project")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		if *project != "" {
			object, err := getProject(cmd.Context(), c, "project/"+*project)
			if err != nil {
				return err
			}
			c.namespace = object.NamespaceName()
		}
		reader := workloadFactsReader{targetReader: c, facts: explanation.Facts{
			Namespace: c.namespace, Now: c.clock.Now(), MachineNow: policytime.MachineNow(), Zone: time.Local,
		}}
		facts, err := reader.read(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		answer := explanation.Explain(facts)
		return output.print(cmd.OutOrStdout(), answer, answer.Write)
	}
	return cmd
}
