// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

func newDismissCommand() *cobra.Command {
	var message, until string
	cmd := &cobra.Command{
		Use:   "dismiss project/NAME",
		Short: "Dismiss the deletion of a project",
		Long: `Dismiss the deletion of a project, which an administrator of the department is asked to
approve. A decision is final.

A project that has expired stays suspended until the end of the day --until, and its
deletion is requested again then, unless it is renewed before. A project that its owners
did not confirm is Active again until its next anniversary, and needs no --until.`,
		Example: `  # Keep a suspended project until the end of March
  sluice dismiss project/thesis-mueller --until 2027-03-31 --message "the defense is in March"

  # Keep a project that its owners did not confirm
  sluice dismiss project/protein-folding --message "the paper is under review"`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.Flags().StringVar(&message, "message", "", "Reason of the decision, which the owners read")
	cmd.Flags().StringVar(&until, "until", "", "Last day for which the deletion is not requested again, such as 2027-03-31")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, Message: message}
		if until != "" {
			day, err := period.ParseDate(until)
			if err != nil {
				return fmt.Errorf("--until: %w", err)
			}
			status.Until = &day
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		return decideDeletion(cmd, c, args[0], status, output)
	}
	return cmd
}

// checkDecisionTarget fails if a project is to be decided on without --delete, or anything else with it.
func checkDecisionTarget(text string, decision v1alpha1.ExtensionDecision, deletes bool) error {
	isTarget := strings.Contains(text, "/")
	switch {
	case deletes && !isTarget:
		return fmt.Errorf("--delete: %q: want project/NAME, the project to delete", text)
	case deletes || !isTarget:
		return nil
	case decision == v1alpha1.ExtensionDenied:
		return fmt.Errorf("%q: want the name of an extension, which sluice extensions lists; the deletion of a project is dismissed "+
			"with sluice dismiss %s --until DATE --message REASON", text, text)
	}
	return fmt.Errorf("%q: to approve the deletion of a project, add --delete and the reason as --message; "+
		"to approve its renewal, or more time for a workload, give the name of the extension, which sluice extensions lists", text)
}

// decideDeletion decides on the deletion of the project project/NAME and prints what follows.
func decideDeletion(cmd *cobra.Command, c client.Client, text string, decision v1alpha1.ExtensionStatus, output *outputFlag) error {
	project, err := getProject(cmd.Context(), c, text)
	if err != nil {
		return err
	}
	extension, err := decideProjectDeletion(cmd.Context(), c, project, decision)
	if err != nil {
		return fmt.Errorf("project %s: %w", project.Name, err)
	}
	return output.printText(cmd.OutOrStdout(), newExtensionRow(extension), describeDeletionDecision(project, &decision))
}

// decideProjectDeletion decides on the present request to delete the project.
func decideProjectDeletion(
	ctx context.Context, c client.Client, project *v1alpha1.Project, decision v1alpha1.ExtensionStatus,
) (*v1alpha1.Extension, error) {
	if err := checkDeletionDecision(project, &decision); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: project.NamespaceName(), Name: project.Status.DeletionRequest}
	var request v1alpha1.Extension
	if err := c.Get(ctx, key, &request); err != nil {
		return nil, fmt.Errorf("get the request to delete it, extension %s in namespace %s: %w", key.Name, key.Namespace, err)
	}
	if request.Spec.Action != v1alpha1.ActionDelete {
		return nil, fmt.Errorf("extension %s in namespace %s does not request the deletion of the project (action %s); delete the extension, "+
			"and Sluice requests the deletion again", key.Name, key.Namespace, request.Spec.Action)
	}
	return decideExtension(ctx, c, key, decision)
}

// checkDeletionDecision fails if the project awaits no decision on its deletion, or the decision lacks a field. Admission
// checks the user, the day and the project's exceptions.
func checkDeletionDecision(project *v1alpha1.Project, decision *v1alpha1.ExtensionStatus) error {
	status := &project.Status
	switch {
	case !project.DeletionTimestamp.IsZero(), status.Phase == v1alpha1.ProjectDeleting:
		return errors.New("it is being deleted already")
	case status.Phase != v1alpha1.ProjectPendingDeletion:
		return fmt.Errorf("it does not await the approval of its deletion (phase %s); sluice projects --pending-deletion lists those that do",
			status.Phase)
	case status.Expiry != nil && status.Expiry.Deletion != nil:
		return fmt.Errorf("its deletion was approved by %s, and a decision is final; a renewal or a hold undoes it",
			printer.Sanitize(status.Expiry.Deletion.ApprovedBy))
	case status.DeletionRequest == "":
		return errors.New("its deletion is not requested yet, which takes a few moments; run the command again")
	case strings.TrimSpace(decision.Message) == "":
		return errors.New("--message: required; give the owners the reason in one sentence")
	case decision.Decision == v1alpha1.ExtensionApproved:
		return nil
	case status.ClosedAt != nil && decision.Until == nil:
		return errors.New("--until: required, since the project has expired: the last day for which it stays suspended and its deletion " +
			"is not requested again, such as 2027-03-31")
	case status.ClosedAt == nil && decision.Until != nil:
		return errors.New("--until: omit it, since the owners did not confirm the project: it is Active until its next anniversary")
	}
	return nil
}

// describeDeletionDecision says what follows from a decision on a project's deletion.
func describeDeletionDecision(project *v1alpha1.Project, decision *v1alpha1.ExtensionStatus) string {
	name := printer.Sanitize(project.Name)
	switch {
	case decision.Decision == v1alpha1.ExtensionApproved:
		return fmt.Sprintf("The deletion of project %s is approved. It begins seven days after its owners were told by mail; until then,\n"+
			"a renewal or a hold undoes it. To see when: sluice projects --pending-deletion %[1]s\n", name)
	case decision.Until != nil:
		return fmt.Sprintf("The deletion of project %s is dismissed. It stays suspended until the end of %s, and its deletion is requested\n"+
			"again then, unless it is renewed before.\n", name, decision.Until)
	}
	return fmt.Sprintf("The deletion of project %s is dismissed. It is Active until its next anniversary.\n", name)
}
