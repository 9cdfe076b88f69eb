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

// statusWriteTimeout is how long a status may take to be written when the process ends.
const statusWriteTimeout = 10 * time.Second

// sendNotice claims one Notice, sends it, and records what became of it. Others may follow
// at once, unless that says something of them, too.
func (s *Sender) sendNotice(ctx context.Context, cached *v1alpha1.Notice, p *plan, all []v1alpha1.Notice) (goOn bool, err error) {
	n := &v1alpha1.Notice{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	now := s.currentInstant()
	if Decide(now, n, p.contextFor(n, s.mailEnabledAt), s.Limits).Action != ActionSend {
		return true, nil // the cache has yet to hear what became of it
	}
	letter, err := s.newComposeRequest(ctx, n, all)
	if err != nil {
		return true, err
	}
	mail, failed := s.composeMessage(ctx, letter)
	if err := s.claimNotice(ctx, now, n, mail); err != nil {
		return true, err
	}
	if failed == nil {
		failed = s.deliver(ctx, n, mail)
	}
	fault := failureKindOf(failed)
	goOn = failed == nil || fault != ServerFailure && fault != ConfigurationFailure
	return goOn, s.recordOutcome(ctx, n, failed)
}

// newComposeRequest is what n's mail is made of.
func (s *Sender) newComposeRequest(ctx context.Context, n *v1alpha1.Notice, all []v1alpha1.Notice) (ComposeRequest, error) {
	letter := ComposeRequest{Notice: n, Sequence: Sequence(n, all), Sequences: map[string]int{}, Canceled: IsCancellation(n, all)}
	for _, name := range CarriedNotices(n) {
		member := &v1alpha1.Notice{}
		err := s.Live.Get(ctx, client.ObjectKey{Name: name}, member)
		if apierrors.IsNotFound(err) {
			continue // somebody took it away
		}
		if err != nil {
			return ComposeRequest{}, fmt.Errorf("reading notice %s, which %s carries: %w", name, n.Name, err)
		}
		if recipientAddress(member) != recipientAddress(n) || member.Spec.Digest != n.Name {
			continue // somebody else's, or of another digest: nobody is told what is not theirs
		}
		letter.Carried = append(letter.Carried, member)
		letter.Sequences[member.Name] = Sequence(member, all)
	}
	n.Status.Sequence = int32(letter.Sequence) //nolint:gosec // as many Notices as there are
	return letter, nil
}

// composeMessage writes the whole mail, before anybody is spoken to.
func (s *Sender) composeMessage(ctx context.Context, letter ComposeRequest) (*Message, error) {
	if letter.Notice.Spec.Kind == v1alpha1.NoticeDigest && len(letter.Carried) == 0 {
		return nil, &Failure{Kind: RecipientFailure, Err: errors.New("none of the notices that it carries is there any more")}
	}
	mail, err := s.Composer.Compose(ctx, letter)
	if err != nil {
		return nil, fmt.Errorf("writing the mail: %w", err)
	}
	return mail, nil
}

// claimNotice is where two senders part: the API server lets one of them write.
func (s *Sender) claimNotice(ctx context.Context, now Instant, n *v1alpha1.Notice, mail *Message) error {
	if isFinished(n) {
		n.Status.Attempts = 0 // somebody asked for it anew
	}
	n.Status.Phase, n.Status.Attempts = v1alpha1.NoticeSending, n.Status.Attempts+1
	n.Status.ClaimedBy, n.Status.ClaimedAt, n.Status.RetryAt = s.Identity, &metav1.Time{Time: now.Machine.Truncate(time.Second)}, nil
	if mail != nil {
		n.Status.MessageID = mail.MessageID
	}
	if err := s.Client.Status().Update(ctx, n); err != nil {
		return fmt.Errorf("claiming notice %s: %w", n.Name, err)
	}
	return nil
}

// deliver hands the mail over, within the time that a claim allows.
func (s *Sender) deliver(ctx context.Context, n *v1alpha1.Notice, mail *Message) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.SendTimeout)
	defer cancel()
	began := policytime.MachineNow()
	err := s.Transport.Send(ctx, string(n.Spec.Recipient.Email), mail.Bytes)
	deliverySeconds.Observe(policytime.MachineNow().Sub(began).Seconds())
	return err
}

// recordOutcome records what became of an attempt; also when the process is asked to end.
func (s *Sender) recordOutcome(ctx context.Context, n *v1alpha1.Notice, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWriteTimeout)
	defer cancel()
	now := s.currentInstant()
	status := statusAfterAttempt(now, n, failed, s.lateRejectionRetryAt(now, n, failed, s.recordServerState(now, failed)), s.Limits)
	s.reportAttempt(ctx, n, status, failed)
	// What made mail pause is recorded first: otherwise it would be tried at once.
	var paused error
	if failed != nil && failureKindOf(failed) == ConfigurationFailure {
		paused = s.pauseMail(ctx, now, n.Status.ClaimedAt.Time, failed)
	}
	return errors.Join(paused, s.writeStatus(ctx, n, status))
}

// recordServerState keeps in mind whether the mail server can be spoken to. It returns until when
// nothing is tried.
func (s *Sender) recordServerState(now Instant, failed error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case failed == nil || failureKindOf(failed) != ServerFailure:
		s.serverFailures, s.serverRetryAt = 0, time.Time{}
	case !now.Machine.Before(s.serverRetryAt): // those that went abreast failed at once
		s.serverFailures++
		s.serverRetryAt = now.Machine.Add(serverRetryDelay(s.serverFailures))
	}
	return s.serverRetryAt
}

// How long nothing is tried after the server could not be spoken to; twice that each
// time.
const (
	firstServerRetry = 15 * time.Second
	maxServerRetry   = 10 * time.Minute
)

func serverRetryDelay(failures int) time.Duration {
	l := Limits{FirstRetry: firstServerRetry, MaxRetry: maxServerRetry}
	return l.RetryDelay("the mail server", failures)
}

// reportAttempt counts and logs what became of an attempt. Whom it was for stays out of the
// log.
func (s *Sender) reportAttempt(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus, failed error) {
	log := s.logger(ctx).WithValues("notice", n.Name, "kind", n.Spec.Kind, "attempts", status.Attempts)
	result := "retried"
	switch {
	case failed == nil:
		result = "sent"
		log.Info("sent", "messageID", status.MessageID)
	case status.Phase == v1alpha1.NoticePending:
		log.Info("not sent yet", "fault", failureKindOf(failed), "reason", status.LastError, "retryAt", status.RetryAt)
	default:
		result = "failed"
		log.Error(nil, "not sent, and not tried again", "fault", failureKindOf(failed), "reason", status.LastError)
	}
	attemptsTotal.WithLabelValues(string(n.Spec.Kind), result).Inc()
}

var (
	attemptsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notices_total",
		Help: "Attempts at Notices and what became of them, by kind; result: sent, retried, failed, superseded.",
	}, []string{"kind", "result"})
	pendingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_waiting",
		Help: "Notices that are not sent yet and will be.",
	})
	oldestPendingGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_notices_oldest_seconds",
		Help: "How long ago the oldest Notice was recorded that is due and not sent, in machine time; 0 without one.",
	})
	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mail_paused",
		Help: "1 while no mail is sent: somebody paused it, or its configuration does not work.",
	})
	deliverySeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_mail_seconds",
		Help:    "How long the mail server took over one mail, from dialling to its answer.",
		Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300},
	})
)

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(attemptsTotal, pendingGauge, oldestPendingGauge, pausedGauge, deliverySeconds)
}
