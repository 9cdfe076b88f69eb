// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// decisionPollInterval is how often a decision is looked for.
const decisionPollInterval = 500 * time.Millisecond

func extendCommand() *cobra.Command {
	var options ClusterOptions
	var by, reason, output string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "extend KIND/NAME",
		Short: "Ask for more time for a workload, or for the renewal of a project",
		Long: `extend asks for more time, and waits a while for the answer. What your department
grants by itself is granted at once; on everything else somebody decides. It ends
with an error where the answer is no.`,
		Example: `  sluice extend job/training -n thesis-mueller --by 24h --reason "two epochs are left"
  sluice extend project/thesis-mueller --reason "the defense is in June"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var length period.Duration
			var err error
			if by != "" {
				if length, err = period.ParseDuration(by); err != nil {
					return fmt.Errorf("--by: %w", err)
				}
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			target, err := ResolveExtensionTarget(cmd.Context(), c, c.Namespace, args[0])
			if err != nil {
				return err
			}
			asked, err := NewExtension(target, length, reason)
			if err != nil {
				return err
			}
			if err := CreateExtension(cmd.Context(), c, asked, WaitOptions{Timeout: within, PollInterval: decisionPollInterval}); err != nil {
				return err
			}
			return printExtensionOutcome(cmd, asked, output)
		},
	}
	addClusterFlags(cmd, &options)
	addNamespaceFlag(cmd, &options)
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "", "how much more time a workload shall have, such as 24h; a project takes none")
	flags.StringVar(&reason, "reason", "", "why, in a sentence")
	flags.DurationVar(&within, "wait", 30*time.Second, "how long to wait for the answer; 0 for not at all")
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// printExtensionOutcome says what became of an Extension; a refusal is an error.
func printExtensionOutcome(cmd *cobra.Command, asked *v1alpha1.Extension, form string) error {
	outcome := DescribeExtensionOutcome(asked, time.Local)
	if form == "json" {
		if err := printer.WriteJSON(cmd.OutOrStdout(), NewExtensionRow(asked)); err != nil {
			return err
		}
	}
	if asked.Status.Decision == v1alpha1.ExtensionDenied {
		return fmt.Errorf("extension %s was %s", asked.Name, outcome)
	}
	if form == "json" {
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "extension %s: %s\n", asked.Name, outcome)
	if asked.Status.Decision == "" {
		fmt.Fprintf(cmd.OutOrStdout(), "to see later what became of it: kubectl get slext %s -n %s\n", asked.Name, asked.Namespace)
	}
	return nil
}

// maxExtensionTextLength is how many characters a reason and a message may have.
const maxExtensionTextLength = 500

// NewExtension is the Extension that asks for a target: for more time, which by says, or,
// for a project, for another period of validity, where by stays zero.
func NewExtension(target ResolvedTarget, by period.Duration, reason string) (*v1alpha1.Extension, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, errors.New("--reason: say in a sentence why; whoever decides reads it")
	}
	if n := utf8.RuneCountInString(reason); n > maxExtensionTextLength {
		return nil, fmt.Errorf("--reason: it has %d characters; want at most %d", n, maxExtensionTextLength)
	}
	extension := &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    target.Namespace,
			GenerateName: strings.ToLower(target.Kind) + "-" + target.Name + "-",
		},
		Spec: v1alpha1.ExtensionSpec{Target: target.ExtensionTarget, Action: v1alpha1.ActionExtend, Reason: reason},
	}
	switch {
	case target.isProject() && !by.IsZero():
		return nil, fmt.Errorf("--by %s: a project is renewed by a whole period of its validity; leave --by out", by)
	case target.isProject():
		extension.Spec.Action = v1alpha1.ActionRenew
	case by.IsZero():
		return nil, errors.New("--by: say how much more time the workload shall have, such as 24h")
	default:
		extension.Spec.By = &by
	}
	return extension, nil
}

// CreateExtension makes an Extension, and waits for what becomes of it as [Await] does.
func CreateExtension(ctx context.Context, c client.Client, extension *v1alpha1.Extension, patience WaitOptions) error {
	if err := c.Create(ctx, extension, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		target := extension.Spec.Target
		return fmt.Errorf("asking for %s %s in namespace %s: %w", target.Kind, target.Name, extension.Namespace, err)
	}
	return WaitForExtension(ctx, c, extension, patience)
}

// WaitOptions is how long a decision is waited for.
type WaitOptions struct {
	// Timeout is the longest time, of machine time; 0 waits for nothing.
	Timeout time.Duration
	// PollInterval is how often is looked.
	PollInterval time.Duration
}

// WaitForExtension waits until an Extension was refused or carried out, and leaves it in
// extension as it was last seen. It is no error if that has not come in time; it
// is one if ctx ends, or if the Extension is deleted.
func WaitForExtension(ctx context.Context, c client.Reader, extension *v1alpha1.Extension, patience WaitOptions) error {
	if patience.Timeout <= 0 {
		return nil
	}
	key := client.ObjectKeyFromObject(extension)
	waiting, cancel := context.WithTimeout(ctx, patience.Timeout)
	defer cancel()
	// The requests do not end with the waiting: one that is late is no answer.
	err := wait.PollUntilContextCancel(waiting, patience.PollInterval, true, func(context.Context) (bool, error) {
		var seen v1alpha1.Extension
		if err := c.Get(ctx, key, &seen); err != nil {
			return false, err
		}
		*extension = seen
		return extensionCompleted(extension), nil
	})
	if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
		return fmt.Errorf("waiting for a decision on extension %s: %w", extension.Name, err)
	}
	return nil
}

// extensionCompleted reports whether nothing more comes of an Extension.
func extensionCompleted(extension *v1alpha1.Extension) bool {
	switch extension.Status.Decision {
	case v1alpha1.ExtensionDenied:
		return true
	case v1alpha1.ExtensionApproved:
		return extension.Status.NewEnd != nil || appliedCondition(extension) != nil
	default:
		return false
	}
}

// appliedCondition is what the condition Applied says of an approved Extension; nil while
// that is still to come, and the condition speaks of the time before the decision.
func appliedCondition(extension *v1alpha1.Extension) *metav1.Condition {
	applied := meta.FindStatusCondition(extension.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Reason == v1alpha1.ReasonAwaitingDecision {
		return nil
	}
	return applied
}
