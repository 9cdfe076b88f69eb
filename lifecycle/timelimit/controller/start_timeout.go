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
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// decideStartTimeout decides on a workload whose start timeout is over. The time begins again while its node or pool is not
// available, and stands still in an outage. Else its queue gets it back, if it has one. Without, it is stopped, as stop says,
// unless it waits for the pods of others to end.
func (r *Reconciler) decideStartTimeout(
	ctx context.Context, w *workload, pool *v1alpha1.NodePool, observed timelimit.Observation, stop timelimit.Decision,
) (timelimit.Decision, error) {
	begin := func() timelimit.Decision {
		observed.StartingSince = w.now
		return timelimit.Decide(w.now, w.clock.Status, observed, w.limits)
	}
	pod := w.heldPods()[0]
	hasPool := pool != nil && pool.Name != ""
	var nodes corev1.NodeList
	if hasPool {
		if err := r.Client.List(ctx, &nodes, client.MatchingLabels(pool.Spec.NodeSelector)); err != nil {
			return stop, fmt.Errorf("list the nodes of pool %s: %w", pool.Name, err)
		}
	}
	cause, reason, _, err := r.startCause(ctx, pod, nodes.Items)
	if err != nil {
		return stop, err
	}
	if unavailable, err := r.isUnavailable(ctx, pod, pool, nodes.Items, cause); unavailable || err != nil {
		return begin(), err
	}
	if hasPool && pod.Node != "" {
		if held, err := r.holdInOutage(ctx, w, pool); !held.IsZero() || err != nil {
			observed.PausedUntil = policytime.Later(observed.PausedUntil, held)
			return timelimit.Decide(w.now, w.clock.Status, observed, w.limits), err
		}
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
	switch cause {
	case causeNoRoom, causeNoInstance:
		return begin(), nil
	case causeGate, causeNoNode, causeMissingObject, causeImage, causeStarting:
	}
	return stop, nil
}

// isUnavailable reports whether the node of a pod is not ready; for a pod without a node, whether no node of its pool is ready and
// schedulable, or one is repartitioned and the pod waits for MIG instances.
func (r *Reconciler) isUnavailable(
	ctx context.Context, pod *podcache.Pod, pool *v1alpha1.NodePool, nodes []corev1.Node, cause startCause,
) (bool, error) {
	if pod.Node != "" { // also where its pool was deleted, or has other nodes by now
		_, lost, err := inventory.IsNodeLost(ctx, r.Client, pod.Node)
		return lost, err
	}
	available := pool == nil || pool.Name == ""
	for i := range nodes {
		node := &nodes[i]
		_, ready := inventory.Readiness(node)
		repartitioned := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning })
		if repartitioned && cause == causeNoInstance {
			return true, nil
		}
		available = available || ready && !node.Spec.Unschedulable
	}
	return !available, nil
}

// startCause is startCauseOf a pod in the API server. One that is gone has an empty status.
func (r *Reconciler) startCause(ctx context.Context, pod *podcache.Pod, nodes []corev1.Node) (cause startCause, reason, image string, err error) {
	object := &corev1.Pod{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, object)
	if client.IgnoreNotFound(err) != nil {
		return "", "", "", fmt.Errorf("get pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	object.Spec.NodeName = pod.Node
	cause, reason, image = startCauseOf(object, nodes)
	return cause, v1alpha1.TruncateText(reason, 300), image, nil
}
