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
		Use:   "why NAME",
		Short: "Explain why a workload waits, was refused, stopped or preempted, or when it ends",
		Long: `Explain in plain words why a workload waits, was refused, stopped or preempted, or when and
why it ends, and what you can do about it now.

The answer comes from the workload and its pods, its clock, the queues and the scheduler,
the events of its controllers, and the quotas of the namespace. A member of the project may
read all of them. NAME is the workload, or KIND/NAME if several have the name. It may be that
of a pod: its workload is explained.`,
		Example: `  # Explain why a Job has not started
  sluice why training -n thesis-mueller

  # Explain one of several workloads with the same name
  sluice why deployment/web --project campus-assistant

  # Print the answer as JSON
  sluice why training -o json`,
		Args: cobra.ExactArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connectWorkloads(cmd)
		if err != nil {
			return err
		}
		reader := workloadFactsReader{Client: c.reader.Client, facts: explanation.Facts{
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
