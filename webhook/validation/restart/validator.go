// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restart denies the start of a workload that Sluice stopped, until the stop ends or an Extension is granted, and
// further pods of a workload whose project has expired.
//
// It compares the creation, update or scaling of a workload in a governed namespace with the WorkloadClocks of the
// namespace. A denial has the reason and the end of the stop, and what to do. It applies to all users, administrators
// and controllers included.
//
// The package never denies an update that starts nothing, or an object that a controller creates for another one. If a
// check fails, it allows the start: lifecycle stops the workload again. The stop of a workload does not apply to another
// user's workload of the same name or template. It never reads pods, and never changes anything.
package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// Validator handles requests that start a workload.
type Validator struct {
	// Clocks is a cache of WorkloadClocks with the index [StoppedClockIndex].
	Clocks client.Reader
	// Tenants resolves the project that owns a namespace.
	Tenants *evaluation.TenantResolver
	// Clock is policy time.
	Clock policytime.Clock
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler. It allows the request if the check fails, with the error for the log.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	denial, err := v.denialInClosedProject(ctx, &req)
	if denial != "" {
		return admission.Denied(denial)
	}
	if denial == "" && err == nil {
		if denial, err = v.denialOfCount(ctx, &req); denial != "" {
			return admission.Denied(denial)
		}
	}
	if err != nil {
		return allowUnchecked(err)
	}
	start, err := decodeStart(&req)
	if err != nil {
		return allowUnchecked(err)
	}
	if start == nil {
		return admission.Allowed("")
	}
	stop, err := v.findStop(ctx, start)
	if err != nil {
		return allowUnchecked(err)
	}
	if stop == nil {
		return admission.Allowed("")
	}
	return admission.Denied(v.denialMessage(ctx, start, stop))
}

func allowUnchecked(err error) admission.Response {
	response := admission.Allowed("")
	response.Result = &metav1.Status{Code: response.Result.Code, Message: fmt.Sprintf("check whether the workload may start: %v", err)}
	return response
}

// timeFormat is the format of times in messages.
const timeFormat = "2006-01-02 15:04 MST"

// denialMessage returns the reason and the end of the stop, and what to do, as far as they are known.
func (v *Validator) denialMessage(ctx context.Context, start *startRequest, stop *activeStop) string {
	project, zone, extension := "", time.UTC, v1alpha1.ExtensionTerms{}.LongestExtension()
	if tenant, err := v.Tenants.Resolve(ctx, start.namespace); err == nil && tenant != nil {
		project, zone, extension = tenant.Project, tenant.TimeZone, tenant.LongestExtension
	}
	clock := stop.clock
	if clock == nil {
		clock = v.findStoppedClock(ctx, start)
	}
	root, reason := v1alpha1.WorkloadReference{Kind: start.kind.Kind, Name: start.name}, v1alpha1.EndReason("")
	if clock != nil {
		root, reason = clock.Spec.Root, clock.Status.Stopped.Reason
	}
	name := root.Kind + " " + root.Name
	if stop.isCopy {
		name = fmt.Sprintf("%s %s runs the same as %s, which", start.kind.Kind, start.name, name)
	}
	return fmt.Sprintf("%s was stopped by Sluice%s, and can be started again %s; %s",
		name, describeReason(clock), describeEnd(stop.until, zone),
		describeRemedy(reason, stop.until, project, root, start.namespace, extension))
}

// describeReason returns the reason of a stop as part of a sentence; "" if it is not known.
func describeReason(clock *v1alpha1.WorkloadClock) string {
	if clock == nil {
		return ""
	}
	switch clock.Status.Stopped.Reason {
	case v1alpha1.EndMaxRuntime:
		if limit := clock.Status.Limit; limit != nil {
			return fmt.Sprintf(" after it had run for %s, its time limit", limit.InForce)
		}
		return " after it had reached its time limit"
	case v1alpha1.EndIdle:
		return " because its GPUs were idle"
	case v1alpha1.EndProjectSuspended:
		return " because its project is suspended"
	case v1alpha1.EndShareExceeded:
		return " because it used more of a GPU than its share"
	case v1alpha1.EndPreempted, v1alpha1.EndQuotaReclaimed:
		return " to make room for other workloads"
	}
	return ""
}

// describeEnd returns the minute when a stop has ended, rounded up.
func describeEnd(until time.Time, zone *time.Location) string {
	if until.IsZero() {
		return "only after a decision"
	}
	return "at " + until.Add(time.Minute-time.Nanosecond).Truncate(time.Minute).In(zone).Format(timeFormat)
}

// describeRemedy returns what the user can do.
func describeRemedy(
	reason v1alpha1.EndReason, until time.Time, project string, root v1alpha1.WorkloadReference, namespace string, extension period.Duration,
) string {
	var steps []string
	if !until.IsZero() {
		steps = append(steps, "wait until then")
	}
	switch reason {
	case v1alpha1.EndProjectSuspended:
		if project != "" {
			steps = append(steps, fmt.Sprintf(`renew the project: sluice renew project/%s --reason "..."`, project))
		}
	case v1alpha1.EndShareExceeded, v1alpha1.EndPreempted, v1alpha1.EndQuotaReclaimed: // more time would not help
	default:
		steps = append(steps, fmt.Sprintf(`request more time: sluice extend %s/%s -n %s --by %s --reason "..."`,
			strings.ToLower(root.Kind), root.Name, namespace, extension))
	}
	if len(steps) == 0 {
		return "ask the administrators of the department"
	}
	return strings.Join(steps, ", or ")
}

// findStoppedClock returns the clock of an object with a stop annotation, or of its controller: Kueue's Workload has the
// annotation of the workload it holds. It returns nil if there is no such clock.
func (v *Validator) findStoppedClock(ctx context.Context, start *startRequest) *v1alpha1.WorkloadClock {
	kinds, names := []schema.GroupKind{start.kind}, []string{start.name}
	if owner := metav1.GetControllerOfNoCopy(start.before); owner != nil {
		kinds, names = append(kinds, ownerKind(owner)), append(names, owner.Name)
	}
	for i, kind := range kinds {
		clock := &v1alpha1.WorkloadClock{}
		key := client.ObjectKey{Namespace: start.namespace, Name: v1alpha1.WorkloadClockName(kind.Group, kind.Kind, names[i])}
		if err := v.Clocks.Get(ctx, key, clock); err == nil && clock.Status.Stopped != nil {
			return clock
		}
	}
	return nil
}
