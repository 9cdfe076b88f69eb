// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// projectMove is the JSON output of projects move.
type projectMove struct {
	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dryRun"`
	// Changes are the fields in which the departments differ.
	Changes []departmentChange `json:"changes"`
	// Projects are never null.
	Projects []movedProject `json:"projects"`
}

// movedProject is a project and what became of it.
type movedProject struct {
	Name string `json:"name"`
	// Moved reports whether the project is, or with a dry run can be, in the other department.
	Moved bool `json:"moved"`
	// Refused says why it cannot be moved.
	Refused string `json:"refused,omitempty"`
}

func newProjectsMoveCommand() *cobra.Command {
	var from, to string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "move --from DEPARTMENT --to DEPARTMENT [NAME...]",
		Short: "Move projects to another department",
		Long: `Move the named projects of a department, or all, to another department, and show what
changes for them: limits, quotas, members and the terms of expiry. Namespaces, data and
running workloads stay.

All projects are checked before the first one is moved: if the API server refuses one,
none is moved. Moving requires the right to administer both departments.`,
		Example: `  # See what changes, and which projects cannot be moved
  sluice projects move --from h2-students --to h2-research --dry-run

  # Move one project
  sluice projects move --from h2-students --to h2-research thesis-mueller`,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.Flags().StringVar(&from, "from", "", "Department of the projects")
	cmd.Flags().StringVar(&to, "to", "", "Department to which they are moved")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Check the move without moving a project")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		switch {
		case from == "" || to == "":
			return errors.New("--from and --to: required; name two departments of kubectl get sldept")
		case from == to:
			return fmt.Errorf("--to: %s is the department of the projects; name another", to)
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		move := &projectMove{From: from, To: to, DryRun: dryRun}
		moveErr := move.run(cmd.Context(), c, names)
		if moveErr != nil && move.Projects == nil {
			return moveErr
		}
		return errors.Join(output.print(cmd.OutOrStdout(), move, move.writeText), moveErr)
	}
	return cmd
}

// run checks the projects, and moves them unless it is a dry run. With an error, no project is moved.
func (m *projectMove) run(ctx context.Context, c client.Client, names []string) error {
	projects, err := m.listProjects(ctx, c, names)
	if err != nil {
		return err
	}
	if m.Changes, err = m.compareDepartments(ctx, c); err != nil {
		return err
	}
	m.Projects = []movedProject{}
	refused := 0
	for i := range projects {
		result := movedProject{Name: projects[i].Name, Moved: true}
		if err := setDepartment(ctx, c, &projects[i], m.To, client.DryRunAll); err != nil {
			result = movedProject{Name: projects[i].Name, Refused: err.Error()}
			refused++
		}
		m.Projects = append(m.Projects, result)
	}
	switch {
	case refused > 0 && m.DryRun:
		return fmt.Errorf("%d of %d projects cannot be moved", refused, len(projects))
	case refused > 0:
		m.markUnmoved()
		return fmt.Errorf("%d of %d projects cannot be moved, and none was moved; name those that can", refused, len(projects))
	case m.DryRun:
		return nil
	}
	return m.moveAll(ctx, c, projects)
}

// moveAll moves the projects one after the other. A dry run does not add up the quotas of several projects, so a later one
// can be refused: then those that were moved are moved back.
func (m *projectMove) moveAll(ctx context.Context, c client.Client, projects []v1alpha1.Project) error {
	for i := range projects {
		err := setDepartment(ctx, c, &projects[i], m.To)
		if err == nil {
			continue
		}
		m.markUnmoved()
		m.Projects[i].Refused = err.Error()
		failure := fmt.Errorf("move project %s: %w", projects[i].Name, err)
		for j := range projects[:i] {
			if err := setDepartment(ctx, c, &projects[j], m.From); err != nil {
				m.Projects[j].Moved = true
				failure = errors.Join(failure, fmt.Errorf("move project %s back to department %s: %w", projects[j].Name, m.From, err))
			}
		}
		if !slices.ContainsFunc(m.Projects, func(p movedProject) bool { return p.Moved }) {
			return fmt.Errorf("%w; no project was moved", failure)
		}
		return failure
	}
	return nil
}

func (m *projectMove) markUnmoved() {
	for i := range m.Projects {
		m.Projects[i].Moved = false
	}
}

// listProjects returns the named projects of the department, or all of them.
func (m *projectMove) listProjects(ctx context.Context, c client.Client, names []string) ([]v1alpha1.Project, error) {
	projects, err := listProjects(ctx, c, names)
	if err != nil {
		return nil, err
	}
	of := projects[:0]
	for i := range projects {
		switch {
		case projects[i].Spec.Department == m.From:
			of = append(of, projects[i])
		case len(names) > 0:
			return nil, fmt.Errorf("project %s is in department %s, not in %s", projects[i].Name, projects[i].Spec.Department, m.From)
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("department %s has no projects", m.From)
	}
	return of, nil
}

// compareDepartments returns the fields in which the departments differ.
func (m *projectMove) compareDepartments(ctx context.Context, c client.Reader) ([]departmentChange, error) {
	var departments [2]v1alpha1.Department
	for i, name := range []string{m.From, m.To} {
		if err := c.Get(ctx, types.NamespacedName{Name: name}, &departments[i]); err != nil {
			return nil, fmt.Errorf("get department %s: %w", name, explainForbidden(err, "its administrators may read it"))
		}
	}
	return compareDepartmentSpecs(&departments[0].Spec, &departments[1].Spec)
}

// setDepartment writes the department of a project, unless the project has changed in the meantime.
func setDepartment(ctx context.Context, c client.Client, project *v1alpha1.Project, department string, options ...client.PatchOption) error {
	changed := project.DeepCopy()
	changed.Spec.Department = department
	patch := client.MergeFromWithOptions(project, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, changed, patch, append(options, client.FieldOwner(v1alpha1.FieldManagerCLI))...); err != nil {
		return err
	}
	if len(options) == 0 {
		*project = *changed
	}
	return nil
}

// writeText writes what changes for the projects, and what became of each.
func (m *projectMove) writeText(output io.Writer) error {
	changes := printer.Table{Columns: printer.Columns("SETTING", m.From, m.To)}
	for _, c := range m.Changes {
		changes.Rows = append(changes.Rows, []string{c.Field, c.Before, c.After})
	}
	projects := printer.Table{Columns: printer.Columns("PROJECT", "RESULT")}
	for _, p := range m.Projects {
		projects.Rows = append(projects.Rows, []string{p.Name, m.describeResult(&p)})
	}
	if len(changes.Rows) > 0 {
		if err := changes.Write(output, false); err != nil {
			return err
		}
		fmt.Fprintln(output)
	}
	return projects.Write(output, false)
}

func (m *projectMove) describeResult(p *movedProject) string {
	switch {
	case p.Refused != "":
		return "refused: " + p.Refused
	case p.Moved && m.DryRun:
		return "can be moved"
	case p.Moved:
		return "moved"
	}
	return "not moved"
}
