// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// unwrittenStatus is what became of a Notice, as it stood when it was claimed.
type unwrittenStatus struct {
	claimed *v1alpha1.Notice
	status  v1alpha1.NoticeStatus
}

// writeStatus writes what became of a claimed Notice. What cannot be written is kept, and
// written before anything else is done: that the API server was away repeats no mail.
func (s *Sender) writeStatus(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus) error {
	if err := s.updateClaimedStatus(ctx, n, status); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwrittenStatuses[n.UID] = unwrittenStatus{claimed: n, status: status}
		return err
	}
	return nil
}

// updateClaimedStatus writes the status over the claim, if that is still there.
func (s *Sender) updateClaimedStatus(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus) error {
	next := n.DeepCopy()
	next.Status = status
	err := s.Client.Status().Update(ctx, next)
	if apierrors.IsConflict(err) {
		// Somebody wrote an annotation, or took the claim over, or this very status was
		// written and the answer lost.
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(n), next); err != nil {
			return client.IgnoreNotFound(err)
		}
		if next.UID != n.UID || next.Status.ClaimedBy != n.Status.ClaimedBy || next.Status.Phase != n.Status.Phase ||
			!next.Status.ClaimedAt.Equal(n.Status.ClaimedAt) {
			return nil
		}
		next.Status = status
		err = s.Client.Status().Update(ctx, next)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording what became of notice %s: %w", n.Name, err)
	}
	return nil
}

// retryUnwrittenStatuses writes what could not be written. What cannot be written now, either,
// keeps nothing else from being sent.
func (s *Sender) retryUnwrittenStatuses(ctx context.Context) (errs error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, u := range maps.Clone(s.unwrittenStatuses) {
		if err := s.updateClaimedStatus(ctx, u.claimed, u.status); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		delete(s.unwrittenStatuses, uid)
	}
	return errs
}

// maxFinishedPerPass is how many Notices are set aside in one go: then it is looked whether
// something more urgent is to be sent.
const maxFinishedPerPass = 100

// finishUnsent ends what is not sent.
func (s *Sender) finishUnsent(ctx context.Context, now Instant, p *plan) (errs error) {
	for i, a := range p.toFinish {
		if i == maxFinishedPerPass {
			p.recheckAt = now.Machine
			break
		}
		errs = errors.Join(errs, s.finishNotice(ctx, now, p, a))
	}
	return errs
}

// finishNotice ends one Notice that is not sent, or was with its digest.
func (s *Sender) finishNotice(ctx context.Context, now Instant, p *plan, a finishStep) error {
	n := &v1alpha1.Notice{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(a.notice), n); err != nil {
		return client.IgnoreNotFound(err)
	}
	d := Decide(now, n, p.contextFor(n, s.mailEnabledAt), s.Limits)
	if d.Action != a.decision.Action {
		return nil // the cache has yet to hear what became of it
	}
	n.Status = p.statusWithoutSending(n, d)
	if err := s.Client.Status().Update(ctx, n); err != nil {
		return fmt.Errorf("setting notice %s aside: %w", n.Name, err)
	}
	switch n.Status.Phase {
	case v1alpha1.NoticeSuperseded:
		attemptsTotal.WithLabelValues(string(n.Spec.Kind), "superseded").Inc()
	case v1alpha1.NoticeFailed:
		attemptsTotal.WithLabelValues(string(n.Spec.Kind), "failed").Inc()
	}
	return nil
}

// createDigests makes the digests whose Notices are all recorded.
func (s *Sender) createDigests(ctx context.Context, p *plan) (errs error) {
	for _, digest := range p.digests {
		if err := s.Client.Create(ctx, digest); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = errors.Join(errs, fmt.Errorf("making digest %s: %w", digest.Name, err))
		}
	}
	return errs
}
