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
	"sluice.dev/lifecycle/notification/outbox"
)

const noticesHelp = `Show notices, send them again, or pause mail.

A notice is one message to one person: a warning, an end, a decision or a digest.
These commands are for administrators of the cluster and for users with the role
sluice:mail-administrator.`

// noticeAccessHint is the beginning of a hint, which an operation completes.
const noticeAccessHint = "this is for administrators of the cluster and for users with the role sluice:mail-administrator, who may "

func newNoticesListCommand() *cobra.Command {
	var filter noticeFilter
	var phase string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List notices",
		Long:  "List notices by the time at which they are due.",
		Example: `  # List the notices about a project
  sluice notices list --project thesis-mueller

  # List the notices that failed
  sluice notices list --phase Failed

  # List the notices to one address as JSON
  sluice notices list --recipient anna.mueller@example.org -o json`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addListOutputFlag(cmd)
	cmd.Flags().StringVarP(&filter.project, "project", "p", "", "List the notices about this project")
	completeFlag(cmd, "project", cluster.completeProjects)
	cmd.Flags().StringVar(&filter.recipient, "recipient", "", "List the notices to this address")
	addChoiceFlag(cmd, &phase, "phase", "", "List the notices in this phase", noticePhases)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter.phase = v1alpha1.NoticePhase(phase)
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		rows, err := listNotices(cmd.Context(), c, filter)
		if err != nil {
			return err
		}
		document := map[string]any{"notices": rows}
		// A user may list notices without reading the state of mail.
		if state, err := getMailState(cmd.Context(), c); err == nil {
			document["mail"] = state
			if state.Paused && !output.isObject() {
				fmt.Fprint(cmd.ErrOrStderr(), state.text(time.Local))
			}
		}
		return output.printList(cmd, document, noticeTable(rows, time.Local), "notices")
	}
	return cmd
}

func newNoticesShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a notice and its mail",
		Long:  "Show a notice, the attempts to send it, and its mail.",
		Example: `  # Show a notice
  sluice notices show workloadending-training-4f13efbc5eee7150d5e2`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		details, err := getNoticeDetails(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return output.printText(cmd.OutOrStdout(), details, details.text(time.Local))
	}
	return cmd
}

func newNoticesResendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resend NAME",
		Short: "Send a notice again",
		Long: `Send a notice again that was sent, failed or was superseded. The mail has the same
Message-ID, so the recipient sees it once.`,
		Example: `  # Send a notice again
  sluice notices resend workloadending-training-4f13efbc5eee7150d5e2`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		n, err := resendNotice(cmd.Context(), c, args[0], time.Now())
		if err != nil {
			return err
		}
		if state, err := getMailState(cmd.Context(), c); err == nil && state.Paused {
			fmt.Fprint(cmd.ErrOrStderr(), state.text(time.Local))
		}
		return output.printText(cmd.OutOrStdout(), newNoticeRow(n), fmt.Sprintf("Notice %s will be sent again.\n", n.Name))
	}
	return cmd
}

// noticeFilter selects notices. Empty fields select all.
type noticeFilter struct {
	// project also selects digests that carry a notice about the project.
	project string
	// recipient is an address in any case.
	recipient string
	phase     v1alpha1.NoticePhase
}

var noticePhases = []string{
	string(v1alpha1.NoticePending), string(v1alpha1.NoticeSending), string(v1alpha1.NoticeSent),
	string(v1alpha1.NoticeFailed), string(v1alpha1.NoticeSuperseded),
}

// listNotices lists the selected notices by the time at which they are due.
func listNotices(ctx context.Context, c client.Reader, filter noticeFilter) ([]noticeRow, error) {
	all, err := listAllNotices(ctx, c)
	if err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.Notice{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	rows := []noticeRow{}
	for i := range all {
		if filter.matches(&all[i], byName) {
			rows = append(rows, newNoticeRow(&all[i]))
		}
	}
	slices.SortFunc(rows, func(a, b noticeRow) int { return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Name, b.Name)) })
	return rows, nil
}

func listAllNotices(ctx context.Context, c client.Reader) (all []v1alpha1.Notice, err error) {
	err = listPages(ctx, c, func(page *v1alpha1.NoticeList) { all = append(all, page.Items...) })
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", explainForbidden(err, noticeAccessHint+"get and list notices"))
	}
	return all, nil
}

func (f noticeFilter) matches(n *v1alpha1.Notice, byName map[string]*v1alpha1.Notice) bool {
	if f.phase != "" && noticePhase(n) != f.phase || f.recipient != "" && !strings.EqualFold(string(n.Spec.Recipient.Email), f.recipient) {
		return false
	}
	if f.project == "" || noticeProject(n) == f.project {
		return true
	}
	return slices.ContainsFunc(outbox.CarriedNotices(n), func(name string) bool {
		carried := byName[name]
		return carried != nil && noticeProject(carried) == f.project
	})
}

func getNotice(ctx context.Context, c client.Reader, name string) (*v1alpha1.Notice, error) {
	n := &v1alpha1.Notice{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("notice %s not found; `sluice notices list` lists all notices", name)
	}
	if err != nil {
		return nil, fmt.Errorf("get notice %s: %w", name, explainForbidden(err, noticeAccessHint+"get and list notices"))
	}
	return n, nil
}

// resendNotice requests that a notice is sent again, at a real time. It fails for
// a notice that is not sent yet.
func resendNotice(ctx context.Context, c client.Client, name string, now time.Time) (*v1alpha1.Notice, error) {
	n, err := getNotice(ctx, c, name)
	if err != nil {
		return nil, err
	}
	switch phase := noticePhase(n); phase {
	case v1alpha1.NoticePending, v1alpha1.NoticeSending:
		when := ""
		if n.Status.RetryAt != nil {
			when = "; the next attempt is at " + n.Status.RetryAt.UTC().Format(time.RFC3339)
		}
		return nil, fmt.Errorf("notice %s is %s, so it will be sent%s", name, phase, when)
	}
	// The outbox compares the request with the last attempt, to the second. Clocks of
	// two machines may differ.
	if last := n.Status.ClaimedAt; last != nil && !now.Truncate(time.Second).After(last.Time) {
		now = last.Add(time.Second)
	}
	patch := client.MergeFrom(n.DeepCopy())
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationResend, now.UTC().Format(time.RFC3339))
	if err := c.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return nil, fmt.Errorf("resend notice %s: %w", name, explainForbidden(err, noticeAccessHint+"get and patch notices"))
	}
	return n, nil
}
