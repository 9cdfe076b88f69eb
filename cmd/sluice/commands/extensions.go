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
	cmd := newDecisionCommand("approve", "Approve an extension, or the deletion of a project", v1alpha1.ExtensionApproved)
	cmd.Long = `Approve an extension, or the deletion of a project. A decision is final.

Administrators of the department approve the deletion of a project. It begins seven
days after its owners were told by mail; until then, a renewal or a hold undoes it.
Volumes are never deleted.`
	cmd.Example += `

  # Approve the deletion of a project
  sluice approve project/thesis-mueller --delete --message "the thesis was handed in"`
	return cmd
}

func newDenyCommand() *cobra.Command {
	cmd := newDecisionCommand("deny", "Deny an extension", v1alpha1.ExtensionDenied)
	cmd.Long = "Deny an extension. A decision is final. The deletion of a project is dismissed: sluice dismiss."
	return cmd
}

func newDecisionCommand(name, short string, decision v1alpha1.ExtensionDecision) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Example: fmt.Sprintf(`  # %s an extension with a message to the requester
  sluice %s job-training-x7k2p -n thesis-mueller --message "see you on Monday"`,
			map[v1alpha1.ExtensionDecision]string{v1alpha1.ExtensionApproved: "Approve", v1alpha1.ExtensionDenied: "Deny"}[decision], name),
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	message := cmd.Flags().String("message", "", "Message to the requester, or the reason of a deletion")
	var deletes bool
	if decision == v1alpha1.ExtensionApproved {
		cmd.Use = name + " NAME | project/NAME --delete"
		cmd.Flags().BoolVar(&deletes, "delete", false, "Approve the deletion of the project")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkDecisionTarget(args[0], decision, deletes); err != nil {
			return err
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		status := v1alpha1.ExtensionStatus{Decision: decision, Message: *message}
		if deletes {
			return decideDeletion(cmd, c, args[0], status, output)
		}
		key := types.NamespacedName{Namespace: c.namespace, Name: args[0]}
		extension, err := decideExtension(cmd.Context(), c, key, status)
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

// decideExtension writes a decision, with its message and end, which may be empty, and returns the Extension. It fails
// if the Extension has a decision. Admission records the user and the time.
func decideExtension(
	ctx context.Context, c client.Client, key types.NamespacedName, decision v1alpha1.ExtensionStatus,
) (*v1alpha1.Extension, error) {
	if n := utf8.RuneCountInString(decision.Message); n > maxExtensionTextLength {
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
		status := &extension.Status
		status.Decision, status.Message, status.Until = decision.Decision, decision.Message, decision.Until
		return c.Status().Patch(ctx, extension, patch, client.FieldOwner(v1alpha1.FieldManagerCLI))
	})
	if err != nil {
		return nil, fmt.Errorf("extension %s in namespace %s: %w", key.Name, key.Namespace, err)
	}
	return extension, nil
}
