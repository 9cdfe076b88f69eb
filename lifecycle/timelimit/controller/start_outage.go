// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

// The start timeouts of a pool are held in an outage: if those of outagePeople fall due within outageWindow, for
// holdLength, once in holdInterval, in policy time. The state is the condition StartTimeoutsHeld of the NodePool.
const (
	outagePeople = 3
	outageWindow = 10 * time.Minute
	holdLength   = 12 * time.Hour
	holdInterval = 24 * time.Hour
)

// startPool returns the node pool of a workload that starts; nil for others.
func (r *Reconciler) startPool(ctx context.Context, w *workload) (*v1alpha1.NodePool, error) {
	pods := w.heldPods()
	if len(w.runningPods) > 0 || len(pods) == 0 || pods[0].Pool == "" || w.end() != "" || w.clock.Status.Stopped != nil {
		return nil, nil
	}
	pool := &v1alpha1.NodePool{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: pods[0].Pool}, pool); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get node pool %s: %w", pods[0].Pool, err)
	}
	return pool, nil
}

// holdEnd returns until when the start timeouts of a pool are or were held; zero if they were not.
func holdEnd(pool *v1alpha1.NodePool) time.Time {
	if pool == nil || !meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionStartTimeoutsHeld) {
		return time.Time{}
	}
	return meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionStartTimeoutsHeld).LastTransitionTime.Add(holdLength)
}

// holdInOutage holds the start timeouts in the pool of a workload whose start timeout is over, if those of more people
// fall due. It returns until when they are held; zero if they are not.
func (r *Reconciler) holdInOutage(ctx context.Context, w *workload, pool *v1alpha1.NodePool) (time.Time, error) {
	if last := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionStartTimeoutsHeld); last != nil {
		next := last.LastTransitionTime.Add(holdInterval)
		if last.Status == metav1.ConditionFalse {
			next = next.Add(-holdLength)
		}
		if w.now.Before(next) {
			return time.Time{}, nil
		}
	}
	people, due, err := r.listStartsDue(ctx, w, pool.Name)
	if err != nil || people < outagePeople {
		return time.Time{}, err
	}
	shared, err := r.describeShared(ctx, due)
	if err != nil {
		return time.Time{}, err
	}
	end := w.now.Add(holdLength)
	ctrl.LoggerFrom(ctx).Info("Held start timeouts, since those of several people fell due together",
		"pool", pool.Name, "people", people, "shared", shared)
	return end, r.setHold(ctx, pool, metav1.ConditionTrue, "Outage", w.now, fmt.Sprintf(
		"the start timeouts of %d people fell due within %s, so workloads that do not start are not stopped until %s; they share %s",
		people, outageWindow, end.UTC().Format(time.RFC3339), shared))
}

// listStartsDue returns how many people have workloads on nodes of the pool whose start timeouts are over or will be within
// outageWindow, and one pod of each workload. A person may have many ServiceAccounts.
func (r *Reconciler) listStartsDue(ctx context.Context, w *workload, pool string) (people int, due []*podcache.Pod, err error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.UnsafeDisableDeepCopy); err != nil {
		return 0, nil, fmt.Errorf("list clocks to find start timeouts: %w", err)
	}
	creators := map[string]bool{}
	for i := range clocks.Items {
		end := clocks.Items[i].Status.Deadline
		if end == nil || end.Reason != v1alpha1.EndStartTimeout || end.At.After(w.now.Add(outageWindow)) {
			continue
		}
		_, pods := r.Workloads.RootsAndPods(client.ObjectKeyFromObject(&clocks.Items[i]))
		in := slices.IndexFunc(pods, func(pod *podcache.Pod) bool { return pod.Pool == pool && pod.Node != "" })
		if by := clocks.Items[i].Status.CreatedBy; in >= 0 && by != "" && !strings.HasPrefix(by, "system:") {
			creators[by], due = true, append(due, pods[in])
		}
	}
	return len(creators), due, nil
}

// maxInspectedPods is the number of pods that are read to find out what they share.
const maxInspectedPods = 8

// describeShared returns the images, nodes and reasons that several of the first pods share, the most frequent first.
func (r *Reconciler) describeShared(ctx context.Context, due []*podcache.Pod) (string, error) {
	count := map[string]int{}
	for _, pod := range due[:min(len(due), maxInspectedPods)] {
		_, reason, image, err := r.startCause(ctx, pod, nil)
		if err != nil {
			return "", err
		}
		for _, fact := range []string{"image " + image, "node " + pod.Node, "reason " + reason} {
			count[fact]++
		}
	}
	maps.DeleteFunc(count, func(fact string, times int) bool { return times < 2 || strings.HasSuffix(fact, " ") })
	shared := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	return cmp.Or(strings.Join(shared, ", "), "neither an image nor a node nor a reason"), nil
}

// setHold writes the condition, and the metric.
func (r *Reconciler) setHold(
	ctx context.Context, pool *v1alpha1.NodePool, held metav1.ConditionStatus, reason string, at time.Time, message string,
) error {
	startTimeoutsHeld.WithLabelValues(pool.Name).Set(map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1}[held])
	condition := apply.Conditions([]metav1.Condition{{
		Type: v1alpha1.ConditionStartTimeoutsHeld, Status: held, Reason: reason, ObservedGeneration: pool.Generation,
		LastTransitionTime: metav1.NewTime(at), Message: apply.TruncateMessage(message),
	}}, v1alpha1.ConditionStartTimeoutsHeld)
	return apply.Status(ctx, r.Client, v1alpha1.FieldManagerLifecycle+"-start-timeouts", nil,
		ac.NodePool(pool.Name).WithStatus(ac.NodePoolStatus().WithConditions(condition...)))
}

// releaseStartHolds ends the conditions of holds that are over, and sets the metric of the others, as after a restart.
func (r *Reconciler) releaseStartHolds(ctx context.Context) error {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list node pools: %w", err)
	}
	for i := range pools.Items {
		switch end, now := holdEnd(&pools.Items[i]), r.Clock.Now(); {
		case end.After(now):
			startTimeoutsHeld.WithLabelValues(pools.Items[i].Name).Set(1)
		case !end.IsZero():
			const message = "workloads that do not start are stopped again"
			if err := r.setHold(ctx, &pools.Items[i], metav1.ConditionFalse, "Released", now, message); err != nil {
				return err
			}
		}
	}
	return nil
}
