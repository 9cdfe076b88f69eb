// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"io"

	"github.com/spf13/cobra"
)

func newPolicyBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build DIRECTORY",
		Short: "Print the policies of a directory for kubectl",
		Long: `Print the policies of a directory as YAML that kubectl can apply, each with the Rego of the file beside it. Libraries
come first. Tests, cases and other objects are left out. The output can contain any character of the files.`,
		Example: `  # For kubectl apply -f policies.yaml
  sluice policy build policies/ > policies.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := loadPolicies(args[0])
			if err != nil {
				return err
			}
			manifest, err := folder.Manifest()
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), manifest)
			return err
		},
	}
}
