// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func newProjectsCommand() *cobra.Command {
	var within period.Duration
	var department string
	var pendingDeletion, orphaned bool
	cmd := &cobra.Command{
		Use:   "projects [NAME...]",
		Short: "List projects: phase, expiry, next step and owner",
		Long: `List projects with their phase, the end of their validity, the next step and its time.
The project with the next step comes first. System administrators list all projects, others
those that they own, administer or are members of.`,
		Example: `  # List all projects
  sluice projects

  # List the projects whose next step is in the next 60 days
  sluice projects --expiring-within 60d

  # Show a project with its exceptions and warnings
  sluice projects thesis-mueller -o wide

  # List the projects whose deletion awaits an approval, or was approved
  sluice projects --pending-deletion

  # List the namespaces that stayed when their projects were deleted
  sluice projects --orphaned`,
	}
	cmd.AddCommand(newProjectsMoveCommand())
	cluster := addClusterFlags(cmd, clusterScope)
	cmd.ValidArgsFunction = cluster.completeProjects
	output := addListOutputFlag(cmd)
	cmd.Flags().Var(durationFlag{&within}, "expiring-within", "List the projects with a step within this time, such as 60d")
	cmd.Flags().StringVar(&department, "department", "", "List the projects of this department")
	cmd.Flags().BoolVar(&pendingDeletion, "pending-deletion", false, "List the projects whose deletion awaits an approval, or was approved")
	cmd.Flags().BoolVar(&orphaned, "orphaned", false, "List the namespaces that stayed when their projects were deleted")
	cmd.MarkFlagsMutuallyExclusive("expiring-within", "pending-deletion", "orphaned")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if orphaned && len(names) > 0 {
			return fmt.Errorf("--orphaned lists namespaces of all former projects; omit %s", strings.Join(names, " "))
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		if orphaned {
			return printOrphanedNamespaces(cmd, c, department, output)
		}
		projects, err := listProjects(cmd.Context(), c, names)
		if err != nil {
			return err
		}
		now := c.clock.Now()
		resources := "projects"
		if department != "" {
			resources += " of department " + department
			projects = slices.DeleteFunc(projects, func(p v1alpha1.Project) bool { return p.Spec.Department != department })
		}
		if pendingDeletion {
			return printPendingDeletions(cmd, c, projects, now, resources, output)
		}
		rows := newProjectRows(projects, now)
		if cmd.Flags().Changed("expiring-within") {
			resources += " with a step within " + within.String()
			rows = slices.DeleteFunc(rows, func(r projectRow) bool { return !r.hasStepBefore(now, now.Add(within.Length())) })
		}
		return output.printList(cmd, projectDocument{Now: now, Projects: rows}, projectTable(rows, now, time.Local), resources)
	}
	return cmd
}

func printPendingDeletions(
	cmd *cobra.Command, c client.Reader, projects []v1alpha1.Project, now time.Time, resources string, output *outputFlag,
) error {
	rows := newPendingDeletionRows(projects)
	if err := countVolumeClaims(cmd.Context(), c, rows); err != nil {
		return err
	}
	return output.printList(cmd, pendingDeletionDocument{Now: now, Projects: rows}, pendingDeletionTable(rows, time.Local),
		resources+" that await the approval of their deletion")
}

func printOrphanedNamespaces(cmd *cobra.Command, c client.Reader, department string, output *outputFlag) error {
	rows, err := listOrphanedNamespaces(cmd.Context(), c, department)
	if err != nil {
		return err
	}
	return output.printList(cmd, map[string][]orphanedNamespaceRow{"namespaces": rows}, orphanedNamespaceTable(rows, time.Local),
		"namespaces of former projects")
}

// listProjects returns the named projects, or all that the user may read.
func listProjects(ctx context.Context, c client.Client, names []string) (projects []v1alpha1.Project, err error) {
	for _, name := range names {
		var project v1alpha1.Project
		if err := c.Get(ctx, types.NamespacedName{Name: name}, &project); err != nil {
			return nil, fmt.Errorf("get project %s: %w", name, err)
		}
		projects = append(projects, project)
	}
	if len(names) > 0 {
		return projects, nil
	}
	if projects, err = listVisibleProjects(ctx, c); err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return projects, nil
}

// durationFlag is the value of a flag with a duration such as 60d.
type durationFlag struct{ value *period.Duration }

// Set implements pflag.Value.
func (f durationFlag) Set(text string) error {
	length, err := period.ParseDuration(text)
	*f.value = length
	return err
}

// String implements pflag.Value.
func (f durationFlag) String() string {
	if f.value == nil || f.value.IsZero() {
		return ""
	}
	return f.value.String()
}

// Type implements pflag.Value.
func (f durationFlag) Type() string { return "duration" }
