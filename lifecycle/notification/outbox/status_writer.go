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

// unwrittenStatus is the outcome of a claimed Notice.
type unwrittenStatus struct {
	claimed *v1alpha1.Notice
	status  v1alpha1.NoticeStatus
}

// writeStatus writes the outcome of a claimed Notice. If that fails it keeps the outcome, and the
// next pass writes it first, so an unavailable API server causes no duplicate.
func (s *Sender) writeStatus(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus) error {
	if err := s.updateClaimedStatus(ctx, n, status); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwrittenStatuses[n.UID] = unwrittenStatus{claimed: n, status: status}
		return err
	}
	return nil
}

// updateClaimedStatus writes the status if the claim is unchanged.
func (s *Sender) updateClaimedStatus(ctx context.Context, n *v1alpha1.Notice, status v1alpha1.NoticeStatus) error {
	next := n.DeepCopy()
	next.Status = status
	err := s.Client.Status().Update(ctx, next)
	if apierrors.IsConflict(err) {
		// An annotation changed, another process took over the claim, or this status was
		// written and the reply lost.
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
		return fmt.Errorf("write status of notice %s: %w", n.Name, err)
	}
	return nil
}

// retryUnwrittenStatuses writes the kept outcomes. A failure does not block other Notices.
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

// maxFinishedPerPass bounds the Notices finished without sending in one pass, so that urgent ones
// are sent soon.
const maxFinishedPerPass = 100

// finishUnsent finishes Notices without sending them.
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

// finishNotice finishes one Notice that is not sent, or was sent with its digest.
func (s *Sender) finishNotice(ctx context.Context, now Instant, p *plan, a finishStep) error {
	n := &v1alpha1.Notice{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(a.notice), n); err != nil {
		return client.IgnoreNotFound(err)
	}
	d := Decide(now, n, p.contextFor(n, s.mailEnabledAt), s.Limits)
	if d.Action != a.decision.Action {
		return nil // the cache lags behind
	}
	n.Status = p.statusWithoutSending(n, d)
	if err := s.Client.Status().Update(ctx, n); err != nil {
		return fmt.Errorf("finish notice %s: %w", n.Name, err)
	}
	switch n.Status.Phase {
	case v1alpha1.NoticeSuperseded:
		attemptsTotal.WithLabelValues(string(n.Spec.Kind), "superseded").Inc()
	case v1alpha1.NoticeFailed:
		attemptsTotal.WithLabelValues(string(n.Spec.Kind), "failed").Inc()
	}
	return nil
}

// createDigests creates the digests whose Notices are all recorded.
func (s *Sender) createDigests(ctx context.Context, p *plan) (errs error) {
	for _, digest := range p.digests {
		if err := s.Client.Create(ctx, digest); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = errors.Join(errs, fmt.Errorf("create digest %s: %w", digest.Name, err))
		}
	}
	return errs
}
