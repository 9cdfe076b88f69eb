// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
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
	"sluice.dev/lifecycle/rendering/apply"
)

// Sender sends due Notices. Its fields must be set before use and not changed.
type Sender struct {
	// Client reads Notices from the cache, which [CacheTransform] may have trimmed, and writes.
	Client client.Client
	// Live reads a Notice before it is claimed, and the ConfigMap.
	Live client.Reader
	// Composer renders the mails, and Transport submits them to the mail server.
	Composer  Composer
	Transport Transport
	// Fingerprint identifies the mail configuration with its Secrets, without revealing it.
	Fingerprint func(context.Context) (string, error)
	// Events records when mail pauses and resumes.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
	// Identity identifies the claims of this process; it is unique over time.
	Identity string
	// Limits bound the attempts, and Rates the mail.
	Limits Limits
	Rates  Rates

	once    sync.Once
	limiter *rate.Limiter

	mu sync.Mutex
	// mailEnabledAt is when mail was first configured, mailStateReadAt when that was read.
	mailEnabledAt   time.Time
	mailStateReadAt time.Time
	// firstSentAt is when the first recorded Notice was sent, in policy time; zero for none.
	firstSentAt time.Time
	// knownFingerprint is the last fingerprint, fingerprintChangedAt when a failure revealed
	// that it had changed.
	knownFingerprint     string
	fingerprintChangedAt time.Time
	// serverFailures counts consecutive failures of the server, serverRetryAt is the next try.
	serverFailures int
	serverRetryAt  time.Time
	// acceptedAt is when the server last accepted a mail of this process, in machine time.
	acceptedAt time.Time
	// denials holds the denied domains.
	denials denials
	// lateRejections counts, by Notice, server failures after the recipient was sent.
	lateRejections map[types.UID]lateRejections
	// unwrittenStatuses holds outcomes whose status could not be written.
	unwrittenStatuses map[types.UID]unwrittenStatus
}

// maxConcurrentSends bounds concurrent mails, so one slow recipient does not delay the others.
const maxConcurrentSends = 4

// Maximum times until the next pass, in machine time: while a Notice waits for policy time,
// which can be stepped; while mail is paused; after an error; and in general.
const (
	policyTimeRecheck = time.Minute
	pausedRecheck     = 30 * time.Second
	errorRetryDelay   = 15 * time.Second
	maxRequeueAfter   = time.Hour
)

// mailStateMaxAge is the time for which the mail state is cached while nothing is due.
const mailStateMaxAge = 5 * time.Minute

func (s *Sender) currentInstant() Instant {
	return Instant{Machine: policytime.MachineNow(), Policy: s.Clock.Now()}
}

func (s *Sender) logger(ctx context.Context) logr.Logger {
	return ctrl.LoggerFrom(ctx).WithName("outbox")
}

// Reconcile decides on all Notices and sends the due ones. It ignores the request's name.
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
		if err := s.readFirstSentAt(ctx); err != nil {
			return reconcile.Result{}, err
		}
		if !s.firstSentAt.IsZero() && s.firstSentAt.Before(s.mailEnabledAt) {
			s.mailEnabledAt = s.firstSentAt // the ConfigMap was deleted or edited
		}
		// The fingerprint before a failure shows later whether the configuration changed.
		if known, err := s.Fingerprint(ctx); err == nil {
			s.knownFingerprint = known
		}
	}
	all, err := s.relevantNotices(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := newPlan(now, all, s.mailEnabledAt, s.Limits)
	pendingGauge.Set(float64(p.pending))
	oldestPendingGauge.Set(0)
	if !p.oldestPending.IsZero() {
		oldestPendingGauge.Set(max(0, now.Machine.Sub(p.oldestPending).Seconds()))
	}
	// A failed write of one Notice does not block the others.
	errs = errors.Join(errs, s.finishUnsent(ctx, now, p), s.createDigests(ctx, p))
	requeue, err := s.sendDue(ctx, now, p, all)
	errs = errors.Join(errs, err)
	if apierrors.IsConflict(errs) || ctx.Err() != nil {
		return reconcile.Result{}, errs
	}
	if errs != nil {
		s.logger(ctx).Error(errs, "Failed to process all notices; retrying")
		requeue = shortestDelay(requeue, errorRetryDelay)
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter(now, p, requeue)}, nil
}

// requeueAfter returns the time until the next pass.
func (s *Sender) requeueAfter(now Instant, p *plan, requeue time.Duration) time.Duration {
	wait := maxRequeueAfter
	if !p.recheckPolicyAt.IsZero() {
		wait = min(policyTimeRecheck, s.Clock.RealUntil(p.recheckPolicyAt))
	}
	if !p.recheckAt.IsZero() {
		wait = min(wait, p.recheckAt.Sub(now.Machine))
	}
	if requeue > 0 {
		wait = min(wait, requeue)
	}
	return max(wait, minRequeueAfter)
}

// minRequeueAfter bounds the time until the next pass; the cache needs about this long to
// observe a write.
const minRequeueAfter = 50 * time.Millisecond

// SetupWithManager adds s to the manager, with one pass over all Notices at a time.
func (s *Sender) SetupWithManager(mgr ctrl.Manager) error {
	if err := IndexNotices(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "all"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("outbox").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&v1alpha1.Notice{}, all).
		Complete(apply.RequeueOnConflict(s))
}

// sendDue sends Notices, the most urgent first, for sendBatchDuration. It returns the time until
// the next batch, 0 for none.
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
	workers := maxConcurrentSends
	if s.serverFailures > 0 {
		workers = 1 // probe the server with one mail
	}
	q, err := s.newSendQueue(ctx, now, p)
	if err != nil {
		return 0, err
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  error
	)
	for range workers {
		group.Go(func() {
			for n := q.next(); n != nil && ctx.Err() == nil; n = q.next() {
				mayContinue, err := s.sendNotice(ctx, n, p, all)
				if !mayContinue {
					q.stop()
				}
				if err != nil { // from the API server; the other workers continue
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
