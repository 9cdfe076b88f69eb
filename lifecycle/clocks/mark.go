// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/gpupods"
)

// announced is the end that people were told of.
func announced(s *v1alpha1.WorkloadClockStatus) *metav1.Time {
	if s.Deadline == nil || s.Deadline.AnnouncedAt == nil {
		return nil
	}
	return &s.Deadline.At
}

// lateness is how long before an end was announced a pod may have begun that
// nobody saw run then, in policy time.
const lateness = time.Minute

// mark tells the running pods when they end: all of them when that changes, and
// those that came later. It is for people and programs in them; what holds is in
// the clock, and so it is done before that is written. What is being stopped keeps
// its mark.
func (r *Reconciler) mark(ctx context.Context, w *workload, d ending.Decision) {
	if d.Stop {
		return
	}
	at, before := announced(&d.Status), announced(&w.clock.Status)
	changed := !at.Equal(before) || w.clock.Status.Stopped != nil
	if changed {
		r.marked.forget(w.clock.UID)
		for _, pod := range w.running {
			r.markPod(ctx, pod, at)
		}
	}
	if at == nil {
		return
	}
	since := d.Status.Deadline.AnnouncedAt.Add(-lateness)
	for _, pod := range w.running {
		if r.notBefore(pod.Began()).Before(since) || !r.marked.begin(w.clock.UID, pod.UID) {
			continue
		}
		if !changed {
			r.markPod(ctx, pod, at)
		}
	}
}

// markPod writes the end on a pod, or takes it off.
func (r *Reconciler) markPod(ctx context.Context, pod *gpupods.Pod, at *metav1.Time) {
	var value any
	if at != nil {
		value = at.UTC().Format(time.RFC3339)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationEndsAt: value}}})
	if err != nil {
		return
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Info("a pod does not say when it ends", "namespace", pod.Namespace, "pod", pod.Name, "reason", err.Error())
	}
}

// marks are the pods that were marked after their end was announced, by clock. A
// restart forgets them, and marks them again.
type marks struct {
	mu   sync.Mutex
	pods map[types.UID]map[types.UID]struct{}
}

// begin tells whether the pod is to be marked, and then takes it for marked.
func (m *marks) begin(clockUID, pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, done := m.pods[clockUID][pod]; done {
		return false
	}
	if m.pods == nil {
		m.pods = map[types.UID]map[types.UID]struct{}{}
	}
	if m.pods[clockUID] == nil {
		m.pods[clockUID] = map[types.UID]struct{}{}
	}
	m.pods[clockUID][pod] = struct{}{}
	return true
}

func (m *marks) forget(clockUID types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, clockUID)
}
