// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// statusWriteTimeout bounds writing a status, also during shutdown.
const statusWriteTimeout = 10 * time.Second

// sendNotice claims one Notice, sends it, and records the outcome. It returns whether others may
// follow at once; a failure of the server or the configuration affects all.
func (s *Sender) sendNotice(ctx context.Context, cached *v1alpha1.Notice, p *plan, all []v1alpha1.Notice) (mayContinue bool, err error) {
	n := &v1alpha1.Notice{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	now := s.currentInstant()
	if Decide(now, n, p.contextFor(n, s.mailEnabledAt), s.Limits).Action != ActionSend {
		return true, nil // the cache lags behind
	}
	if withdrawn, err := s.supersedeWithdrawn(ctx, n); withdrawn || err != nil {
		return true, err
	}
	request, err := s.newComposeRequest(ctx, n, all)
	if err != nil {
		return true, err
	}
	if request.withdrawn > 0 && len(request.Carried) == 0 {
		d := Decision{Action: ActionSupersede, Reason: "all its messages were withdrawn"}
		return true, s.updateClaimedStatus(ctx, n, p.statusWithoutSending(n, d))
	}
	request.Now = now.Policy
	mail, sendErr := s.composeMessage(ctx, request)
	if err := s.claimNotice(ctx, now, n, mail); err != nil {
		return true, err
	}
	if sendErr == nil {
		sendErr = s.deliver(ctx, n, mail)
	}
	return s.recordOutcome(ctx, n, sendErr)
}

// newComposeRequest returns the input of n's mail.
func (s *Sender) newComposeRequest(ctx context.Context, n *v1alpha1.Notice, all []v1alpha1.Notice) (ComposeRequest, error) {
	request := ComposeRequest{Notice: n, Sequence: Sequence(n, all), Sequences: map[string]int{}, Canceled: IsCancellation(n, all)}
	for _, name := range CarriedNotices(n) {
		member := &v1alpha1.Notice{}
		err := s.Live.Get(ctx, client.ObjectKey{Name: name}, member)
		if apierrors.IsNotFound(err) {
			continue // deleted
		}
		if err != nil {
			return ComposeRequest{}, fmt.Errorf("get notice %s of digest %s: %w", name, n.Name, err)
		}
		if recipientAddress(member) != recipientAddress(n) || member.Spec.Digest != n.Name {
			continue // never send a Notice of another recipient or digest
		}
		withdrawn, err := s.supersedeWithdrawn(ctx, member)
		if err != nil {
			return ComposeRequest{}, err
		}
		if withdrawn || member.Status.Phase == v1alpha1.NoticeSuperseded {
			request.withdrawn++ // it does not hold any more
			continue
		}
		request.Carried = append(request.Carried, member)
		request.Sequences[member.Name] = Sequence(member, all)
	}
	n.Status.Sequence = int32(request.Sequence) //nolint:gosec // bounded by the number of Notices
	return request, nil
}

// supersedeWithdrawn supersedes an unfinished Notice that requests a decision on an Extension which was deleted, and
// reports whether it did. The request is read when the mail is sent, so that no deletion is missed.
func (s *Sender) supersedeWithdrawn(ctx context.Context, n *v1alpha1.Notice) (bool, error) {
	if n.Spec.Kind != v1alpha1.NoticeExtensionRequested || n.Spec.Subject == nil || isFinished(n) {
		return false, nil
	}
	var extension v1alpha1.Extension
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: n.Spec.Subject.Namespace, Name: n.Spec.Subject.Name}, &extension)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get the extension of notice %s: %w", n.Name, err)
	}
	if err == nil && extension.UID == n.Spec.Subject.UID {
		return false, nil
	}
	n.Status.Phase, n.Status.LastError = v1alpha1.NoticeSuperseded, "the request was withdrawn"
	n.Status.ClaimedBy, n.Status.RetryAt = "", nil
	if err := s.Client.Status().Update(ctx, n); err != nil {
		return false, fmt.Errorf("mark notice %s as superseded: %w", n.Name, err)
	}
	attemptsTotal.WithLabelValues(string(n.Spec.Kind), "superseded").Inc()
	return true, nil
}

// composeMessage renders the complete mail before the mail server is contacted.
func (s *Sender) composeMessage(ctx context.Context, request ComposeRequest) (*Message, error) {
	if request.Notice.Spec.Kind == v1alpha1.NoticeDigest && len(request.Carried) == 0 {
		return nil, &Failure{Kind: RecipientFailure, Err: errors.New("all notices of the digest were deleted")}
	}
	mail, err := s.Composer.Compose(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("compose mail: %w", err)
	}
	return mail, nil
}

// claimNotice claims a Notice. Of two senders the API server accepts one write.
func (s *Sender) claimNotice(ctx context.Context, now Instant, n *v1alpha1.Notice, mail *Message) error {
	if isFinished(n) {
		n.Status.Attempts = 0 // another sending was requested
	}
	n.Status.Phase, n.Status.Attempts = v1alpha1.NoticeSending, n.Status.Attempts+1
	n.Status.ClaimedBy, n.Status.ClaimedAt, n.Status.RetryAt = s.Identity, &metav1.Time{Time: now.Machine.Truncate(time.Second)}, nil
	if mail != nil {
		n.Status.MessageID = mail.MessageID
	}
	if err := s.Client.Status().Update(ctx, n); err != nil {
		return fmt.Errorf("claim notice %s: %w", n.Name, err)
	}
	return nil
}

// deliver submits the mail within the time that a claim allows.
func (s *Sender) deliver(ctx context.Context, n *v1alpha1.Notice, mail *Message) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.SendTimeout)
	defer cancel()
	began := policytime.MachineNow()
	err := s.Transport.Send(ctx, string(n.Spec.Recipient.Email), mail.Bytes)
	deliverySeconds.Observe(policytime.MachineNow().Sub(began).Seconds())
	return err
}

// recordOutcome records the outcome of an attempt, also during shutdown. It returns whether other
// mails may follow at once.
func (s *Sender) recordOutcome(ctx context.Context, n *v1alpha1.Notice, sendErr error) (mayContinue bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWriteTimeout)
	defer cancel()
	now := s.currentInstant()
	delay, sendErr := s.attributeFailure(now, n, sendErr)
	down := s.recordServerState(now, sendErr)
	if at := now.Machine.Add(delay); at.After(down) {
		down = at
	}
	status := statusAfterAttempt(now, n, sendErr, down, s.Limits)
	s.reportAttempt(ctx, n, status, sendErr)
	failure, err := s.configurationFailureOf(ctx, now, n, sendErr)
	if failure != nil {
		// Pause mail before the status is written; otherwise the Notice would be retried at once.
		err = s.pauseMail(ctx, now, n.Status.ClaimedAt.Time, failure)
	}
	mayContinue = sendErr == nil || failure == nil && failureKindOf(sendErr) != ServerFailure
	return mayContinue, errors.Join(err, s.writeStatus(ctx, n, status))
}

// recordServerState tracks failures of the mail server and returns when it is tried again.
func (s *Sender) recordServerState(now Instant, sendErr error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sendErr == nil || failureKindOf(sendErr) != ServerFailure:
		s.serverFailures, s.serverRetryAt = 0, time.Time{}
	case !now.Machine.Before(s.serverRetryAt): // count concurrent failures once
		s.serverFailures++
		s.serverRetryAt = now.Machine.Add(serverRetryDelay(s.serverFailures))
	}
	return s.serverRetryAt
}

// Delays after a failure of the mail server; they double with each failure.
const (
	firstServerRetry = 15 * time.Second
	maxServerRetry   = 10 * time.Minute
)

func serverRetryDelay(failures int) time.Duration {
	l := Limits{FirstRetry: firstServerRetry, MaxRetry: maxServerRetry}
	return l.RetryDelay("the mail server", failures)
}

// reportAttempt counts and logs the outcome of an attempt. The log holds no address: the
// status has the server's words.
func (s *Sender) reportAttempt(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus, sendErr error) {
	log := s.logger(ctx).WithValues("notice", n.Name, "kind", n.Spec.Kind, "attempts", status.Attempts)
	result := "retried"
	switch {
	case sendErr == nil:
		result = "sent"
		log.Info("Sent notice", "messageID", status.MessageID)
	case status.Phase == v1alpha1.NoticePending:
		log.Info("Postponed notice", "failure", failureKindOf(sendErr), "reason", publicReason(sendErr), "retryAt", status.RetryAt)
	default:
		result = resultFailed
		log.Error(nil, "Failed to send notice", "failure", failureKindOf(sendErr), "reason", publicReason(sendErr))
	}
	attemptsTotal.WithLabelValues(string(n.Spec.Kind), result).Inc()
}

// resultFailed is the result of a Notice that will not be sent.
const resultFailed = "failed"

var (
	attemptsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notices_total",
		Help: "Outcomes of Notices by kind; result: sent, retried, failed, superseded.",
	}, []string{"kind", "result"})
	pendingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_pending",
		Help: "Notices that are not finished.",
	})
	oldestPendingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_oldest_pending_seconds",
		Help: "Age of the oldest Notice that is due and not sent, in machine time; 0 without one.",
	})
	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mail_paused",
		Help: "1 while mail is paused by an administrator or because its configuration failed.",
	})
	deliverySeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_mail_delivery_duration_seconds",
		Help:    "Time to submit one mail, from dialing to the reply of the mail server.",
		Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300},
	})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is filled by init functions
	metrics.Registry.MustRegister(attemptsTotal, pendingGauge, oldestPendingGauge, pausedGauge, deliverySeconds)
	// A query of the increase ignores the first value of a series, so each begins at 0.
	for _, kind := range v1alpha1.NoticeKinds {
		attemptsTotal.WithLabelValues(string(kind), resultFailed)
	}
}
