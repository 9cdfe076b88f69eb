// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// PauseReconciler announces the pauses of Sluice: as a condition, as events, in the log and in metrics. The
// pause itself needs no announcement: each component reads it from the object.
type PauseReconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Events records when a pause begins and ends.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// pauseFieldManager owns the condition.
const pauseFieldManager = v1alpha1.FieldManagerLifecycle + "-pause"

// pausedRequeue is the longest time until the end of a pause is checked again, in machine time: policy time can
// step.
const pausedRequeue = 15 * time.Second

// The reasons of the condition.
const (
	reasonPaused   = "PauseRequested"
	reasonEnded    = "PauseEnded"
	reasonNoPause  = "NotPaused"
	reasonInvalid  = "PauseInvalid"
	formatOfReason = "%s, by %s: %s"
)

// SetupWithManager adds the controller to the manager.
func (r *PauseReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("pause").
		For(&v1alpha1.AdmissionParameters{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetName() == v1alpha1.AdmissionParametersName
		}))).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the AdmissionParameters.
func (r *PauseReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var parameters v1alpha1.AdmissionParameters
	if err := r.Client.Get(ctx, req.NamespacedName, &parameters); err != nil {
		paused.Set(0)
		pausedUntil.Set(0)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now, pause := r.Clock.Now(), parameters.Status.Pause
	inForce := pause.IsInForce(now)
	before := meta.FindStatusCondition(parameters.Status.Conditions, v1alpha1.ConditionPaused)
	condition := pauseCondition(pause, inForce, now)
	next := parameters.DeepCopy()
	if meta.SetStatusCondition(&next.Status.Conditions, condition) {
		cached := ac.AdmissionParameters(parameters.Name).WithStatus(ac.AdmissionParametersStatus().
			WithConditions(apply.Conditions(parameters.Status.Conditions, v1alpha1.ConditionPaused)...))
		desired := ac.AdmissionParameters(parameters.Name).WithStatus(ac.AdmissionParametersStatus().
			WithConditions(apply.Conditions(next.Status.Conditions, v1alpha1.ConditionPaused)...))
		if err := apply.Status(ctx, r.Client, pauseFieldManager, cached, desired); err != nil {
			return reconcile.Result{}, fmt.Errorf("write the condition %s: %w", v1alpha1.ConditionPaused, err)
		}
		r.announce(ctx, &parameters, before, &condition)
	}
	if pausedUntil.Set(0); inForce {
		pausedUntil.Set(float64(pause.Until.Unix()))
		paused.Set(1)
		return reconcile.Result{RequeueAfter: min(max(r.Clock.RealUntil(pause.Until.Time), time.Millisecond), pausedRequeue)}, nil
	}
	paused.Set(0)
	if pause != nil && now.Before(pause.Until.Time) {
		return reconcile.Result{RequeueAfter: min(max(r.Clock.RealUntil(pause.Since.Time), time.Second), time.Hour)}, nil
	}
	return reconcile.Result{}, nil
}

// pauseCondition returns the condition Paused.
func pauseCondition(pause *v1alpha1.Pause, inForce bool, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionFalse, Reason: reasonNoPause, Message: "Sluice is not paused"}
	switch {
	case pause == nil:
	case inForce:
		c.Status, c.Reason = metav1.ConditionTrue, reasonPaused
		c.Message = fmt.Sprintf(formatOfReason, "Denials of policies are warnings, and time limits, evictions and project expiry are held, until "+
			pause.Until.UTC().Format(time.RFC3339), pause.By, pause.Reason)
	case pause.HeldUntil(now).IsZero() && (pause.EndedBy == "" || !pause.Until.Equal(&pause.Since)): // else it ended at once
		c.Reason = reasonInvalid
		c.Message = fmt.Sprintf("The recorded pause has not begun, or is longer than %s, and is ignored", v1alpha1.MaxPause)
	default:
		by := ""
		if pause.EndedBy != "" {
			by = ", by " + pause.EndedBy
		}
		c.Reason = reasonEnded
		c.Message = fmt.Sprintf("The pause of %s ended at %s%s", pause.By, pause.Until.UTC().Format(time.RFC3339), by)
	}
	c.Message = apply.TruncateMessage(c.Message)
	return c
}

// announce records a change of the condition. The first condition of a cluster that was never paused is none.
func (r *PauseReconciler) announce(ctx context.Context, parameters *v1alpha1.AdmissionParameters, before, after *metav1.Condition) {
	if before == nil && after.Reason == reasonNoPause {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status == metav1.ConditionTrue || after.Reason == reasonInvalid {
		kind = corev1.EventTypeWarning
	}
	log.FromContext(ctx).WithName("decisions").Info("Changed pause", "paused", after.Status, "reason", after.Reason, "message", after.Message)
	r.Events.Eventf(parameters, nil, kind, after.Reason, "Pause", "%s", after.Message)
}

var (
	paused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_paused",
		Help: "1 while Sluice is paused: denials of policies are warnings, and time limits, evictions and project expiry are held.",
	})
	pausedUntil = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_paused_until_timestamp_seconds",
		Help: "Unix time of the end of the present pause, in policy time; 0 without one.",
	})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(paused, pausedUntil)
}
