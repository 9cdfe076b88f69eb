// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/owner"
)

// After its last pod ended, a workload is observed at each endObservationInterval until
// endObservationPeriod has passed, in machine time: a controller reports the end of a workload,
// and the garbage collector deletes one, a moment after the pods. Later ends are found by the
// hourly search of removeExpiredClocks.
const (
	endObservationInterval = 10 * time.Second
	endObservationPeriod   = 30 * time.Second
)

// observeEnd observes whether a workload without GPU pods finished by itself or was deleted.
func (r *Reconciler) observeEnd(ctx context.Context, w *workload) error {
	s := &w.clock.Status
	if len(w.heldPods()) > 0 || s.CompletedAt != nil || s.MissingSince != nil {
		return nil
	}
	ended := s.RunningSince != nil || s.IdleSince != nil || s.StartingSince != nil
	recent := s.Stopped == nil && s.PausedSince != nil &&
		s.PausedSince.After(r.Clock.FromReal(policytime.MachineNow().Add(-endObservationPeriod)))
	if !ended && !recent {
		return nil
	}
	object, err := r.getRoot(ctx, rootOfClock(w.clock))
	if err != nil {
		return err
	}
	w.missing = object == nil
	if w.completed, err = r.isCompleted(ctx, w, object); err != nil {
		return err
	}
	if !w.completed && !w.missing && s.Stopped == nil {
		w.requeueWithin(endObservationInterval)
	}
	return nil
}

// isCompleted reports whether a workload finished by itself: by the status of its root, or
// because the pod that ended last succeeded. A Job reports its completion a moment after that.
func (r *Reconciler) isCompleted(ctx context.Context, w *workload, root *unstructured.Unstructured) (bool, error) {
	if root != nil && isFinished(root) {
		return true, nil
	}
	last := r.Workloads.lastEndedPod(client.ObjectKeyFromObject(w.clock))
	if last == nil {
		return false, nil
	}
	pod, err := r.getRoot(ctx, owner.Root{GroupVersionKind: podKind, Namespace: last.Namespace, Name: last.Name, UID: last.UID})
	if pod == nil || err != nil {
		return false, err
	}
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == string(corev1.PodSucceeded) && pod.GetDeletionTimestamp() == nil, nil
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// isFinished reports whether a workload finished by itself. A deleted pod ends in the same
// phases.
func isFinished(object *unstructured.Unstructured) bool {
	kind, known := workloadkind.Lookup(object.GroupVersionKind().GroupKind())
	return known && kind.IsFinished(object) && (object.GroupVersionKind() != podKind || object.GetDeletionTimestamp() == nil)
}
