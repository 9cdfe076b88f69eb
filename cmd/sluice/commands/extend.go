// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
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
)

const (
	decisionPollInterval = 500 * time.Millisecond
	// maxExtensionTextLength limits the characters of a reason and of a message.
	maxExtensionTextLength = 500
)

func newExtendCommand() *cobra.Command {
	var by, reason string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "extend NAME",
		Short: "Request more time for a workload",
		Long: `Request more time for a workload, and wait for the decision. Requests within your
department's self-service are approved at once. An approver decides all others. The
command fails if the request is denied. NAME is the workload, or KIND/NAME if several have
the name. To renew a project, use sluice renew.`,
		Example: `  # Request 24 more hours for a workload
  sluice extend training --by 24h --reason "the last epoch is left"

  # Request 24 more hours for a Job of another namespace
  sluice extend job/training -n thesis-mueller --by 24h --reason "two epochs are left"`,
		Args: cobra.ExactArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	cmd.ValidArgsFunction = flags.completeWorkload
	output := addTextOutputFlag(cmd)
	cmd.Flags().StringVar(&by, "by", "", "Additional time, such as 24h")
	cmd.Flags().StringVar(&reason, "reason", "", "Reason of the request, in one sentence")
	addWaitFlag(cmd, &timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var length period.Duration
		var err error
		if by != "" {
			if length, err = period.ParseDuration(by); err != nil {
				return fmt.Errorf("--by: %w", err)
			}
		}
		c, err := flags.connectWorkloads(cmd)
		if err != nil {
			return err
		}
		text := args[0]
		if !strings.Contains(text, "/") {
			w, err := c.reader.Find(cmd.Context(), c.namespace, text)
			if err != nil {
				return err
			}
			kind := w.Object.GroupVersionKind().GroupKind()
			text = strings.ToLower(kind.String()) + "/" + text // such as job.batch/training
		}
		target, err := resolveExtensionTarget(cmd.Context(), c, c.namespace, text)
		if err != nil {
			return err
		}
		extension, err := newExtension(target, v1alpha1.ActionExtend, reason)
		switch {
		case err != nil:
			return err
		case length.IsZero():
			return errors.New("--by: required; give the additional time, such as 24h")
		}
		extension.Spec.By = &length
		if err := createExtension(cmd.Context(), c, extension, waitOptions{timeout, decisionPollInterval}); err != nil {
			return err
		}
		return printExtensionOutcome(cmd, extension, output)
	}
	return cmd
}

func addWaitFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "wait", 30*time.Second, "Time to wait for the decision; 0 does not wait")
}

// printExtensionOutcome prints the decision on an Extension. It fails if the
// Extension was denied.
func printExtensionOutcome(cmd *cobra.Command, extension *v1alpha1.Extension, output *outputFlag) error {
	outcome := describeExtensionOutcome(extension, time.Local)
	denied := extension.Status.Decision == v1alpha1.ExtensionDenied
	err := output.print(cmd.OutOrStdout(), newExtensionRow(extension), func(output io.Writer) error {
		if denied {
			return nil
		}
		fmt.Fprintf(output, "Extension %s: %s\n", extension.Name, outcome)
		if extension.Status.Decision == "" {
			fmt.Fprintf(output, "To see the decision later: kubectl get slext %s -n %s\n", extension.Name, extension.Namespace)
		}
		return nil
	})
	if err == nil && denied {
		return fmt.Errorf("extension %s was %s", extension.Name, outcome)
	}
	return err
}

// newExtension returns an Extension that requests an action. Its caller sets the fields of that action.
func newExtension(target resolvedTarget, action v1alpha1.ExtensionAction, reason string) (*v1alpha1.Extension, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, errors.New("--reason: required; give the approver a reason in one sentence")
	}
	if n := utf8.RuneCountInString(reason); n > maxExtensionTextLength {
		return nil, fmt.Errorf("--reason: it has %d characters; want at most %d", n, maxExtensionTextLength)
	}
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    target.Namespace,
			GenerateName: strings.ToLower(target.Kind) + "-" + target.Name + "-",
		},
		Spec: v1alpha1.ExtensionSpec{Target: target.ExtensionTarget, Action: action, Reason: reason},
	}, nil
}

// waitOptions limit how long a command waits for a decision, in real time.
type waitOptions struct {
	// timeout is 0 for no waiting.
	timeout, pollInterval time.Duration
}

// createExtension creates an Extension and waits for its outcome.
func createExtension(ctx context.Context, c client.Client, extension *v1alpha1.Extension, options waitOptions) error {
	if err := c.Create(ctx, extension, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		target := extension.Spec.Target
		return fmt.Errorf("create extension for %s %s in namespace %s: %w", target.Kind, target.Name, extension.Namespace, err)
	}
	return waitForExtension(ctx, c, extension, options)
}

// waitForExtension waits until an Extension is denied or applied, and updates
// extension to its last version. A timeout is no error. The end of ctx and the
// deletion of the Extension are.
func waitForExtension(ctx context.Context, c client.Reader, extension *v1alpha1.Extension, options waitOptions) error {
	if options.timeout <= 0 {
		return nil
	}
	key := client.ObjectKeyFromObject(extension)
	waitCtx, cancel := context.WithTimeout(ctx, options.timeout)
	defer cancel()
	// A request uses ctx, so that the timeout does not make it fail.
	err := wait.PollUntilContextCancel(waitCtx, options.pollInterval, true, func(context.Context) (bool, error) {
		var latest v1alpha1.Extension
		if err := c.Get(ctx, key, &latest); err != nil {
			return false, err
		}
		*extension = latest
		return extensionCompleted(extension), nil
	})
	if err != nil && (ctx.Err() != nil || waitCtx.Err() == nil) {
		return fmt.Errorf("wait for the decision on extension %s: %w", extension.Name, err)
	}
	return nil
}

// extensionCompleted reports whether an Extension is denied or applied.
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

// appliedCondition returns the condition Applied of an approved Extension. It is
// nil while the condition is from before the decision.
func appliedCondition(extension *v1alpha1.Extension) *metav1.Condition {
	applied := meta.FindStatusCondition(extension.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Reason == v1alpha1.ReasonAwaitingDecision {
		return nil
	}
	return applied
}
