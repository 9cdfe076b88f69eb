// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func newExtensionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extensions",
		Short: "List the extensions that are waiting for a decision",
		Long:  "List the extensions that are waiting for a decision, the oldest first.",
		Example: `  # List the pending extensions of all namespaces
  sluice extensions -A

  # List all extensions of a namespace
  sluice extensions -n thesis-mueller --decided`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, listScope)
	output := addListOutputFlag(cmd)
	decided := cmd.Flags().Bool("decided", false, "Also list the extensions that were approved or denied")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		rows, err := listExtensions(cmd.Context(), c, c.namespace, *decided)
		if err != nil {
			return err
		}
		resources := "pending extensions"
		if *decided {
			resources = "extensions"
		}
		return output.printList(cmd, map[string][]extensionRow{"extensions": rows},
			extensionTable(rows, cluster.allNamespaces, *decided, time.Now()), resources+inNamespace(c.namespace))
	}
	return cmd
}

func newApproveCommand() *cobra.Command {
	return newDecisionCommand("approve", "Approve an extension", v1alpha1.ExtensionApproved)
}

func newDenyCommand() *cobra.Command {
	return newDecisionCommand("deny", "Deny an extension", v1alpha1.ExtensionDenied)
}

func newDecisionCommand(name, short string, decision v1alpha1.ExtensionDecision) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Long:  short + ". A decision is final.",
		Example: fmt.Sprintf(`  # %s with a message to the requester
  sluice %s job-training-x7k2p -n thesis-mueller --message "see you on Monday"`, short, name),
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	message := cmd.Flags().String("message", "", "Message to the requester")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		key := types.NamespacedName{Namespace: c.namespace, Name: args[0]}
		extension, err := decideExtension(cmd.Context(), c, key, decision, *message)
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), newExtensionRow(extension), fmt.Sprintf("Extension %s (%s) is %s.\n",
			extension.Name, describeExtensionRequest(extension), strings.ToLower(string(decision))))
	}
	return cmd
}

// listExtensions lists the Extensions of a namespace, or of all namespaces if it
// is empty, the oldest first. Without decided it lists pending ones only.
func listExtensions(ctx context.Context, c client.Reader, namespace string, decided bool) ([]extensionRow, error) {
	rows := []extensionRow{}
	err := listPages(ctx, c, func(page *v1alpha1.ExtensionList) {
		for i := range page.Items {
			if decided || page.Items[i].Status.Decision == "" {
				rows = append(rows, newExtensionRow(&page.Items[i]))
			}
		}
	}, client.InNamespace(namespace))
	if err != nil {
		hint := ""
		if namespace == "" {
			hint = "name a namespace with -n"
		}
		return nil, fmt.Errorf("list extensions: %w", explainForbidden(err, hint))
	}
	slices.SortFunc(rows, func(a, b extensionRow) int {
		return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
}

// decideExtension writes a decision and a message, which may be empty, and returns
// the Extension. It fails if the Extension has a decision. Admission records the
// user and the time.
func decideExtension(
	ctx context.Context, c client.Client, key types.NamespacedName, decision v1alpha1.ExtensionDecision, message string,
) (*v1alpha1.Extension, error) {
	if n := utf8.RuneCountInString(message); n > maxExtensionTextLength {
		return nil, fmt.Errorf("--message: it has %d characters; want at most %d", n, maxExtensionTextLength)
	}
	extension := &v1alpha1.Extension{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, key, extension); err != nil {
			return err
		}
		if extension.Status.Decision != "" {
			return fmt.Errorf("already decided: %s; a decision is final", describeExtensionOutcome(extension, time.Local))
		}
		// The lock makes the second of two concurrent decisions fail.
		patch := client.MergeFromWithOptions(extension.DeepCopy(), client.MergeFromWithOptimisticLock{})
		extension.Status.Decision, extension.Status.Message = decision, message
		return c.Status().Patch(ctx, extension, patch, client.FieldOwner(v1alpha1.FieldManagerCLI))
	})
	if err != nil {
		return nil, fmt.Errorf("extension %s in namespace %s: %w", key.Name, key.Namespace, err)
	}
	return extension, nil
}
