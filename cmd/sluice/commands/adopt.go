// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

func newAdoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt --namespace NAMESPACE --department DEPARTMENT --owner NAME=EMAIL[,USER]",
		Short: "Propose projects for namespaces that already run GPU work",
		Long: `Propose a Project for each namespace that already runs GPU work, with quotas from its present use.

The command prints the Projects as YAML to review. Comments say where each figure comes from, what
changes for the pods that run, and which command hands the namespace over. Nothing is changed in the
cluster without --apply, which annotates the namespaces and creates the Projects. Running pods
continue.`,
		Example: `  # Propose a project for the namespace lab
  sluice adopt --namespace lab --department h2-research --owner "Ines Almeida=ines.almeida@example.org"

  # Review the projects of two namespaces, then create them
  sluice adopt --namespace lab,course --department h2-research --owner "Ines Almeida=ines.almeida@example.org,ines" > projects.yaml`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	namespaces := cmd.Flags().StringSliceP("namespace", "n", nil, "Namespace to adopt; several are separated by commas (required)")
	department := cmd.Flags().String("department", "", "Department of the projects (required)")
	owners := cmd.Flags().StringArray("owner", nil, "Owner of the projects, as NAME=EMAIL or NAME=EMAIL,USER; may be repeated (required)")
	apply := cmd.Flags().Bool("apply", false, "Annotate the namespaces and create the projects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		parsed, err := parseAdoptFlags(*namespaces, *department, *owners)
		if err != nil {
			return err
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		state, err := readAdoptionState(cmd.Context(), c, parsed.department)
		if err != nil {
			return err
		}
		var proposals []adoption
		for _, namespace := range parsed.namespaces {
			proposal, err := proposeAdoption(cmd.Context(), c, state, namespace, parsed.owners)
			if err != nil {
				return err
			}
			proposals = append(proposals, proposal)
			state.projects = append(state.projects, proposal.project) // later ones must fit beside it
		}
		if *apply {
			return applyAdoptions(cmd.Context(), c, cmd.OutOrStdout(), proposals)
		}
		for i := range proposals {
			if _, err := io.WriteString(cmd.OutOrStdout(), proposals[i].yaml()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// adoptRequest are the flags of the command.
type adoptRequest struct {
	namespaces []string
	department string
	owners     []v1alpha1.Owner
}

func parseAdoptFlags(namespaces []string, department string, owners []string) (adoptRequest, error) {
	request := adoptRequest{department: department}
	if len(namespaces) == 0 {
		return request, errors.New("--namespace: required; name the namespace that runs GPU work")
	}
	for _, name := range namespaces {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return request, fmt.Errorf("--namespace %q: %s", name, problems[0])
		}
		if slices.Contains(request.namespaces, name) {
			return request, fmt.Errorf("--namespace %q: named twice", name)
		}
		request.namespaces = append(request.namespaces, name)
	}
	if department == "" {
		return request, errors.New("--department: required; kubectl get sldept lists them")
	}
	if len(owners) == 0 {
		return request, errors.New(`--owner: required; name a person who is responsible, such as "Ines Almeida=ines.almeida@example.org"`)
	}
	for _, text := range owners {
		owner, err := parseOwner(text)
		if err != nil {
			return request, err
		}
		if slices.ContainsFunc(request.owners, func(o v1alpha1.Owner) bool { return o.Email == owner.Email }) {
			return request, fmt.Errorf("--owner %q: the address %s is named twice", text, owner.Email)
		}
		request.owners = append(request.owners, owner)
	}
	return request, nil
}

// maxDisplayName is the length of a DisplayName.
const maxDisplayName = 200

// parseOwner parses NAME=EMAIL[,USER].
func parseOwner(text string) (v1alpha1.Owner, error) {
	const form = "want NAME=EMAIL or NAME=EMAIL,USER, such as Ines Almeida=ines.almeida@example.org,ines"
	name, rest, found := strings.Cut(text, "=")
	email, user, hasUser := strings.Cut(rest, ",")
	name, email, user = strings.TrimSpace(name), strings.TrimSpace(email), strings.TrimSpace(user)
	owner := v1alpha1.Owner{Contact: v1alpha1.Contact{Name: v1alpha1.DisplayName(name), Email: v1alpha1.EmailAddress(email)}, User: user}
	switch {
	case !found || name == "" || hasUser && user == "":
		return owner, fmt.Errorf("--owner %q: %s", text, form)
	case printer.Sanitize(name) != name || len([]rune(name)) > maxDisplayName:
		return owner, fmt.Errorf("--owner %q: the name must be one line of at most %d printable characters", text, maxDisplayName)
	case !owner.Email.IsValid():
		return owner, fmt.Errorf("--owner %q: %q is no plain mail address such as ines.almeida@example.org; %s", text, email, form)
	case printer.Sanitize(user) != user:
		return owner, fmt.Errorf("--owner %q: the user must be one line of printable characters", text)
	}
	return owner, nil
}

// applyAdoptions hands the namespaces over and creates the projects, unless one of them has a problem.
func applyAdoptions(ctx context.Context, c client.Client, output io.Writer, proposals []adoption) error {
	var problems []string
	for i := range proposals {
		for _, problem := range proposals[i].problems {
			problems = append(problems, fmt.Sprintf("project %s: %s", proposals[i].project.Name, problem))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("nothing was changed:\n  %s", strings.Join(problems, "\n  "))
	}
	for i := range proposals {
		project := proposals[i].project.DeepCopy()
		namespace := proposals[i].namespace.DeepCopy()
		before := namespace.DeepCopy()
		if namespace.Annotations == nil {
			namespace.Annotations = map[string]string{}
		}
		namespace.Annotations[v1alpha1.AnnotationAdoptBy] = project.Name
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, namespace, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			return fmt.Errorf("annotate namespace %s: %w", namespace.Name, err)
		}
		fmt.Fprintf(output, "namespace/%s annotated\n", namespace.Name)
		if err := c.Create(ctx, project, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			hint := ""
			if !apierrors.IsAlreadyExists(err) {
				hint = fmt.Sprintf("; to take the annotation back: kubectl annotate namespace %s %s-", namespace.Name, v1alpha1.AnnotationAdoptBy)
			}
			return fmt.Errorf("create project %s: %w%s", project.Name, err, hint)
		}
		fmt.Fprintf(output, "project.sluice.dev/%s created\n", project.Name)
	}
	return nil
}
