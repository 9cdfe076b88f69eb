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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// Sender sends what is due. Its fields are set before it is used and not changed.
type Sender struct {
	// Client reads Notices from the cache, where [Trim] may have trimmed them, and
	// writes.
	Client client.Client
	// Live reads a Notice before it is claimed, and the ConfigMap.
	Live client.Reader
	// Composer writes the mails, and Carrier brings them to the mail server.
	Composer Composer
	Carrier  Carrier
	// Fingerprint tells one configuration of mail, its Secrets included, from
	// another, without giving anything of it away.
	Fingerprint func(context.Context) (string, error)
	// Events are told when mail pauses and goes on.
	Events events.EventRecorder
	// Clock is policy time.
	Clock clock.Clock
	// Identity is who claims; no other process has it, and none had it before.
	Identity string
	// Limits bound the attempts, and Rates the mail.
	Limits Limits
	Rates  Rates

	once    sync.Once
	limiter *rate.Limiter

	mu sync.Mutex
	// since is when mail was set up, and lookedAt when that was read, and whether mail is
	// paused.
	since    time.Time
	lookedAt time.Time
	// known is the fingerprint of the configuration that was last looked at, and changedAt
	// when a mail failed at which it was found to have changed.
	known     string
	changedAt time.Time
	// failures is how often in a row the server took nothing, and down until when
	// nothing is tried.
	failures int
	down     time.Time
	// late is how often the server took nothing once it had heard of a mail.
	late map[types.UID]int
	// unwritten is what became of Notices whose status could not be written.
	unwritten map[types.UID]unwritten
}

// abreast is how many mails are on their way at once: one recipient's slow server
// does not keep the others waiting.
const abreast = 4

// Longest times until everything is looked at again, in machine time: where
// something waits for policy time, which can be stepped; while mail is paused; after
// an error, which is not to hold others up for long; and in any case.
const (
	policyLook = time.Minute
	pausedLook = 30 * time.Second
	failedLook = 15 * time.Second
	anyLook    = time.Hour
)

// stateFresh is for how long it is not looked whether mail is paused, where nothing is
// due.
const stateFresh = 5 * time.Minute

func (s *Sender) now() Moment { return Moment{Machine: clock.MachineNow(), Policy: s.Clock.Now()} }

func (s *Sender) log(ctx context.Context) logr.Logger { return ctrl.LoggerFrom(ctx).WithName("outbox") }

// Reconcile looks at all Notices, and does what is due; whatever it is asked about.
func (s *Sender) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s.once.Do(func() { s.limiter, s.unwritten = s.Rates.limiter(), map[types.UID]unwritten{} })
	errs := s.writeUnwritten(ctx)
	now := s.now()
	if s.since.IsZero() || now.Machine.Sub(s.lookedAt) > stateFresh {
		state, err := s.look(ctx, now)
		if err != nil {
			return reconcile.Result{}, err
		}
		s.since = state.Since
		// What is in force before anything fails tells later whether it has changed since.
		if known, err := s.Fingerprint(ctx); err == nil {
			s.known = known
		}
	}
	var all v1alpha1.NoticeList
	if err := s.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing notices: %w", err)
	}
	if first := firstSent(all.Items); !first.IsZero() && first.Before(s.since) {
		s.since = first // the ConfigMap was taken away, or edited
	}
	p := survey(now, all.Items, s.since, s.Limits)
	waitingGauge.Set(float64(p.waiting))
	oldestGauge.Set(0)
	if !p.oldest.IsZero() {
		oldestGauge.Set(max(0, now.Machine.Sub(p.oldest).Seconds()))
	}
	// One Notice that cannot be written keeps no other from being sent.
	errs = errors.Join(errs, s.setAside(ctx, now, p), s.makeDigests(ctx, p))
	again, err := s.sendSome(ctx, now, p, all.Items)
	errs = errors.Join(errs, err)
	if apierrors.IsConflict(errs) || ctx.Err() != nil {
		return reconcile.Result{}, errs
	}
	if errs != nil {
		s.log(ctx).Error(errs, "not all could be done; trying again")
		again = soonest(again, failedLook)
	}
	return reconcile.Result{RequeueAfter: s.wake(now, p, again)}, nil
}

// wake is in how long all is looked at again.
func (s *Sender) wake(now Moment, p *plan, again time.Duration) time.Duration {
	wait := anyLook
	if !p.policyAt.IsZero() {
		wait = min(policyLook, s.Clock.RealUntil(p.policyAt))
	}
	if !p.at.IsZero() {
		wait = min(wait, p.at.Sub(now.Machine))
	}
	if again > 0 {
		wait = min(wait, again)
	}
	return max(wait, shortest)
}

// shortest is how soon it is looked again, at the soonest: about how long the cache
// takes to hear of what was written.
const shortest = 50 * time.Millisecond
