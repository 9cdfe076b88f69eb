// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/workbench"
)

func newPolicyExportCommand() *cobra.Command {
	var directory string
	var force bool
	cmd := &cobra.Command{
		Use:   "export [NAME...]",
		Short: "Write the policies of a cluster to files",
		Long: `Write the policies of a cluster to a directory, or only the named ones: the object without its status and what the
cluster added (NAME.yaml), and its Rego beside it (NAME.rego). The built-in policies are left out, since they are
part of Sluice. Afterwards sluice policy diff shows no change.

Files that exist with another content are not overwritten, unless --force is set.`,
		Example: `  # Write all policies of the cluster
  sluice policy export --output-dir policies/`,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	cmd.Flags().StringVar(&directory, "output-dir", ".", "Directory to write to")
	cmd.Flags().BoolVar(&force, "force", false, "Overwrite files with another content")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		var list v1alpha1.PolicyList
		if err := c.List(cmd.Context(), &list); err != nil {
			return err
		}
		files, err := exportedFiles(list.Items, args)
		if err != nil {
			return err
		}
		return writeExport(cmd.OutOrStdout(), directory, files, force)
	}
	return cmd
}

// exportedFiles returns the files of the named policies, or of all that are not built in.
func exportedFiles(all []v1alpha1.Policy, names []string) (map[string]string, error) {
	files := make(map[string]string)
	for i := range all {
		policy := &all[i]
		if len(names) > 0 && !slices.Contains(names, policy.Name) || len(names) == 0 && workbench.IsMirror(policy) {
			continue
		}
		if workbench.IsMirror(policy) {
			return nil, fmt.Errorf("policy %s is part of Sluice: only its parameters can be changed, with kubectl", policy.Name)
		}
		exported, err := workbench.Export(policy)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, exported)
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p v1alpha1.Policy) bool { return p.Name == name }) {
			return nil, fmt.Errorf("the cluster has no policy %q", name)
		}
	}
	return files, nil
}

// writeExport writes files whose content differs. Without force it writes none if one of them exists with another content.
func writeExport(output io.Writer, directory string, files map[string]string, force bool) error {
	existing := keepEqual
	if force {
		existing = replaceExisting
	}
	written, err := writePolicyFiles(directory, files, existing, "name another directory with --output-dir, or overwrite with --force")
	printWritten(output, written)
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "%d files written, %d unchanged\n", len(written), len(files)-len(written))
	return nil
}
