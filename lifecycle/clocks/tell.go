// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// tell says what was done where people look: in events on the workload, on its
// pods, in the log.
func (r *Reconciler) tell(ctx context.Context, w *workload, before v1alpha1.WorkloadClockStatus, d ending.Decision) {
	log := ctrl.LoggerFrom(ctx).WithName("decisions").WithValues(
		"project", w.project.Name, "kind", w.clock.Spec.Root.Kind, "workload", w.clock.Spec.Root.Name, "state", d.Status.State)
	for _, warning := range d.Warnings {
		if warning.Superseded {
			continue
		}
		log.Info("warned", "because", warning.Reason, "lead", warning.Lead.String(), "deadline", warning.Deadline)
		r.event(w, corev1.EventTypeWarning, "EndsSoon", "Warn", "%s", sentence(w, d, warning))
	}
	if d.Reset && before.State != "" {
		log.Info("its time begins anew")
	}
	if d.Released {
		log.Info("it may be started again")
		r.event(w, corev1.EventTypeNormal, "MayStart", "Release", "it may be started again")
	}
	if d.Stopped {
		stopped := d.Status.Stopped
		stops.WithLabelValues(string(stopped.Reason)).Inc()
		lag.Observe(max(0, w.now.Sub(due(before, stopped)).Seconds()))
		log.Info("stopped", "because", stopped.Reason, "until", stopped.Until, "times", stopped.Times)
		r.event(w, corev1.EventTypeWarning, "Stopped", "Stop", "%s", w.because(d))
	}
}

// due is when a stop was to happen, as it was recorded.
func due(before v1alpha1.WorkloadClockStatus, stopped *v1alpha1.ClockStop) time.Time {
	if before.Deadline != nil && before.Deadline.Reason == stopped.Reason {
		return before.Deadline.At.Time
	}
	return stopped.At.Time
}

// sentence is a warning in words.
func sentence(w *workload, d ending.Decision, warning ending.Warning) string {
	at := warning.Deadline.In(w.zone).Format(localTime)
	if warning.Reason == v1alpha1.EndIdle {
		return fmt.Sprintf("its GPUs are not used; unless they are, it is stopped at %s (idle for %s)", at, w.terms.IdleTimeout)
	}
	return fmt.Sprintf("it is stopped at %s, when it has run for %s; more time: sluice extend %s/%s -n %s --by 24h --reason ...",
		at, d.Status.Limit.InForce, w.clock.Spec.Root.Kind, w.clock.Spec.Root.Name, w.clock.Namespace)
}

// because is why the workload is stopped, in words.
func (w *workload) because(d ending.Decision) string {
	stopped := d.Status.Stopped
	until := "somebody decides"
	if stopped.Until != nil {
		until = stopped.Until.In(w.zone).Format(localTime)
	}
	switch stopped.Reason {
	case v1alpha1.EndIdle:
		return fmt.Sprintf("its GPUs were not used for %s; it may be started again at any time", w.terms.IdleTimeout)
	case v1alpha1.EndMaxRuntime:
		limit := ""
		if d.Status.Limit != nil {
			limit = d.Status.Limit.InForce.String()
		}
		return fmt.Sprintf("it has run for %s, as long as workloads of type %s of project %s may; it may be started again at %s, or with an extension",
			limit, w.kind, w.project.Name, until)
	}
	return fmt.Sprintf("stopped by Sluice (%s) until %s", stopped.Reason, until)
}

// event is one on the workload itself, if it can still be named.
func (r *Reconciler) event(w *workload, kind, reason, action, format string, args ...any) {
	ref := w.clock.Spec.Root
	var regarding runtime.Object = &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.clock.Namespace, Name: ref.Name, UID: w.clock.Status.RootUID,
		},
	}
	r.Events.Eventf(regarding, w.clock, kind, reason, action, format, args...)
}
