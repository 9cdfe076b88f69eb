// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// lastMoment is how long a status may take to be written when the process ends.
const lastMoment = 10 * time.Second

// send claims one Notice, sends it, and records what became of it. Others may follow
// at once, unless that says something of them, too.
func (s *Sender) send(ctx context.Context, cached *v1alpha1.Notice, p *plan, all []v1alpha1.Notice) (goOn bool, err error) {
	n := &v1alpha1.Notice{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	now := s.now()
	if Decide(now, n, p.around(n, s.since), s.Limits).Action != Send {
		return true, nil // the cache has yet to hear what became of it
	}
	letter, err := s.letter(ctx, n, all)
	if err != nil {
		return true, err
	}
	mail, failed := s.compose(ctx, letter)
	if err := s.claim(ctx, now, n, mail); err != nil {
		return true, err
	}
	if failed == nil {
		failed = s.carry(ctx, n, mail)
	}
	fault := faultOf(failed)
	goOn = failed == nil || fault != Server && fault != Configuration
	return goOn, s.conclude(ctx, n, failed)
}

// letter is what n's mail is made of.
func (s *Sender) letter(ctx context.Context, n *v1alpha1.Notice, all []v1alpha1.Notice) (Letter, error) {
	letter := Letter{Notice: n, Sequence: Sequence(n, all), Sequences: map[string]int{}, Cancelled: Cancelled(n, all)}
	for _, name := range Carried(n) {
		member := &v1alpha1.Notice{}
		err := s.Live.Get(ctx, client.ObjectKey{Name: name}, member)
		if apierrors.IsNotFound(err) {
			continue // somebody took it away
		}
		if err != nil {
			return Letter{}, fmt.Errorf("reading notice %s, which %s carries: %w", name, n.Name, err)
		}
		if addressOf(member) != addressOf(n) || member.Spec.Digest != n.Name {
			continue // somebody else's, or of another digest: nobody is told what is not theirs
		}
		letter.Carried = append(letter.Carried, member)
		letter.Sequences[member.Name] = Sequence(member, all)
	}
	n.Status.Sequence = int32(letter.Sequence) //nolint:gosec // as many Notices as there are
	return letter, nil
}

// compose writes the whole mail, before anybody is spoken to.
func (s *Sender) compose(ctx context.Context, letter Letter) (*Mail, error) {
	if letter.Notice.Spec.Kind == v1alpha1.NoticeDigest && len(letter.Carried) == 0 {
		return nil, &Failure{Fault: Recipient, Err: errors.New("none of the notices that it carries is there any more")}
	}
	mail, err := s.Composer.Compose(ctx, letter)
	if err != nil {
		return nil, fmt.Errorf("writing the mail: %w", err)
	}
	return mail, nil
}

// claim is where two senders part: the API server lets one of them write.
func (s *Sender) claim(ctx context.Context, now Moment, n *v1alpha1.Notice, mail *Mail) error {
	if ended(n) {
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

// carry hands the mail over, within the time that a claim allows.
func (s *Sender) carry(ctx context.Context, n *v1alpha1.Notice, mail *Mail) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Sending)
	defer cancel()
	began := clock.MachineNow()
	err := s.Carrier.Send(ctx, string(n.Spec.Recipient.Email), mail.Bytes)
	seconds.Observe(clock.MachineNow().Sub(began).Seconds())
	return err
}

// conclude records what became of an attempt; also when the process is asked to end.
func (s *Sender) conclude(ctx context.Context, n *v1alpha1.Notice, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	now := s.now()
	status := concluded(now, n, failed, s.behind(now, n, failed, s.heard(now, failed)), s.Limits)
	s.report(ctx, n, status, failed)
	// What made mail pause is recorded first: otherwise it would be tried at once.
	var paused error
	if failed != nil && faultOf(failed) == Configuration {
		paused = s.pause(ctx, now, n.Status.ClaimedAt.Time, failed)
	}
	return errors.Join(paused, s.record(ctx, n, status))
}

// heard keeps in mind whether the mail server can be spoken to. It returns until when
// nothing is tried.
func (s *Sender) heard(now Moment, failed error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case failed == nil || faultOf(failed) != Server:
		s.failures, s.down = 0, time.Time{}
	case !now.Machine.Before(s.down): // those that went abreast failed at once
		s.failures++
		s.down = now.Machine.Add(serverRetry(s.failures))
	}
	return s.down
}

// How long nothing is tried after the server could not be spoken to; twice that each
// time.
const (
	firstServerRetry   = 15 * time.Second
	longestServerRetry = 10 * time.Minute
)

func serverRetry(failures int) time.Duration {
	l := Limits{FirstRetry: firstServerRetry, LongestRetry: longestServerRetry}
	return l.Retry("the mail server", failures)
}

// report counts and logs what became of an attempt. Whom it was for stays out of the
// log.
func (s *Sender) report(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus, failed error) {
	log := s.log(ctx).WithValues("notice", n.Name, "kind", n.Spec.Kind, "attempts", status.Attempts)
	result := "retried"
	switch {
	case failed == nil:
		result = "sent"
		log.Info("sent", "messageID", status.MessageID)
	case status.Phase == v1alpha1.NoticePending:
		log.Info("not sent yet", "fault", faultOf(failed), "reason", status.LastError, "retryAt", status.RetryAt)
	default:
		result = "failed"
		log.Error(nil, "not sent, and not tried again", "fault", faultOf(failed), "reason", status.LastError)
	}
	results.WithLabelValues(string(n.Spec.Kind), result).Inc()
}
