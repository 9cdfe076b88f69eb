// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/conflict"
)

// Sender sends what is due. Its fields are set before it is used and not changed.
type Sender struct {
	// Client reads Notices from the cache, where [Trim] may have trimmed them, and
	// writes.
	Client client.Client
	// Live reads a Notice before it is claimed, and the ConfigMap.
	Live client.Reader
	// Composer writes the mails, and Carrier brings them to the mail server.
	Composer  Composer
	Transport Transport
	// Fingerprint tells one configuration of mail, its Secrets included, from
	// another, without giving anything of it away.
	Fingerprint func(context.Context) (string, error)
	// Events are told when mail pauses and goes on.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
	// Identity is who claims; no other process has it, and none had it before.
	Identity string
	// Limits bound the attempts, and Rates the mail.
	Limits Limits
	Rates  Rates

	once    sync.Once
	limiter *rate.Limiter

	mu sync.Mutex
	// mailEnabledAt is when mail was set up, and lookedAt when that was read, and whether mail is
	// paused.
	mailEnabledAt   time.Time
	mailStateReadAt time.Time
	// knownFingerprint is the fingerprint of the configuration that was last looked at, and changedAt
	// when a mail failed at which it was found to have changed.
	knownFingerprint     string
	fingerprintChangedAt time.Time
	// serverFailures is how often in a row the server took nothing, and down until when
	// nothing is tried.
	serverFailures int
	serverRetryAt  time.Time
	// lateRejections is how often the server took nothing once it had heard of a mail.
	lateRejections map[types.UID]int
	// unwrittenStatuses is what became of Notices whose status could not be written.
	unwrittenStatuses map[types.UID]unwrittenStatus
}

// maxConcurrentSends is how many mails are on their way at once: one recipient's slow server
// does not keep the others waiting.
const maxConcurrentSends = 4

// Longest times until everything is looked at again, in machine time: where
// something waits for policy time, which can be stepped; while mail is paused; after
// an error, which is not to hold others up for long; and in any case.
const (
	policyTimeRecheck = time.Minute
	pausedRecheck     = 30 * time.Second
	errorRetryDelay   = 15 * time.Second
	maxRequeueAfter   = time.Hour
)

// mailStateMaxAge is for how long it is not looked whether mail is paused, where nothing is
// due.
const mailStateMaxAge = 5 * time.Minute

func (s *Sender) currentInstant() Instant {
	return Instant{Machine: policytime.MachineNow(), Policy: s.Clock.Now()}
}

func (s *Sender) logger(ctx context.Context) logr.Logger {
	return ctrl.LoggerFrom(ctx).WithName("outbox")
}

// Reconcile looks at all Notices, and does what is due; whatever it is asked about.
func (s *Sender) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s.once.Do(func() { s.limiter, s.unwrittenStatuses = s.Rates.newLimiter(), map[types.UID]unwrittenStatus{} })
	errs := s.retryUnwrittenStatuses(ctx)
	now := s.currentInstant()
	if s.mailEnabledAt.IsZero() || now.Machine.Sub(s.mailStateReadAt) > mailStateMaxAge {
		state, err := s.reconcileMailState(ctx, now)
		if err != nil {
			return reconcile.Result{}, err
		}
		s.mailEnabledAt = state.EnabledAt
		// What is in force before anything fails tells later whether it has changed since.
		if known, err := s.Fingerprint(ctx); err == nil {
			s.knownFingerprint = known
		}
	}
	var all v1alpha1.NoticeList
	if err := s.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing notices: %w", err)
	}
	if first := firstSentAt(all.Items); !first.IsZero() && first.Before(s.mailEnabledAt) {
		s.mailEnabledAt = first // the ConfigMap was taken away, or edited
	}
	p := newPlan(now, all.Items, s.mailEnabledAt, s.Limits)
	pendingGauge.Set(float64(p.pending))
	oldestPendingGauge.Set(0)
	if !p.oldestPending.IsZero() {
		oldestPendingGauge.Set(max(0, now.Machine.Sub(p.oldestPending).Seconds()))
	}
	// One Notice that cannot be written keeps no other from being sent.
	errs = errors.Join(errs, s.finishUnsent(ctx, now, p), s.createDigests(ctx, p))
	again, err := s.sendDue(ctx, now, p, all.Items)
	errs = errors.Join(errs, err)
	if apierrors.IsConflict(errs) || ctx.Err() != nil {
		return reconcile.Result{}, errs
	}
	if errs != nil {
		s.logger(ctx).Error(errs, "not all could be done; trying again")
		again = shortestDelay(again, errorRetryDelay)
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter(now, p, again)}, nil
}

// requeueAfter is in how long all is looked at again.
func (s *Sender) requeueAfter(now Instant, p *plan, again time.Duration) time.Duration {
	wait := maxRequeueAfter
	if !p.recheckPolicyAt.IsZero() {
		wait = min(policyTimeRecheck, s.Clock.RealUntil(p.recheckPolicyAt))
	}
	if !p.recheckAt.IsZero() {
		wait = min(wait, p.recheckAt.Sub(now.Machine))
	}
	if again > 0 {
		wait = min(wait, again)
	}
	return max(wait, minRequeueAfter)
}

// minRequeueAfter is how soon it is looked again, at the soonest: about how long the cache
// takes to hear of what was written.
const minRequeueAfter = 50 * time.Millisecond

// SetupWithManager makes the manager run s: one look at all Notices at a time,
// whichever of them changed.
func (s *Sender) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "all"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("outbox").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&v1alpha1.Notice{}, all).
		Complete(conflict.WithRetry(s))
}

// sendDue sends what is to be sent, the most urgent first, for the length of a turn.
// It returns when to go on, 0 for when something changes.
func (s *Sender) sendDue(ctx context.Context, now Instant, p *plan, all []v1alpha1.Notice) (time.Duration, error) {
	if len(p.toSend) == 0 {
		return 0, nil
	}
	if wait := s.serverRetryAt.Sub(now.Machine); wait > 0 {
		return wait, nil
	}
	state, err := s.reconcileMailState(ctx, now)
	if err != nil {
		return 0, err
	}
	if state.Paused {
		return pausedRecheck, nil
	}
	most := maxConcurrentSends
	if s.serverFailures > 0 {
		most = 1 // whether the server is back is tried with one
	}
	q := s.newSendQueue(now, p, all)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  error
	)
	for range most {
		group.Go(func() {
			for n := q.next(); n != nil && ctx.Err() == nil; n = q.next() {
				goOn, err := s.sendNotice(ctx, n, p, all)
				if !goOn {
					q.stop()
				}
				if err != nil { // the API server's: the others may have more luck, each once
					mu.Lock()
					defer mu.Unlock()
					errs = errors.Join(errs, err)
					return
				}
			}
		})
	}
	group.Wait()
	return q.requeueAfter, errs
}
