// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// decideStartTimeout decides on a workload whose start timeout is over. The time begins again while no node of
// its pool is available, and stands still in an outage. Else its queue gets it back, if it has one. Without, it is stopped, as stop
// says, unless it waits for the pods of others to end.
func (r *Reconciler) decideStartTimeout(
	ctx context.Context, w *workload, pool *v1alpha1.NodePool, observed timelimit.Observation, stop timelimit.Decision,
) (timelimit.Decision, error) {
	begin := func() timelimit.Decision {
		observed.StartingSince = w.now
		return timelimit.Decide(w.now, w.clock.Status, observed, w.limits)
	}
	if pool != nil && pool.Name != "" {
		if unavailable, err := r.isUnavailable(ctx, pool); unavailable || err != nil {
			return begin(), err
		}
		if held, err := r.holdInOutage(ctx, w, pool); !held.IsZero() || err != nil {
			observed.PausedUntil = policytime.Later(observed.PausedUntil, held)
			return timelimit.Decide(w.now, w.clock.Status, observed, w.limits), err
		}
	}
	cause, reason, _, err := r.startCause(ctx, w.heldPods()[0])
	if err != nil {
		return stop, err
	}
	for _, root := range w.roots {
		until, first, err := r.Stopper.PutBack(ctx, stopTargetOf(root), w.now, isOwnFault[cause])
		if err != nil {
			return stop, err
		}
		if first {
			ctrl.LoggerFrom(ctx).Info("Put back workload", "clock", w.clock.Name, "cause", cause, "reason", reason, "until", until)
			r.recordEvent(w, corev1.EventTypeWarning, "PutBack", "PutBack", fmt.Sprintf(
				"No pod started within %s (%s), so its GPUs are given back. It keeps its place in the queue, and takes part again at %s",
				w.limits.StartTimeout, reason, until.In(w.zone).Format(localTimeFormat)))
		}
		if !until.IsZero() {
			return w.withoutStop(stop), nil // its pods end in a moment
		}
	}
	if cause == causeNoRoom {
		return begin(), nil
	}
	return stop, nil
}

// isUnavailable reports whether no node of a pool is ready and schedulable, or one is being repartitioned.
func (r *Reconciler) isUnavailable(ctx context.Context, pool *v1alpha1.NodePool) (bool, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.MatchingLabels(pool.Spec.NodeSelector)); err != nil {
		return false, fmt.Errorf("list the nodes of pool %s: %w", pool.Name, err)
	}
	repartitions := func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning }
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	available := false
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if slices.ContainsFunc(node.Spec.Taints, repartitions) {
			return true, nil
		}
		available = available || !node.Spec.Unschedulable && slices.ContainsFunc(node.Status.Conditions, ready)
	}
	return !available, nil
}

// startCause is startCauseOf a pod in the API server. One that is gone has an empty status.
func (r *Reconciler) startCause(ctx context.Context, pod *podcache.Pod) (cause startCause, reason, image string, err error) {
	object := &corev1.Pod{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, object)
	if client.IgnoreNotFound(err) != nil {
		return "", "", "", fmt.Errorf("get pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	object.Spec.NodeName = pod.Node
	cause, reason, image = startCauseOf(object)
	return cause, v1alpha1.TruncateText(reason, 300), image, nil
}
