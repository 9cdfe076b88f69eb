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

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/outbox"
)

func noticesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "Show who is told what, and have mail sent again, paused or resumed",
		Example: `  sluice notices list --project thesis-mueller
  sluice notices list --phase Failed
  sluice notices test anna.mueller@example.org
  sluice notices preview WorkloadEnding --language de
  sluice notices pause --reason "the mail server moves"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(noticesListCommand(), noticesShowCommand(), noticesResendCommand(), noticesTestCommand(), noticesPauseCommand(), noticesResumeCommand(), noticesPreviewCommand())
	return cmd
}

func noticesListCommand() *cobra.Command {
	var options ClusterOptions
	var filter NoticeFilter
	var phase, output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the messages that were or will be sent, by when they are due",
		Example: `  sluice notices list --project thesis-mueller
  sluice notices list --recipient anna.mueller@example.org -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if filter.Phase, err = ParseNoticePhase(phase); err != nil {
				return fmt.Errorf("--phase %w", err)
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			rows, err := ListNotices(cmd.Context(), c, filter)
			if err != nil {
				return err
			}
			// Who may list notices need not be able to read this.
			state, stateErr := GetMailState(cmd.Context(), c)
			if output == "json" {
				document := map[string]any{"notices": rows}
				if stateErr == nil {
					document["mail"] = state
				}
				return printer.WriteJSON(cmd.OutOrStdout(), document)
			}
			if stateErr == nil && state.Paused {
				fmt.Fprint(cmd.ErrOrStderr(), state.Text(time.Local))
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "there is no such notice")
				return nil
			}
			return WriteNoticeTable(cmd.OutOrStdout(), rows, time.Local)
		},
	}
	addClusterFlags(cmd, &options)
	cmd.Flags().StringVar(&filter.Project, "project", "", "those about this `project`")
	cmd.Flags().StringVar(&filter.Recipient, "recipient", "", "those to this `address`")
	cmd.Flags().StringVar(&phase, "phase", "", "those in this `phase`: Pending, Sending, Sent, Failed, Superseded")
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

func noticesShowCommand() *cobra.Command {
	var options ClusterOptions
	var output string
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a message, how far it has come, and its mail",
		Example: "  sluice notices show workloadending-training-4f13efbc5eee7150d5e2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			shown, err := GetNoticeDetails(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), shown)
			}
			fmt.Fprint(cmd.OutOrStdout(), shown.Text(time.Local))
			return nil
		},
	}
	addClusterFlags(cmd, &options)
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

func noticesResendCommand() *cobra.Command {
	var options ClusterOptions
	cmd := &cobra.Command{
		Use:   "resend NAME",
		Short: "Have a message sent again that was sent, failed or was set aside",
		Long: `resend asks for one more sending. The mail has the same Message-ID, so that whoever
has it already sees it once.`,
		Example: "  sluice notices resend workloadending-training-4f13efbc5eee7150d5e2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			if err := ResendNotice(cmd.Context(), c, args[0], time.Now()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "notice %s will be sent again\n", args[0])
			if state, err := GetMailState(cmd.Context(), c); err == nil && state.Paused {
				fmt.Fprint(cmd.ErrOrStderr(), "but not now: "+state.Text(time.Local))
			}
			return nil
		},
	}
	addClusterFlags(cmd, &options)
	return cmd
}

// noticePageSize is how many Notices are asked for at once.
const noticePageSize = 500

// NoticeFilter says which Notices are meant; empty fields mean any.
type NoticeFilter struct {
	// Project is a project's name; a digest counts if it carries something of it.
	Project string
	// Recipient is an address, in upper or lower case.
	Recipient string
	// Phase is where they are.
	Phase v1alpha1.NoticePhase
}

// noticePhases are those that there are.
var noticePhases = []v1alpha1.NoticePhase{
	v1alpha1.NoticePending, v1alpha1.NoticeSending, v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded,
}

// ParseNoticePhase reads a phase, in upper or lower case; empty for any.
func ParseNoticePhase(text string) (v1alpha1.NoticePhase, error) {
	if text == "" {
		return "", nil
	}
	for _, p := range noticePhases {
		if strings.EqualFold(text, string(p)) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%q: want Pending, Sending, Sent, Failed or Superseded", text)
}

// ListNotices reads the Notices that are meant, by when they are due.
func ListNotices(ctx context.Context, c client.Reader, filter NoticeFilter) ([]NoticeRow, error) {
	all, err := listAllNotices(ctx, c)
	if err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.Notice{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	rows := []NoticeRow{}
	for i := range all {
		if filter.matches(&all[i], byName) {
			rows = append(rows, NewNoticeRow(&all[i]))
		}
	}
	slices.SortFunc(rows, func(a, b NoticeRow) int { return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Name, b.Name)) })
	return rows, nil
}

func listAllNotices(ctx context.Context, c client.Reader) (all []v1alpha1.Notice, err error) {
	for next := ""; ; {
		list := v1alpha1.NoticeList{}
		if err := c.List(ctx, &list, client.Limit(noticePageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("reading notices: %w%s", err, noticeAccessHint(err, "get and list notices"))
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

func (f NoticeFilter) matches(n *v1alpha1.Notice, byName map[string]*v1alpha1.Notice) bool {
	if f.Phase != "" && noticePhase(n) != f.Phase || f.Recipient != "" && !strings.EqualFold(string(n.Spec.Recipient.Email), f.Recipient) {
		return false
	}
	if f.Project == "" || noticeProject(n) == f.Project {
		return true
	}
	return slices.ContainsFunc(outbox.CarriedNotices(n), func(name string) bool {
		carried := byName[name]
		return carried != nil && noticeProject(carried) == f.Project
	})
}

// noticeAccessHint says whose business it is.
func noticeAccessHint(err error, what string) string {
	if apierrors.IsForbidden(err) {
		return "; this is for administrators of the cluster and for who has the role sluice:mail-administrator, who may " + what
	}
	return ""
}

// ResendNotice asks for a Notice to be sent again, as of an instant of machine time. It fails
// where it is on its way in any case. The mail is the same: who has it already sees it
// once.
func ResendNotice(ctx context.Context, c client.Client, name string, now time.Time) error {
	n, err := getNotice(ctx, c, name)
	if err != nil {
		return err
	}
	switch phase := noticePhase(n); phase {
	case v1alpha1.NoticePending, v1alpha1.NoticeSending:
		when := ""
		if n.Status.RetryAt != nil {
			when = ", the next time at " + n.Status.RetryAt.UTC().Format(time.RFC3339)
		}
		return fmt.Errorf("notice %s is %s: it is sent in any case%s", name, phase, when)
	}
	// A wish counts if it is later than the last attempt, to the second: one of this very
	// second, or of a clock that was ahead, would answer it.
	if last := n.Status.ClaimedAt; last != nil && !now.Truncate(time.Second).After(last.Time) {
		now = last.Add(time.Second)
	}
	patch := client.MergeFrom(n.DeepCopy())
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationResend, now.UTC().Format(time.RFC3339))
	if err := c.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return fmt.Errorf("asking for notice %s again: %w%s", name, err, noticeAccessHint(err, "get and patch notices"))
	}
	return nil
}
