// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice.dev/api/v1alpha1"
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
		allows := func(list []string, value string) bool {
			return slices.Contains(list, value) || slices.Contains(list, "*")
		}
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
