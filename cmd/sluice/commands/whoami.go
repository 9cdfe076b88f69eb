// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"io"
	"time"

	"github.com/spf13/cobra"
)

func newWhoamiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show your projects, your roles, and the GPUs that are free in them",
		Long: `Show the name and the groups by which the cluster knows you, your projects with your roles,
their quotas and what is free of them, the GPUs and slices of their node pools, and their
time limits.

Members may not list Projects, which have the addresses of other users. The API server
says which Projects you may get by name (a SelfSubjectRulesReview, which every user may
create), so this needs no rights beyond those of a member.`,
		Example: `  # Show who you are and what you may use
  sluice whoami

  # The same for a program
  sluice whoami -o json`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addOutputFlag(cmd, []string{tableFormat, jsonFormat, yamlFormat})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		access, err := readOwnAccess(cmd.Context(), c)
		if err != nil {
			return err
		}
		document, err := readIdentity(cmd.Context(), c, access)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), document, func(out io.Writer) error { return document.write(out, time.Local) })
	}
	return cmd
}
