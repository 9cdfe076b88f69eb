// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/workbench"
)

// auditFlags are the flags of sluice policy audit.
type auditFlags struct {
	project, directory string
	all, latest, fail  bool
	output             *outputFlag
}

func newPolicyAuditCommand() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show which existing objects violate policies",
		Long: `Show which pods and workloads of projects the policies would refuse, or change, if they were created now.

The command reads the objects with your rights and evaluates them itself; it changes nothing. What the pods of a workload violate
is shown at the workload, with the number of the pods. With --policies DIRECTORY it evaluates the policies of a directory in addition to
those of the cluster, and shows only what they find; a policy in DryRun then counts as Deny. With --latest it shows what the
last audit of the cluster found.`,
		Example: `  # What in the cluster would be refused today?
  sluice policy audit

  # What would the policies of a directory refuse? Fails if there is something.
  sluice policy audit --policies policies/ --fail

  # What did last night's audit find in one project?
  sluice policy audit --latest --project course-ml`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	cmd.Flags().StringVarP(&flags.project, "project", "p", "", "Audit the objects of one project")
	cmd.Flags().BoolVarP(&flags.all, "all-projects", "A", false, "Audit the objects of all projects, the default")
	cmd.Flags().StringVar(&flags.directory, "policies", "", "Directory with policies to evaluate in addition to those of the cluster")
	cmd.Flags().BoolVar(&flags.latest, "latest", false, "Show what the last audit of the cluster found")
	cmd.Flags().BoolVar(&flags.fail, "fail", false,
		"Fail if a policy in Deny would refuse or change an object, or if objects could not be evaluated")
	flags.output = addListOutputFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("project", "all-projects")
	cmd.MarkFlagsMutuallyExclusive("policies", "latest")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		var document *auditDocument
		if flags.latest {
			document, err = latestAudit(cmd.Context(), c, flags.project)
		} else {
			document, err = auditNow(cmd, c, &flags)
		}
		if err != nil {
			return err
		}
		return document.print(cmd, &flags)
	}
	return cmd
}

// auditDocument is the result of an audit for programs.
type auditDocument struct {
	// Time is the policy time of the audit.
	Time metav1.Time `json:"time"`
	// Source is where the entries come from: Live, OpenReports or StatusOnly.
	Source      string        `json:"source"`
	Evaluated   int           `json:"evaluated"`
	Unevaluated int           `json:"unevaluated"`
	Counts      *audit.Counts `json:"counts,omitempty"`
	// Omitted is the number of findings without an entry.
	Omitted       int           `json:"omitted"`
	MissingRights []string      `json:"missingRights,omitempty"`
	Entries       []audit.Entry `json:"entries"`
	// ofCluster: Evaluated and Unevaluated are of all projects, whatever was requested.
	ofCluster bool
}

// auditNow evaluates the objects of the cluster.
func auditNow(cmd *cobra.Command, c *clusterClient, flags *auditFlags) (*auditDocument, error) {
	observed, err := listPolicyObjects(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	folder := workbench.FromCluster(nil, nil, nil, observed.parameters)
	if flags.directory != "" {
		if folder, err = loadPolicies(flags.directory); err != nil {
			return nil, err
		}
	}
	policies, err := workbench.NewCluster(folder.Sources(observed.policies.Items))
	if err != nil && (policies == nil || flags.directory != "") {
		return nil, err
	}
	if err != nil {
		printOmittedPolicies(cmd.ErrOrStderr(), err)
	}
	if flags.directory == "" {
		if err := addClusterData(cmd.Context(), c, folder); err != nil {
			return nil, err
		}
	}
	data, err := folder.Data()
	if err != nil {
		return nil, err
	}
	policies.UseData(data)
	namespace, err := auditNamespace(observed.projects.Items, flags.project)
	if err != nil {
		return nil, err
	}
	now := c.clock.Now()
	walk := audit.Walk{
		Reader: c, Mapper: c.Client.RESTMapper(), Auditor: policies.Auditor(now), Namespace: namespace, Limits: commandAuditLimits,
		Tenants: audit.NewTenants(
			observed.projects.Items, observed.departments.Items, observed.pools.Items, &observed.parameters.Spec, namespacesOf(cmd.Context(), c),
		),
		Progress: newAuditProgress(cmd.ErrOrStderr()),
	}
	if flags.directory != "" {
		walk.Selected = func(policy string) bool {
			return slices.ContainsFunc(folder.Policies, func(p v1alpha1.Policy) bool { return p.Name == policy })
		}
	}
	report, err := walk.Run(cmd.Context())
	if err != nil {
		return nil, err
	}
	counts := report.Total()
	return &auditDocument{
		Time: metav1.NewTime(now), Source: "Live", Evaluated: report.Evaluated, Unevaluated: report.Unevaluated, Counts: &counts,
		Omitted:       counts.Violations() + counts.Warned + counts.Failed - len(report.Entries),
		MissingRights: report.MissingRights, Entries: report.Entries,
	}, nil
}

// namespacesOf returns a function that reads namespaces. One that the user may not read, or that was just deleted, has neither labels nor
// annotations.
func namespacesOf(ctx context.Context, c client.Reader) func(name string) (*corev1.Namespace, error) {
	return func(name string) (*corev1.Namespace, error) {
		var namespace corev1.Namespace
		err := c.Get(ctx, client.ObjectKey{Name: name}, &namespace)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // as documented
		}
		return &namespace, err
	}
}

// commandAuditLimits are larger than those of lifecycle: the command has a machine's memory.
var commandAuditLimits = audit.Limits{Namespace: 10_000, Total: 100_000}

// auditNamespace returns the namespace of a project; empty for all projects.
func auditNamespace(projects []v1alpha1.Project, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	at := slices.IndexFunc(projects, func(p v1alpha1.Project) bool { return p.Name == name })
	switch {
	case at < 0:
		return "", fmt.Errorf("--project: there is no project %q", name)
	case projects[at].Status.Namespace == nil:
		return "", fmt.Errorf("--project: project %q has no namespace yet", name)
	}
	return projects[at].Status.Namespace.Name, nil
}

// auditProgressInterval is the time between two lines about the progress.
const auditProgressInterval = 5 * time.Second

// newAuditProgress returns a function that prints the progress from time to time.
func newAuditProgress(output io.Writer) func(resource string, evaluated int) {
	last := policytime.MachineNow()
	return func(resource string, evaluated int) {
		if now := policytime.MachineNow(); now.Sub(last) >= auditProgressInterval {
			last = now
			fmt.Fprintf(output, "Evaluated %d objects, at %s\n", evaluated, resource)
		}
	}
}

// print prints the result. The error is for --fail.
func (d *auditDocument) print(cmd *cobra.Command, flags *auditFlags) error {
	if len(d.MissingRights) > 0 {
		missing := strings.Join(d.MissingRights, ", ")
		fmt.Fprintln(cmd.ErrOrStderr(), printer.Sanitize("Warning: you may not list "+missing+"; these objects were not audited"))
	}
	if d.Unevaluated > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %d objects could not be evaluated: their projects are incomplete, or there was no time\n",
			d.Unevaluated)
	}
	if d.Entries == nil {
		d.Entries = []audit.Entry{}
	}
	format := flags.output
	err := format.print(cmd.OutOrStdout(), d, func(output io.Writer) error {
		if len(d.Entries) > 0 {
			if err := auditTable(d.Entries).Write(output, flags.output.format == wideFormat); err != nil {
				return err
			}
			fmt.Fprintln(output)
		}
		_, err := io.WriteString(output, d.summary())
		return err
	})
	if err != nil || !flags.fail {
		return err
	}
	enforced := 0
	for i := range d.Entries {
		if entry := &d.Entries[i]; entry.Result.IsViolation() && entry.Enforcement == v1alpha1.EnforcementDeny {
			enforced++
		}
	}
	if d.Counts != nil {
		enforced = d.Counts.Enforced
	}
	switch {
	case enforced > 0:
		return fmt.Errorf("violations of policies in Deny: %d", enforced)
	case d.Unevaluated > 0 || len(d.MissingRights) > 0 || d.Counts != nil && d.Counts.Failed > 0:
		return errors.New("not all objects could be evaluated")
	}
	return nil
}

// summary returns the last line of the table.
func (d *auditDocument) summary() string {
	var b strings.Builder
	where := ""
	if d.ofCluster {
		where = " of all projects"
	}
	fmt.Fprintf(&b, "%s: %d objects%s evaluated", d.Time.UTC().Format(time.RFC3339), d.Evaluated, where)
	if d.Counts != nil {
		fmt.Fprintf(&b, ", %d denied, %d changed, %d warnings, %d failures", d.Counts.Denied, d.Counts.Changed, d.Counts.Warned, d.Counts.Failed)
	}
	if d.Omitted > 0 {
		fmt.Fprintf(&b, " (%d are not shown)", d.Omitted)
	}
	b.WriteByte('\n')
	return b.String()
}

// auditTable has a row for each entry.
func auditTable(entries []audit.Entry) printer.Table {
	table := printer.Table{Columns: printer.Columns("POLICY", "ENFORCEMENT", "RESULT", "NAMESPACE", "KIND", "NAME", "PODS", "MESSAGE")}
	table.Columns = append(table.Columns, printer.Column{Name: "FIX", Wide: true})
	for i := range entries {
		entry := &entries[i]
		message := entry.Message
		if entry.More > 0 {
			message = fmt.Sprintf("%s (and %d more)", message, entry.More)
		}
		if entry.Result == decision.AuditChanged && len(entry.Changes) > 1 {
			message = fmt.Sprintf("%s (and %d more fields)", message, len(entry.Changes)-1)
		}
		pods := ""
		if entry.Pods > 0 {
			pods = strconv.Itoa(entry.Pods)
		}
		table.Rows = append(table.Rows, []string{
			entry.Policy, string(entry.Enforcement), string(entry.Result), entry.Namespace, entry.Kind, entry.Name, pods, message, entry.Fix,
		})
	}
	return table
}
