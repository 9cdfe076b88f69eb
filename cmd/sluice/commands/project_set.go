// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

const projectHelp = `Choose the project that the commands of sluice and kubectl work in, or list the projects that
you may read. sluice projects shows their validity and expiry.`

const configHelp = `Change the kubeconfig, as Run:ai's command of this name does.`

// newProjectSetCommand returns the command, which has two names: project set and config project.
func newProjectSetCommand(use, path string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " NAME",
		Short: "Choose the project of all further commands",
		Long: `Write the namespace of a project into the current context of the kubeconfig, as
kubectl config set-context --current --namespace does. kubectl and all commands of sluice then
work in this project. You need to be a member or an owner of the project.`,
		Example: `  # Work in a project
  sluice ` + path + ` thesis-mueller`,
		Args: cobra.ExactArgs(1),
	}
	flags := addClusterFlags(cmd, clusterScope)
	cmd.ValidArgsFunction = flags.completeProjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect(cmd)
		if err != nil {
			return err
		}
		namespace, err := projectNamespace(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		context, file, err := flags.setNamespace(namespace)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Project %s: context %s of %s now has namespace %s, for sluice and kubectl\n",
			printer.Sanitize(args[0]), printer.Sanitize(context), file, printer.Sanitize(namespace))
		return nil
	}
	return cmd
}

// setNamespace writes a namespace into the current context of the kubeconfig, and returns the context and its file.
func (f *clusterFlags) setNamespace(namespace string) (name, file string, err error) {
	loader := f.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return "", "", fmt.Errorf("read kubeconfig: %w", err)
	}
	name = cmp.Or(*f.Context, raw.CurrentContext)
	context := raw.Contexts[name]
	if context == nil {
		return "", "", errors.New("the kubeconfig has no current context; choose one with kubectl config use-context")
	}
	file = cmp.Or(context.LocationOfOrigin, loader.ConfigAccess().GetDefaultFilename())
	changed := raw.DeepCopy()
	changed.Contexts[name].Namespace = namespace
	if err := clientcmd.ModifyConfig(loader.ConfigAccess(), *changed, true); err != nil {
		return "", "", fmt.Errorf("write kubeconfig %s: %w", file, err)
	}
	return name, file, nil
}

func newProjectListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the projects that you may read",
		Long: `List the projects with their department, namespace and phase: all projects for system
administrators, and for others those that they own, administer or are members of. sluice whoami
shows your roles in them, and what is free.`,
		Example: `  # List your projects
  sluice project list`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addListOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		projects, err := listProjects(cmd.Context(), c, nil)
		if err != nil {
			return err
		}
		rows := newProjectNames(projects)
		current, _, err := cluster.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		table := printer.Table{Columns: printer.Columns("CURRENT", "PROJECT", "DEPARTMENT", "NAMESPACE", "PHASE")}
		for _, row := range rows {
			mark := ""
			if row.Namespace == current {
				mark = "*"
			}
			table.Rows = append(table.Rows, []string{mark, row.Name, row.Department, row.Namespace, row.Phase})
		}
		return output.printList(cmd, map[string]any{"projects": rows}, table, "projects")
	}
	return cmd
}

// projectName is a project in the output of project list.
type projectName struct {
	Name       string `json:"name"`
	Department string `json:"department"`
	Namespace  string `json:"namespace"`
	Phase      string `json:"phase,omitempty"`
}

// newProjectNames returns the rows of projects.
func newProjectNames(projects []v1alpha1.Project) []projectName {
	rows := make([]projectName, 0, len(projects))
	for i := range projects {
		p := &projects[i]
		rows = append(rows, projectName{p.Name, p.Spec.Department, p.NamespaceName(), string(p.Status.Phase)})
	}
	return rows
}
