// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Check returns why an announced eviction is not necessary any more, or "" if it still is. The Reconciler
// calls it just before each attempt. After an error the pod is left for the next attempt.
type Check func(ctx context.Context, announcement Announcement) (withdraw string, err error)

// Evictor deletes pods with the condition DisruptionTarget: a suspend.Stopper.
type Evictor interface {
	EvictPod(ctx context.Context, pod suspend.Target, gracePeriod *int64, message string) error
}

// Reconciler evicts the announced pods. All are in one request, since the limit per node needs all of them.
type Reconciler struct {
	// Announcer withdraws announcements.
	Announcer *Announcer
	// Evictor deletes the pods that a disruption budget holds for too long.
	Evictor Evictor
	// Checks holds the check of each reason. A reason without one is evicted as announced.
	Checks map[v1alpha1.EndReason]Check
	// Announced are the announced pods.
	Announced AnnouncedPods

	limiter nodeLimiter
	// attempts holds what was tried with the announced pods.
	attempts map[types.UID]attempt
}

// attempt is what this process tried with an announced pod.
type attempt struct {
	// evicted is when the pod was evicted; the cache may not show it yet.
	evicted time.Time
	// reported: an event says that the eviction was refused.
	reported bool
}

// evictRequest is the only request of this controller.
var evictRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "evict"}}

// SetupWithManager adds r to the manager; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pods *podcache.Store) error {
	r.attempts = map[types.UID]attempt{}
	err := ctrl.NewControllerManagedBy(mgr).Named("eviction").WatchesRawSource(&announcedPods{r.Announced, pods}).
		Watches(&v1alpha1.AdmissionParameters{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{evictRequest}
		}), inventory.PauseChanged).Complete(r)
	if err != nil {
		return fmt.Errorf("set up eviction: %w", err)
	}
	return nil
}

// announcedPods are a source of requests.
type announcedPods struct {
	AnnouncedPods
	store *podcache.Store
}

// Start implements source.TypedSource.
func (p *announcedPods) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.OnChange(func() { queue.Add(evictRequest) })
	queue.Add(evictRequest)
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (p *announcedPods) WaitForSync(ctx context.Context) error { return p.store.WaitForSync(ctx) }

// Reconcile takes the step that is due for each announced pod, the earliest deadline first.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.Announcer.machineNow()
	r.limiter.permits("", now) // the first pass begins the first window
	announced := r.Announced.Values()
	pausedUntil, err := r.Announcer.pausedUntil(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	slices.SortFunc(announced, func(a, b *AnnouncedPod) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.UID, b.UID)) })
	r.forgetAttempts(announced)
	var next time.Time
	var failed []error
	for _, p := range announced {
		now = r.Announcer.machineNow() // the API server may have answered the requests before slowly
		if at := deadlineWithPause(p.At, now, pausedUntil, r.Announcer.Periods.Notice); !at.Equal(p.At) {
			if err := r.Announcer.move(ctx, p.Announcement, at, pausedUntil); err != nil {
				failed = append(failed, err)
			}
			if again := now.Add(r.Announcer.Periods.retryInterval()); next.IsZero() || again.Before(next) {
				next = again // the cache does not show it yet
			}
			continue
		}
		due, again := decide(p.At, now, r.Announcer.Periods)
		if until := r.attempts[p.UID].evicted.Add(evictionWindow); until.After(now) {
			due, again = stepWait, until
		}
		if permitted, at := r.limiter.permits(p.Node, now); due != stepWait && !permitted {
			due, again = stepWait, at
		}
		if due != stepWait {
			if err := r.reconcilePod(ctx, p, due); err != nil {
				failed = append(failed, err)
			}
		}
		if next.IsZero() || again.Before(next) {
			next = again
		}
	}
	if err := errors.Join(failed...); err != nil {
		// The delay of the work queue would hold back the other pods.
		log.FromContext(ctx).Error(err, "Failed to evict pods", "retryAfter", r.Announcer.Periods.retryInterval().String())
	}
	if next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(next.Sub(now), time.Millisecond)}, nil
}

// reconcilePod withdraws the announcement if its reason has ended, and otherwise evicts the pod.
func (r *Reconciler) reconcilePod(ctx context.Context, p *AnnouncedPod, due step) error {
	project, err := inventory.ProjectForNamespace(ctx, r.Announcer.Client, p.Pod.Namespace)
	if err != nil {
		return err
	}
	if project == nil {
		return r.Announcer.Withdraw(ctx, p.Announcement, "its namespace belongs to no project")
	}
	if check := r.Checks[p.Reason]; check != nil {
		switch why, err := check(ctx, p.Announcement); {
		case err != nil:
			return fmt.Errorf("check the eviction of pod %s: %w", p.Pod, err)
		case why != "":
			return r.Announcer.Withdraw(ctx, p.Announcement, why)
		}
	}
	outcome, err := r.evict(ctx, p, due)
	now := r.Announcer.machineNow()
	if outcome != "" || err != nil {
		r.limiter.record(p.Node, now) // after an error the pod may be evicted nevertheless
	}
	if err != nil || outcome == "" {
		return err
	}
	r.attempts[p.UID] = attempt{evicted: now}
	evictionsTotal.WithLabelValues(string(p.Reason), outcome).Inc()
	log.FromContext(ctx).Info("Evicted pod", "namespace", p.Pod.Namespace, "pod", p.Pod.Name, "reason", p.Reason, "outcome", outcome, "node", p.Node)
	r.Announcer.Events.Eventf(p.reference(), nil, corev1.EventTypeWarning, string(p.Reason), "Evict", "%s", p.endMessage())
	return nil
}

// evict evicts the pod and returns the outcome; empty if it is not evicted or was gone before.
func (r *Reconciler) evict(ctx context.Context, p *AnnouncedPod, due step) (outcome string, err error) {
	err = r.Announcer.Client.SubResource("eviction").Create(ctx, p.object(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Pod.Namespace, Name: p.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	switch {
	case err == nil:
		return outcomeEvicted, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // gone, or another pod has its name
	case !isHeldByBudget(err):
		return "", fmt.Errorf("evict pod %s: %w", p.Pod, err)
	case due == stepDelete:
		target := suspend.Target{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.UID}
		if err := r.Evictor.EvictPod(ctx, target, nil, p.endMessage()); err != nil {
			return "", err
		}
		return outcomeDeleted, nil
	}
	if known := r.attempts[p.UID]; !known.reported {
		known.reported = true
		r.attempts[p.UID] = known
		evictionsTotal.WithLabelValues(string(p.Reason), outcomeBlocked).Inc()
		r.Announcer.Events.Eventf(p.reference(), nil, corev1.EventTypeWarning, "EvictionBlocked", "Evict",
			"The eviction is refused for now; at %s the pod will be deleted all the same: %s",
			p.At.Add(r.Announcer.Periods.Budget).UTC().Format(time.RFC3339), v1alpha1.TruncateText(err.Error(), maxRefusalBytes))
	}
	return "", nil
}

// maxRefusalBytes bounds the API server's answer in an event.
const maxRefusalBytes = 500

// severalBudgets is part of the internal error with which the API server answers if several budgets select a pod.
const severalBudgets = "more than one PodDisruptionBudget"

// isHeldByBudget reports whether a disruption budget forbids an eviction. Other internal errors say nothing about
// budgets: a pod is not deleted for them.
func isHeldByBudget(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) && strings.Contains(err.Error(), severalBudgets)
}

// endMessage says why the pod is evicted.
func (p *AnnouncedPod) endMessage() string {
	if p.Reason == v1alpha1.EndShareExceeded {
		return "Sluice evicts the pod: it used more GPU memory than its share, as announced"
	}
	return "Sluice evicts the pod to make room for a pod with a guaranteed quota, as announced" // Preempted, QuotaReclaimed
}

// forgetAttempts forgets the pods that are announced no more.
func (r *Reconciler) forgetAttempts(announced []*AnnouncedPod) {
	kept := make(map[types.UID]attempt, len(r.attempts))
	for _, p := range announced {
		if known, ok := r.attempts[p.UID]; ok {
			kept[p.UID] = known
		}
	}
	r.attempts = kept
}
