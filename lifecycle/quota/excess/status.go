// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

// reasonLimitExceeded is the reason of the events.
const reasonLimitExceeded = v1alpha1.ConditionLimitExceeded

// condition returns the condition LimitExceeded of a holder with these conditions, or nil if it never
// exceeded a limit. The last excess stays in the message.
func (r *Reconciler) condition(h holder, all []metav1.Condition, exceeded []scope, generation int64, now time.Time) *metav1.Condition {
	r.mu.Lock()
	last := r.last[h.String()]
	r.mu.Unlock()
	known := meta.FindStatusCondition(all, v1alpha1.ConditionLimitExceeded)
	if len(exceeded) == 0 && (known == nil || known.Status == metav1.ConditionFalse && last == "") {
		return known
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionLimitExceeded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWithinLimit,
		Message: "its pods are within its limits", ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if len(exceeded) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonLimitLowered, describeAll(exceeded)
	}
	for i := range exceeded {
		switch d := &exceeded[i].decision; {
		case d.endsPods():
			c.Reason = v1alpha1.ReasonNewestPodsEnded
		case len(d.Claims) > 0 && c.Reason != v1alpha1.ReasonNewestPodsEnded:
			c.Reason = v1alpha1.ReasonGuaranteeClaimed
		}
	}
	if last != "" {
		c.Message += "; " + last
	}
	c.Message = apply.TruncateMessage(c.Message)
	conditions := []metav1.Condition{c}
	if known != nil {
		conditions[0] = *known
		meta.SetStatusCondition(&conditions, c) // keeps the transition time
	}
	return &conditions[0]
}

// reportedExceeded passes the projects and departments whose condition says that their pods exceed a limit.
// A decision whose cache has no condition yet, since its own write is younger, clears none: it follows again.
var reportedExceeded = predicate.NewPredicateFuncs(func(object client.Object) bool {
	var conditions []metav1.Condition
	switch o := object.(type) {
	case *v1alpha1.Project:
		conditions = o.Status.Conditions
	case *v1alpha1.Department:
		conditions = o.Status.Conditions
	}
	return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionLimitExceeded)
})

// describeAll describes each exceeded limit, and what happens with its pods.
func describeAll(exceeded []scope) string {
	var texts []string
	for i := range exceeded {
		text, d := exceeded[i].describe(), &exceeded[i].decision
		switch {
		case len(d.Claims) > 0:
			text += describeClaims(d)
		case !d.endsPods():
			text += ", by pods that are older than the limit: they continue, and no new GPU pods start until enough have ended"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// describeClaims describes which pods within a guarantee claim room, and what is preempted for them.
func describeClaims(d *Decision) string {
	claimants := make([]*podcache.Pod, len(d.Claims))
	for i := range d.Claims {
		claimants[i] = d.Claims[i].Pod
	}
	text := ", for work within a guarantee (" + joinNames(claimants) + "): "
	if len(d.Preempt) == 0 {
		return text + "pods over quota are announced to be preempted in the next round, at most one every 10 minutes for each project"
	}
	return text + "it stays above the limit until the pods over quota that are announced to be preempted have ended: " + joinNames(d.Preempt)
}

// fieldManager owns the condition.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-excess"

// applyCondition writes the condition of a holder with these conditions if it changed. status returns the
// holder's status with conditions.
func (r *Reconciler) applyCondition(
	ctx context.Context, h holder, all []metav1.Condition, condition *metav1.Condition,
	status func(...*metav1ac.ConditionApplyConfiguration) runtime.ApplyConfiguration,
) error {
	if condition == nil {
		return nil
	}
	fields := func(conditions []metav1.Condition) runtime.ApplyConfiguration {
		return status(apply.Conditions(conditions, v1alpha1.ConditionLimitExceeded)...)
	}
	if err := apply.Status(ctx, r.Client, fieldManager, fields(all), fields([]metav1.Condition{*condition})); err != nil {
		return fmt.Errorf("write condition %s of %s: %w", condition.Type, h, err)
	}
	return nil
}

var (
	endedPods = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_limit_excess_ended_pods_total",
		Help: "GPU pods that were ended because they exceeded the limit of their project or department.",
	})
	excessGPUs = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_limit_excess_gpus",
		Help:    "GPUs above a limit each time that pods were ended for it.",
		Buckets: []float64{.125, .25, .5, 1, 2, 4, 8, 16, 32, 64},
	})
	detectionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sluice_limit_excess_detection_seconds",
		Help: "Time in seconds from the creation of the newest pod above a limit until pods were ended for it, in machine time. " +
			"It is up to one second too long, because creation times are whole seconds.",
		Buckets: []float64{.25, .5, 1, 1.5, 2, 3, 5, 10, 30, 60},
	})
)

func init() { metrics.Registry.MustRegister(endedPods, excessGPUs, detectionSeconds) }

// observeExcess counts an excess for which pods were ended, after a time since the newest was created.
func observeExcess(excess workload.Milli, pods int, after time.Duration) {
	endedPods.Add(float64(pods))
	excessGPUs.Observe(float64(excess) / 1000)
	detectionSeconds.Observe(max(0, after).Seconds())
}
