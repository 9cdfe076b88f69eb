// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/outbox"
)

// pauseGracePolls is how often it is looked before a pause of lifecycle's own is believed: a
// configuration that was put right meanwhile is found by the first mail that is asked for.
const pauseGracePolls = 20

// evaluate tells how far it has come, and whether that is the end, for which problem.
func (w *testMailWatch) evaluate(ctx context.Context) (problem string, over bool) {
	n := w.notice
	said := printer.Sanitize(n.Status.LastError)
	switch noticePhase(n) {
	case v1alpha1.NoticeSent:
		return "", true
	case v1alpha1.NoticeFailed:
		return fmt.Sprintf("it failed and is not tried again: %s; put right what that says, the address or the mail server, and ask again", said), true
	case v1alpha1.NoticeSuperseded:
		return "it was set aside: " + said, true
	case v1alpha1.NoticeSending:
		w.reportProgress(fmt.Sprintf("claimed by %s; it is being sent (attempt %d)", printer.Sanitize(n.Status.ClaimedBy), n.Status.Attempts))
		return "", false
	}
	if state, err := GetMailState(ctx, w.client); err == nil && state.Paused {
		// A person's pause lasts; lifecycle's own is another's fault until this mail was tried.
		if !state.PausedByLifecycle || n.Status.ClaimedAt != nil || w.polls > pauseGracePolls {
			return "it waits, since " + strings.ReplaceAll(strings.TrimSpace(state.Text(time.Local)), "\n", "; "), true
		}
	}
	if said != "" {
		step := "not taken yet: " + said
		if n.Status.RetryAt != nil {
			step += "; tried again at " + printer.FormatSecond(n.Status.RetryAt.Time, time.Local)
		}
		w.reportProgress(step)
	}
	return "", false
}

// timeoutResult is a test of which there was no end in time, or that is not waited for any more.
func (w *testMailWatch) timeoutResult(ctx context.Context, why error) *TestMailResult {
	n := w.notice
	until := "not within " + w.test.Timeout.String()
	if errors.Is(why, context.Canceled) {
		until = "not when you stopped waiting"
	}
	later := fmt.Sprintf("it is sent when it can be, within a day: sluice notices show %s", n.Name)
	switch {
	case n.Status.LastError != "":
		return w.result(fmt.Sprintf("%s: %s; it is tried on: sluice notices show %s", until, printer.Sanitize(n.Status.LastError), n.Name))
	case noticePhase(n) == v1alpha1.NoticeSending:
		return w.result(fmt.Sprintf("%s: the mail server has not answered yet; %s", until, later))
	}
	var object corev1.ConfigMap
	err := w.client.Get(ctx, mailStateKey, &object)
	if apierrors.IsNotFound(err) || err == nil && outbox.ParseMailState(&object).EnabledAt.IsZero() {
		return w.result("no mail server is configured: lifecycle's `mail` section is missing; " + later)
	}
	if last, others := w.pendingNotices(ctx); last != "" {
		return w.result(fmt.Sprintf("%s: %d other notices wait, too; of one the mail server, or the way to it, last said: %s; %s", until, others, last, later))
	}
	return w.result(fmt.Sprintf("%s: nobody has taken it up. Lifecycle does not run, its `mail` section is missing by now, or the address had its mails for today (mail.rate.perRecipientPerDay); %s", until, later))
}

// pendingNotices is what was last said of those that wait besides, and how many these are.
func (w *testMailWatch) pendingNotices(ctx context.Context) (last string, waiting int) {
	all, err := listAllNotices(ctx, w.client)
	if err != nil {
		return "", 0 // who may not list them is told less
	}
	var at time.Time
	for i := range all {
		n := &all[i]
		if n.Name == w.notice.Name || noticePhase(n) != v1alpha1.NoticePending || n.Status.LastError == "" || n.Status.ClaimedAt == nil {
			continue
		}
		waiting++
		if n.Status.ClaimedAt.After(at) {
			at, last = n.Status.ClaimedAt.Time, printer.Sanitize(n.Status.LastError)
		}
	}
	return last, waiting
}

// Text is what became of it, for a person.
func (t *TestMailResult) Text(zone *time.Location) string {
	if t.Problem != "" {
		return fmt.Sprintf("notice %s is %s: %s\n", t.Name, t.Phase, t.Problem)
	}
	at := ""
	if t.SentAt != nil {
		at = " at " + printer.FormatSecond(*t.SentAt, zone)
	}
	return fmt.Sprintf("sent%s: the mail server took it for %s\nMessage-ID: %s\nwhether it is in the mailbox, and not among the spam, only a look there tells\n", at, t.Recipient, printer.Sanitize(t.MessageID))
}
