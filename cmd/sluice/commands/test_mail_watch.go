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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/outbox"
)

const (
	// testMailPollInterval is real time.
	testMailPollInterval = 500 * time.Millisecond
	// pauseGracePolls is the number of polls after which a pause by lifecycle ends the
	// wait. The next mail makes lifecycle try a corrected configuration.
	pauseGracePolls = 20
)

// testMailWatch waits for the result of a test mail.
type testMailWatch struct {
	test     testMail
	client   client.Client
	notice   *v1alpha1.Notice
	lastStep string
	polls    int
}

// waitUntilSent polls the Notice until the result is known.
func (w *testMailWatch) waitUntilSent(ctx context.Context) (*testMailResult, error) {
	tick := time.NewTicker(testMailPollInterval)
	defer tick.Stop()
	for {
		w.polls++
		n := &v1alpha1.Notice{}
		err := w.client.Get(ctx, client.ObjectKeyFromObject(w.notice), n)
		switch {
		case apierrors.IsNotFound(err):
			return w.result("the notice was deleted before it was sent; send another test mail"), nil
		case err != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("get notice %s: %w", w.notice.Name, explainForbidden(err, noticeAccessHint+"get and list notices"))
		case err == nil:
			w.notice = n
			if problem, completed := w.evaluate(ctx); completed {
				return w.result(problem), nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.timeoutResult(context.WithoutCancel(ctx), ctx.Err()), nil
		}
	}
}

// evaluate reports whether the result is known, and its problem if the mail was not
// sent.
func (w *testMailWatch) evaluate(ctx context.Context) (problem string, completed bool) {
	n := w.notice
	lastError := printer.Sanitize(n.Status.LastError)
	switch noticePhase(n) {
	case v1alpha1.NoticeSent:
		return "", true
	case v1alpha1.NoticeFailed:
		return fmt.Sprintf("sending failed and is not retried: %s; "+
			"correct the address or the mail server, and send another test mail", lastError), true
	case v1alpha1.NoticeSuperseded:
		return "the notice was superseded: " + lastError, true
	case v1alpha1.NoticeSending:
		w.reportProgress(fmt.Sprintf("Claimed by %s; attempt %d", printer.Sanitize(n.Status.ClaimedBy), n.Status.Attempts))
		return "", false
	}
	if state, err := getMailState(ctx, w.client); err == nil && state.Paused {
		// Lifecycle's own pause may be over once it tries this mail.
		if !state.PausedByLifecycle || n.Status.ClaimedAt != nil || w.polls > pauseGracePolls {
			return strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(state.text(time.Local), ".\n", "\n")), "\n", "; "), true
		}
	}
	if lastError != "" {
		step := "Not accepted yet: " + lastError
		if n.Status.RetryAt != nil {
			step += "; next attempt at " + printer.FormatSecond(n.Status.RetryAt.Time, time.Local)
		}
		w.reportProgress(step)
	}
	return "", false
}

func (w *testMailWatch) reportProgress(step string) {
	if step != w.lastStep {
		w.lastStep = step
		w.test.progress(step)
	}
}

func (w *testMailWatch) result(problem string) *testMailResult {
	result := &testMailResult{noticeRow: newNoticeRow(w.notice), Problem: problem}
	if state, err := getMailState(context.Background(), w.client); err == nil {
		result.Mail = &state
	}
	return result
}

// timeoutResult returns the result of a test mail that is still waiting when the
// command stops waiting.
func (w *testMailWatch) timeoutResult(ctx context.Context, cause error) *testMailResult {
	n := w.notice
	until := "not sent within " + w.test.timeout.String()
	if errors.Is(cause, context.Canceled) {
		until = "not sent when you canceled the command"
	}
	later := fmt.Sprintf("Sluice sends it when possible, within a day: sluice notices show %s", n.Name)
	switch {
	case n.Status.LastError != "":
		return w.result(fmt.Sprintf("%s: %s; Sluice retries: sluice notices show %s", until, printer.Sanitize(n.Status.LastError), n.Name))
	case noticePhase(n) == v1alpha1.NoticeSending:
		return w.result(fmt.Sprintf("%s: the mail server has not answered yet; %s", until, later))
	}
	var object corev1.ConfigMap
	err := w.client.Get(ctx, mailStateKey, &object)
	if apierrors.IsNotFound(err) || err == nil && outbox.ParseMailState(&object).EnabledAt.IsZero() {
		return w.result("no mail server is configured: lifecycle's `mail` section is missing; " + later)
	}
	if lastError, count := w.otherPendingNotices(ctx); count > 0 {
		return w.result(fmt.Sprintf("%s: %d other notices are waiting; the last error of the mail server is: %s; %s",
			until, count, lastError, later))
	}
	return w.result(fmt.Sprintf("%s: lifecycle has not claimed it. Lifecycle is not running, its `mail` section was removed, "+
		"or the address reached its daily limit (mail.rate.perRecipientPerDay); %s", until, later))
}

// otherPendingNotices returns the number of other Notices whose last attempt
// failed, and the latest error. It returns none if the user may not list Notices.
func (w *testMailWatch) otherPendingNotices(ctx context.Context) (lastError string, count int) {
	all, err := listAllNotices(ctx, w.client)
	if err != nil {
		return "", 0
	}
	var at time.Time
	for i := range all {
		n := &all[i]
		if n.Name == w.notice.Name || noticePhase(n) != v1alpha1.NoticePending || n.Status.LastError == "" || n.Status.ClaimedAt == nil {
			continue
		}
		count++
		if n.Status.ClaimedAt.After(at) {
			at, lastError = n.Status.ClaimedAt.Time, printer.Sanitize(n.Status.LastError)
		}
	}
	return lastError, count
}
