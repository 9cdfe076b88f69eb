// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
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

// ownAccess is what the API server says about the user.
type ownAccess struct {
	user   string
	groups []string
	// projects, departments and nodePools are the names that the user may get, sorted.
	projects, departments, nodePools []string
	// all reports that the user may get every Project.
	all bool
	// incomplete reports that an authorizer of the API server could not list its rules.
	incomplete bool
}

// readOwnAccess returns the user's name, groups and rights.
func readOwnAccess(ctx context.Context, c *clusterClient) (ownAccess, error) {
	clientset, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return ownAccess{}, fmt.Errorf("connect to %s: %w", c.config.Host, err)
	}
	self, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ownAccess{}, fmt.Errorf("get your user name: %w", err)
	}
	rules, err := clientset.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		// The rules on cluster-scoped objects are the same in each namespace.
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if err != nil {
		return ownAccess{}, fmt.Errorf("get your rights: %w", err)
	}
	access := newOwnAccess(rules.Status)
	access.user, access.groups = self.Status.UserInfo.Username, self.Status.UserInfo.Groups
	return access, nil
}

// newOwnAccess returns the objects of Sluice that rules allow to get.
func newOwnAccess(status authorizationv1.SubjectRulesReviewStatus) ownAccess {
	access := ownAccess{incomplete: status.Incomplete}
	for i := range status.ResourceRules {
		rule := &status.ResourceRules[i]
		allows := func(list []string, value string) bool { return slices.Contains(list, value) || slices.Contains(list, "*") }
		if !allows(rule.APIGroups, v1alpha1.Group) || !allows(rule.Verbs, "get") {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			access.all = access.all || allows(rule.Resources, "projects")
			continue
		}
		for resource, names := range map[string]*[]string{
			"projects": &access.projects, "departments": &access.departments, "nodepools": &access.nodePools,
		} {
			if allows(rule.Resources, resource) {
				*names = append(*names, rule.ResourceNames...)
			}
		}
	}
	for _, names := range []*[]string{&access.projects, &access.departments, &access.nodePools} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return access
}

// identity is the output of whoami.
type identity struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Projects are never null.
	Projects []ownProject `json:"projects"`
	// More is the number of further projects, beyond the most that are shown.
	More int `json:"moreProjects,omitempty"`
	// AllProjects reports that the user may read every project; only those with a role are shown.
	AllProjects bool `json:"allProjects,omitempty"`
	// Incomplete reports that the API server could not list all rights.
	Incomplete bool `json:"incomplete,omitempty"`
}

// ownProject is a project of the user.
type ownProject struct {
	Name       string                `json:"name"`
	Department string                `json:"department"`
	Namespace  string                `json:"namespace"`
	Phase      v1alpha1.ProjectPhase `json:"phase,omitempty"`
	ExpiresAt  *time.Time            `json:"expiresAt,omitempty"`
	// Roles are the user's, each with where it comes from. They are never null.
	Roles []ownRole `json:"roles"`
	// Pools are never null.
	Pools []ownPool `json:"nodePools"`
	// TimeLimits are the effective ones of each type of workload, in seconds; 0 means no limit.
	TimeLimits map[v1alpha1.WorkloadType]v1alpha1.EffectiveTimeLimits `json:"timeLimits,omitempty"`
	// Services are the allowed types of Services and hosts of Ingresses; nil if they are unknown.
	Services *v1alpha1.ServiceTerms `json:"services,omitempty"`
}

// ownRole is a role of the user in a project.
type ownRole struct {
	Role string `json:"role"`
	// Through is "project", "department", or either with a group: "project, group staff".
	Through string `json:"through"`
}

// ownPool is the quota of a project in a node pool. Amounts of GPUs are quantities: 500m is half a GPU.
type ownPool struct {
	Name       string `json:"name"`
	Guaranteed string `json:"guaranteed"`
	Limit      string `json:"limit"`
	Used       string `json:"used"`
	Pending    string `json:"pending"`
	// Free is what is left of the limit. GPUs beyond the guarantee must be idle in the pool.
	Free string `json:"free"`
	// Sharing is how the pool realizes a share of a GPU; empty if the pool may not be read.
	Sharing string `json:"sharing,omitempty"`
	// GPUs is the number of GPUs of the pool, Models its models and Slices its MIG profiles.
	GPUs   int32    `json:"gpus,omitempty"`
	Models []string `json:"models,omitempty"`
	Slices []string `json:"slices,omitempty"`
}

// rolesOf returns the roles of the user in a project, from the members of the project and, if the user may
// read it, of its department.
func (a *ownAccess) rolesOf(project *v1alpha1.Project, department *v1alpha1.Department) []ownRole {
	roles := []ownRole{}
	for i := range project.Spec.Owners {
		if user := project.Spec.Owners[i].User; user != "" && user == a.user {
			roles = append(roles, ownRole{"owner", "project"})
		}
	}
	collect := func(members []v1alpha1.Member, through string) {
		for i := range members {
			if from, ok := a.matches(&members[i]); ok {
				roles = append(roles, ownRole{string(members[i].Role), through + from})
			}
		}
	}
	collect(project.Spec.Members, "project")
	if department != nil {
		collect(department.Spec.Members, "department")
	}
	if len(roles) == 0 && department == nil && slices.Contains(a.projects, project.Name) {
		roles = append(roles, ownRole{"member", "department"})
	}
	slices.SortFunc(roles, func(x, y ownRole) int { return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.Through, y.Through)) })
	return slices.Compact(roles)
}

// matches reports whether a member is the user, or one of the user's groups, which it returns.
func (a *ownAccess) matches(member *v1alpha1.Member) (from string, ok bool) {
	switch member.Kind {
	case v1alpha1.MemberUser:
		return "", member.Name == a.user
	case v1alpha1.MemberGroup:
		return ", group " + member.Name, slices.Contains(a.groups, member.Name)
	case v1alpha1.MemberServiceAccount:
		return "", a.user == "system:serviceaccount:"+member.Namespace+":"+member.Name
	}
	return "", false
}

// write prints the identity as text and tables.
func (d *identity) write(output io.Writer, zone *time.Location) error {
	var text strings.Builder
	text.WriteString("User:    " + printer.Sanitize(d.User) + "\n")
	text.WriteString("Groups:  " + printer.Sanitize(strings.Join(d.Groups, ", ")) + "\n")
	if d.AllProjects {
		text.WriteString("You may read all projects: sluice projects\n")
	}
	if d.Incomplete {
		text.WriteString("The API server could not list all your rights, so projects may be missing.\n")
	}
	if len(d.Projects) == 0 {
		text.WriteString("\nYou are a member of no project. Your department creates projects and adds members.\n")
		_, err := io.WriteString(output, text.String())
		return err
	}
	if _, err := io.WriteString(output, text.String()+"\n"); err != nil {
		return err
	}
	projects := printer.Table{Columns: printer.Columns("PROJECT", "DEPARTMENT", "NAMESPACE", "PHASE", "EXPIRES", "YOUR ROLES")}
	pools := printer.Table{Columns: printer.Columns("PROJECT", "NODE POOL", "GUARANTEED", "LIMIT", "USED", "PENDING", "FREE", "GPUS", "MODELS", "SLICES")}
	for i := range d.Projects {
		p := &d.Projects[i]
		var roles []string
		for _, role := range p.Roles {
			roles = append(roles, role.Role+" ("+role.Through+")")
		}
		projects.Rows = append(projects.Rows, []string{
			p.Name, p.Department, p.Namespace, string(p.Phase), formatOptionalMinute(p.ExpiresAt, zone), strings.Join(roles, ", "),
		})
		for k := range p.Pools {
			pools.Rows = append(pools.Rows, p.Pools[k].cells(p.Name))
		}
	}
	if err := projects.Write(output, false); err != nil {
		return err
	}
	if len(pools.Rows) > 0 {
		if _, err := io.WriteString(output, "\n"); err != nil {
			return err
		}
		if err := pools.Write(output, false); err != nil {
			return err
		}
	}
	_, err := io.WriteString(output, d.notes())
	return err
}

// cells returns the row of a node pool.
func (p *ownPool) cells(project string) []string {
	gpus := ""
	if p.Sharing != "" {
		gpus = fmt.Sprintf("%d (%s)", p.GPUs, p.Sharing)
	}
	return []string{
		project, p.Name, p.Guaranteed, p.Limit, p.Used, p.Pending, p.Free, gpus, strings.Join(p.Models, ", "), strings.Join(p.Slices, ", "),
	}
}

// notes returns what the tables do not show.
func (d *identity) notes() string {
	var text strings.Builder
	text.WriteString("\n")
	for i := range d.Projects {
		p := &d.Projects[i]
		if len(p.TimeLimits) > 0 {
			fmt.Fprintf(&text, "Time limits in %s: %s\n", printer.Sanitize(p.Name), p.describeTimeLimits())
		}
		if p.Services != nil {
			fmt.Fprintf(&text, "Services in %s: %s", printer.Sanitize(p.Name), joinServiceTypes(p.Services))
			if len(p.Services.IngressHosts) > 0 {
				fmt.Fprintf(&text, "; Ingresses for %v", p.Services.IngressHosts)
			}
			text.WriteString("\n")
		}
	}
	if d.More > 0 {
		fmt.Fprintf(&text, "%d more projects: sluice projects lists those that you administer\n", d.More)
	}
	text.WriteString("FREE is what is left of the limit; GPUs beyond the guarantee must be idle in the node pool.\n")
	return text.String()
}

// describeTimeLimits returns the limits of each type of workload.
func (p *ownProject) describeTimeLimits() string {
	var all []string
	for _, kind := range v1alpha1.WorkloadTypes {
		limits, ok := p.TimeLimits[kind]
		if !ok {
			continue
		}
		text := string(kind) + " unlimited"
		if limits.MaxRuntimeSeconds > 0 {
			text = string(kind) + " " + formatSeconds(&limits.MaxRuntimeSeconds)
		}
		if limits.IdleTimeoutSeconds > 0 {
			text += " (idle " + formatSeconds(&limits.IdleTimeoutSeconds) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func joinServiceTypes(terms *v1alpha1.ServiceTerms) string {
	names := make([]string, 0, len(terms.Types))
	for _, kind := range terms.Types {
		names = append(names, string(kind))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
