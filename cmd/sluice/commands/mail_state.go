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

func noticesPauseCommand() *cobra.Command {
	var reason string
	cmd := mailDeliveryCommand(func(ctx context.Context, c *ClusterClient) (MailState, error) {
		return PauseMail(ctx, c, reason, time.Now())
	})
	cmd.Use, cmd.Short = "pause", "Have no mail sent until it is resumed"
	cmd.Long = "pause has no mail sent until somebody resumes it. What is due waits; deadlines do not."
	cmd.Example = `  sluice notices pause --reason "the mail server moves"`
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a `sentence`")
	return cmd
}

func noticesResumeCommand() *cobra.Command {
	cmd := mailDeliveryCommand(func(ctx context.Context, c *ClusterClient) (MailState, error) {
		return ResumeMail(ctx, c)
	})
	cmd.Use, cmd.Short = "resume", "Have mail sent again, all that waits first"
	cmd.Example = "  sluice notices resume"
	return cmd
}

// mailDeliveryCommand is a command that changes whether mail is sent.
func mailDeliveryCommand(change func(context.Context, *ClusterClient) (MailState, error)) *cobra.Command {
	var options ClusterOptions
	var output string
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			state, err := change(cmd.Context(), c)
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), state)
			}
			fmt.Fprint(cmd.OutOrStdout(), state.Text(time.Local))
			return nil
		},
	}
	addClusterFlags(cmd, &options)
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// MailState is whether mail is sent.
type MailState struct {
	// Paused is true while nothing is sent, Because why, and Since, machine time, since
	// when.
	Paused bool       `json:"paused"`
	Reason string     `json:"because,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// PausedByLifecycle is true where lifecycle itself paused mail, for a configuration that
	// does not work: with another, mail goes on by itself.
	PausedByLifecycle bool `json:"byLifecycle,omitempty"`
}

// maxPauseReasonLength is how many characters a reason may have.
const maxPauseReasonLength = 256

// ErrMailNotPaused is that there is nothing to resume.
var ErrMailNotPaused = errors.New("mail is not paused")

var mailStateKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: outbox.MailStateConfigMapName}

// GetMailState reads whether mail is sent. Where nobody ever paused it, it is.
func GetMailState(ctx context.Context, c client.Reader) (MailState, error) {
	object := &corev1.ConfigMap{}
	if err := c.Get(ctx, mailStateKey, object); client.IgnoreNotFound(err) != nil {
		return MailState{}, fmt.Errorf("reading whether mail is paused: %w%s", err, mailStateAccessHint(err))
	}
	return newMailState(object), nil
}

func newMailState(object *corev1.ConfigMap) MailState {
	read := outbox.ParseMailState(object)
	if !read.Paused {
		return MailState{}
	}
	s := MailState{Paused: true, Reason: read.Reason, PausedByLifecycle: read.FailedConfiguration != ""}
	if at, err := time.Parse(time.RFC3339, object.Data[outbox.MailStatePausedAtKey]); err == nil {
		at = at.UTC()
		s.Since = &at
	}
	return s
}

// PauseMail has no mail sent from now on, machine time, until somebody resumes it; the
// reason may be empty. What is being sent is sent.
func PauseMail(ctx context.Context, c client.Client, reason string, now time.Time) (MailState, error) {
	if utf8.RuneCountInString(reason) > maxPauseReasonLength || strings.ContainsAny(reason, "\n\r") {
		return MailState{}, fmt.Errorf("--reason: want one line of at most %d characters", maxPauseReasonLength)
	}
	return updateMailState(ctx, c, "pausing mail", func(object *corev1.ConfigMap) error {
		clearPauseKeys(object)
		object.Data[outbox.MailStatePausedKey] = "true"
		object.Data[outbox.MailStatePausedAtKey] = now.UTC().Format(time.RFC3339)
		if reason != "" {
			object.Data[outbox.MailStateReasonKey] = reason
		}
		return nil
	})
}

// ResumeMail has mail sent again. It fails with [ErrNotPaused] where it is sent already.
func ResumeMail(ctx context.Context, c client.Client) (MailState, error) {
	return updateMailState(ctx, c, "resuming mail", func(object *corev1.ConfigMap) error {
		if !outbox.ParseMailState(object).Paused {
			return ErrMailNotPaused
		}
		clearPauseKeys(object)
		return nil
	})
}

// clearPauseKeys leaves of the state what is not about a pause.
func clearPauseKeys(object *corev1.ConfigMap) {
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	for _, key := range []string{outbox.MailStatePausedKey, outbox.MailStateReasonKey, outbox.MailStatePausedAtKey, outbox.MailStateConfigurationKey} {
		delete(object.Data, key)
	}
}

// updateMailState changes the ConfigMap, or makes it. Lifecycle may write at the same time;
// what it writes is kept.
func updateMailState(ctx context.Context, c client.Client, what string, how func(*corev1.ConfigMap) error) (MailState, error) {
	var state MailState
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		object := &corev1.ConfigMap{}
		err := c.Get(ctx, mailStateKey, object)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return fmt.Errorf("%s: %w%s", what, err, mailStateAccessHint(err))
		}
		before := object.DeepCopy()
		if err := how(object); err != nil {
			return err
		}
		if missing {
			object.ObjectMeta = metav1.ObjectMeta{Namespace: mailStateKey.Namespace, Name: mailStateKey.Name}
			err = c.Create(ctx, object, client.FieldOwner(v1alpha1.FieldManagerCLI))
		} else {
			err = c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManagerCLI))
		}
		if err != nil {
			return fmt.Errorf("%s: %w%s", what, err, mailStateAccessHint(err))
		}
		state = newMailState(object)
		return nil
	})
	return state, err
}

func mailStateAccessHint(err error) string {
	return noticeAccessHint(err, fmt.Sprintf("get, create and patch the ConfigMap %s in namespace %s", mailStateKey.Name, mailStateKey.Namespace))
}

// Text is the state for a person, in lines; times in zone.
func (s MailState) Text(zone *time.Location) string {
	if !s.Paused {
		return "mail is sent\n"
	}
	var text strings.Builder
	text.WriteString("mail is paused")
	if s.Since != nil {
		text.WriteString(" since " + printer.FormatSecond(*s.Since, zone))
	}
	text.WriteString(": what is due waits, nothing is lost\n")
	if s.Reason != "" {
		fmt.Fprintf(&text, "the reason: %s\n", printer.Sanitize(s.Reason))
	}
	if s.PausedByLifecycle {
		text.WriteString("it goes on by itself with another configuration or Secret; to try with the same: sluice notices resume\n")
	} else {
		text.WriteString("to go on: sluice notices resume\n")
	}
	return text.String()
}
