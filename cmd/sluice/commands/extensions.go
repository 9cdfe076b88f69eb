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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

func extensionsCommand() *cobra.Command {
	var options ClusterOptions
	var all, decided bool
	var output string
	cmd := &cobra.Command{
		Use:   "extensions",
		Short: "List the extensions that wait for a decision",
		Example: `  sluice extensions -A
  sluice extensions -n thesis-mueller --decided`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateScopeFlags(all, options.Namespace, ""); err != nil {
				return err
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			rows, err := ListExtensions(cmd.Context(), c, namespace, decided)
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), map[string][]ExtensionRow{"extensions": rows})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no extension waits for a decision")
				return nil
			}
			return WriteExtensionTable(cmd.OutOrStdout(), rows, all, decided, time.Now())
		},
	}
	addClusterFlags(cmd, &options)
	addNamespaceFlag(cmd, &options)
	addAllNamespacesFlag(cmd, &all)
	cmd.Flags().BoolVar(&decided, "decided", false, "those too that were decided")
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func approveCommand() *cobra.Command {
	return decideCommand("approve", "Approve an extension", v1alpha1.ExtensionApproved)
}

func refuseCommand() *cobra.Command {
	return decideCommand("refuse", "Refuse an extension", v1alpha1.ExtensionDenied)
}

func decideCommand(name, short string, decision v1alpha1.ExtensionDecision) *cobra.Command {
	var options ClusterOptions
	var message, output string
	cmd := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    short + ". A decision stands: it cannot be taken back.",
		Example: fmt.Sprintf("  sluice %s job-training-x7k2p -n thesis-mueller --message \"see you on Monday\"", name),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			key := types.NamespacedName{Namespace: c.Namespace, Name: args[0]}
			decided, err := DecideExtension(cmd.Context(), c, key, decision, message)
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), NewExtensionRow(decided))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "extension %s (%s) is %s\n", decided.Name, DescribeExtensionRequest(decided), strings.ToLower(string(decision)))
			return nil
		},
	}
	addClusterFlags(cmd, &options)
	addNamespaceFlag(cmd, &options)
	cmd.Flags().StringVar(&message, "message", "", "what whoever asked shall read")
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// ListExtensions reads the Extensions of a namespace, or of all where it is empty, the
// oldest first: those that wait for a decision, and with decided the others too.
func ListExtensions(ctx context.Context, c client.Reader, namespace string, decided bool) ([]ExtensionRow, error) {
	var list v1alpha1.ExtensionList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		hint := ""
		if apierrors.IsForbidden(err) && namespace == "" {
			hint = "; name a namespace with -n"
		}
		return nil, fmt.Errorf("reading extensions: %w%s", err, hint)
	}
	rows := []ExtensionRow{}
	for i := range list.Items {
		if decided || list.Items[i].Status.Decision == "" {
			rows = append(rows, NewExtensionRow(&list.Items[i]))
		}
	}
	slices.SortFunc(rows, func(a, b ExtensionRow) int {
		return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
}

// DecideExtension writes a decision on an Extension, with a message that may be empty, and
// returns the Extension as it is then. A decision stands: it fails where there is
// one. Who decides, and when, the cluster knows by itself.
func DecideExtension(ctx context.Context, c client.Client, key types.NamespacedName, decision v1alpha1.ExtensionDecision, message string) (*v1alpha1.Extension, error) {
	if n := utf8.RuneCountInString(message); n > maxExtensionTextLength {
		return nil, fmt.Errorf("--message: it has %d characters; want at most %d", n, maxExtensionTextLength)
	}
	extension := &v1alpha1.Extension{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, key, extension); err != nil {
			return err
		}
		if extension.Status.Decision != "" {
			return fmt.Errorf("it was decided already: %s; a decision stands", DescribeExtensionOutcome(extension, time.Local))
		}
		// With a lock: two who decide at once must not both think it was them.
		patch := client.MergeFromWithOptions(extension.DeepCopy(), client.MergeFromWithOptimisticLock{})
		extension.Status.Decision, extension.Status.Message = decision, message
		return c.Status().Patch(ctx, extension, patch, client.FieldOwner(v1alpha1.FieldManagerCLI))
	})
	if err != nil {
		return nil, fmt.Errorf("extension %s in namespace %s: %w", key.Name, key.Namespace, err)
	}
	return extension, nil
}
