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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/outbox"
)

func newNoticesPauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause all mail",
		Long:  "Pause all mail until you resume it. Notices wait meanwhile; deadlines do not.",
		Example: `  # Pause mail and record the reason
  sluice notices pause --reason "the mail server moves"`,
		Args: cobra.NoArgs,
	}
	reason := cmd.Flags().String("reason", "", "Reason, in one line")
	return addMailStateRun(cmd, func(ctx context.Context, c client.Client) (mailState, error) {
		return pauseMail(ctx, c, *reason, time.Now())
	})
}

func newNoticesResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume mail",
		Long:  "Resume mail after a pause. Sluice sends the waiting notices first.",
		Example: `  # Resume mail
  sluice notices resume`,
		Args: cobra.NoArgs,
	}
	return addMailStateRun(cmd, resumeMail)
}

// addMailStateRun makes a command change the state of mail and print it.
func addMailStateRun(cmd *cobra.Command, change func(context.Context, client.Client) (mailState, error)) *cobra.Command {
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		state, err := change(cmd.Context(), c)
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), state, state.text(time.Local))
	}
	return cmd
}

// mailState is the state of mail as the commands print it.
type mailState struct {
	Paused bool   `json:"paused"`
	Reason string `json:"reason,omitempty"`
	// Since is the real time of the pause.
	Since *time.Time `json:"since,omitempty"`
	// PausedByLifecycle reports whether lifecycle paused mail because its
	// configuration failed. Mail resumes with a changed configuration.
	PausedByLifecycle bool `json:"pausedByLifecycle,omitempty"`
}

// maxPauseReasonLength limits the characters of a reason.
const maxPauseReasonLength = 256

var errMailNotPaused = errors.New("mail is not paused")

var mailStateKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: outbox.MailStateConfigMapName}

// getMailState returns the state of mail. A missing ConfigMap means that mail was
// never paused.
func getMailState(ctx context.Context, c client.Reader) (mailState, error) {
	object := &corev1.ConfigMap{}
	if err := client.IgnoreNotFound(c.Get(ctx, mailStateKey, object)); err != nil {
		return mailState{}, fmt.Errorf("get the state of mail: %w", explainForbidden(err, mailStateAccessHint))
	}
	return newMailState(object), nil
}

func newMailState(object *corev1.ConfigMap) mailState {
	parsed := outbox.ParseMailState(object)
	if !parsed.Paused {
		return mailState{}
	}
	state := mailState{Paused: true, Reason: parsed.Reason, PausedByLifecycle: parsed.FailedConfiguration != ""}
	if at, err := time.Parse(time.RFC3339, object.Data[outbox.MailStatePausedAtKey]); err == nil {
		state.Since = optionalTime(&metav1.Time{Time: at})
	}
	return state
}

// pauseMail pauses mail from now, real time, for a reason that may be empty. Mail
// that is being sent is still sent.
func pauseMail(ctx context.Context, c client.Client, reason string, now time.Time) (mailState, error) {
	if utf8.RuneCountInString(reason) > maxPauseReasonLength || strings.ContainsAny(reason, "\n\r") {
		return mailState{}, fmt.Errorf("--reason: want one line of at most %d characters", maxPauseReasonLength)
	}
	return updateMailState(ctx, c, "pause mail", func(object *corev1.ConfigMap) error {
		clearPauseKeys(object)
		object.Data[outbox.MailStatePausedKey] = "true"
		object.Data[outbox.MailStatePausedAtKey] = now.UTC().Format(time.RFC3339)
		if reason != "" {
			object.Data[outbox.MailStateReasonKey] = reason
		}
		return nil
	})
}

// resumeMail resumes mail. It fails with [errMailNotPaused] if mail is not paused.
func resumeMail(ctx context.Context, c client.Client) (mailState, error) {
	return updateMailState(ctx, c, "resume mail", func(object *corev1.ConfigMap) error {
		if !outbox.ParseMailState(object).Paused {
			return errMailNotPaused
		}
		clearPauseKeys(object)
		return nil
	})
}

// clearPauseKeys keeps the keys that do not describe a pause.
func clearPauseKeys(object *corev1.ConfigMap) {
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	for _, key := range []string{
		outbox.MailStatePausedKey, outbox.MailStateReasonKey, outbox.MailStatePausedAtKey, outbox.MailStateConfigurationKey,
	} {
		delete(object.Data, key)
	}
}

// updateMailState patches or creates the ConfigMap. It keeps what lifecycle writes
// at the same time.
func updateMailState(ctx context.Context, c client.Client, operation string, mutate func(*corev1.ConfigMap) error) (mailState, error) {
	var state mailState
	retriable := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, retriable, func() error {
		object := &corev1.ConfigMap{}
		err := c.Get(ctx, mailStateKey, object)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return fmt.Errorf("%s: %w", operation, explainForbidden(err, mailStateAccessHint))
		}
		before := object.DeepCopy()
		if err := mutate(object); err != nil {
			return err
		}
		if missing {
			object.ObjectMeta = metav1.ObjectMeta{Namespace: mailStateKey.Namespace, Name: mailStateKey.Name}
			err = c.Create(ctx, object, client.FieldOwner(v1alpha1.FieldManagerCLI))
		} else {
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			err = c.Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldManagerCLI))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", operation, explainForbidden(err, mailStateAccessHint))
		}
		state = newMailState(object)
		return nil
	})
	return state, err
}

const mailStateAccessHint = noticeAccessHint + "get, create and patch the ConfigMap " + outbox.MailStateConfigMapName +
	" in namespace " + v1alpha1.SystemNamespace

// text returns the state as text, with times in zone.
func (s mailState) text(zone *time.Location) string {
	if !s.Paused {
		return "Mail is not paused.\n"
	}
	var text strings.Builder
	text.WriteString("Mail is paused")
	if s.Since != nil {
		text.WriteString(" since " + printer.FormatSecond(*s.Since, zone))
	}
	text.WriteString(": notices wait, and none is lost.\n")
	if s.Reason != "" {
		fmt.Fprintf(&text, "Reason: %s\n", printer.Sanitize(s.Reason))
	}
	if s.PausedByLifecycle {
		text.WriteString("Mail resumes with a changed configuration or Secret. To retry with the same: sluice notices resume\n")
	} else {
		text.WriteString("To resume mail: sluice notices resume\n")
	}
	return text.String()
}
