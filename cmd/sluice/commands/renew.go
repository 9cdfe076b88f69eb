// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/api/v1alpha1"
)

// defaultRenewalReason is the reason of a renewal without --reason.
const defaultRenewalReason = "The project is still needed."

func newRenewCommand() *cobra.Command {
	var reason, onBehalfOf string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "renew project/NAME",
		Short: "Renew a project for another period of validity",
		Long: `Renew a project for another period of validity, or confirm that it is still needed,
and wait for the decision. An owner renews a project from the first warning of its
expiry on, also after it has expired. Renewals within your department's self-service
are approved at once. An approver decides all others. The command fails if the
request is denied.

An administrator of the department renews it for an owner who cannot run this
command, and names the owner's mail address.`,
		Example: `  # Renew your project
  sluice renew project/thesis-mueller --reason "the defense is in June"

  # Renew a project for an owner without access to the cluster
  sluice renew project/thesis-mueller --on-behalf-of anna.mueller@example.org --reason "she answered by mail"`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", defaultRenewalReason, "Reason of the request, in one sentence")
	cmd.Flags().StringVar(&onBehalfOf, "on-behalf-of", "", "Mail address of the owner for whom an administrator renews the project")
	addWaitFlag(cmd, &timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address := v1alpha1.EmailAddress(onBehalfOf)
		if onBehalfOf != "" && !address.IsValid() {
			return fmt.Errorf("--on-behalf-of %q: want the mail address of an owner, such as anna.mueller@example.org", onBehalfOf)
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		target, err := resolveProject(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		renewal, err := newExtension(target, v1alpha1.ActionRenew, reason)
		if err != nil {
			return err
		}
		renewal.Spec.OnBehalfOf = address
		if err := createExtension(cmd.Context(), c, renewal, waitOptions{timeout, decisionPollInterval}); err != nil {
			return err
		}
		return printExtensionOutcome(cmd, renewal, output)
	}
	return cmd
}
