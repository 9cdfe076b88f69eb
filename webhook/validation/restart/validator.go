// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restarts refuses to let a workload be started that Sluice stopped, until
// its stop is over or somebody gave it more time.
//
// Enters: the change, the scaling or the creation of a workload in a governed
// namespace, and the WorkloadClocks of that namespace, from a cache. Leaves: a
// denial that says why and until when the workload is stopped, and what to do; or
// consent.
//
// It holds for everybody, administrators and controllers too. It never refuses
// what stops a workload, nor any other change of a stopped one; never judges what
// a controller makes of another object; never reads pods; and never changes
// anything. Where it cannot tell, it consents: what slips through is stopped again
// by lifecycle.
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

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// Validator answers when a workload is started.
type Validator struct {
	// Clocks is a cache of WorkloadClocks, with the index [StoppedClocks].
	Clocks client.Reader
	// Tenants knows whose a namespace is, for the words of an answer alone.
	Tenants *evaluation.TenantResolver
	// Clock is policy time.
	Clock policytime.Clock
}

var _ admission.Handler = (*Validator)(nil)

// Handle implements admission.Handler. An error is no denial: the answer then says
// so for the log.
func (h *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	begun, err := decodeStart(&req)
	if err != nil {
		return allowUnchecked(err)
	}
	if begun == nil {
		return admission.Allowed("")
	}
	found, err := h.findStop(ctx, begun)
	if err != nil {
		return allowUnchecked(err)
	}
	if found == nil {
		return admission.Allowed("")
	}
	return admission.Denied(h.denialMessage(ctx, begun, found))
}

// allowUnchecked consents, since a webhook that errs must hold up nothing.
func allowUnchecked(err error) admission.Response {
	response := admission.Allowed("")
	response.Result = &metav1.Status{Code: response.Result.Code, Message: fmt.Sprintf("check whether the workload is stopped: %v", err)}
	return response
}

// timeFormat is how people read an instant: with its zone.
const timeFormat = "2006-01-02 15:04 MST"

// denialMessage say why it is refused, until when, and what to do. What cannot be found
// out for them is left out.
func (h *Validator) denialMessage(ctx context.Context, s *startRequest, found *stop) string {
	project, zone := "", time.UTC
	if owner, err := h.Tenants.Resolve(ctx, s.namespace); err == nil && owner != nil {
		project, zone = owner.Project, owner.TimeZone
	}
	recorded := found.clock
	if recorded == nil {
		recorded = h.findStoppedClock(ctx, s)
	}
	root, reason := v1alpha1.WorkloadReference{Kind: s.kind.Kind, Name: s.name}, v1alpha1.EndReason("")
	if recorded != nil {
		root, reason = recorded.Spec.Root, recorded.Status.Stopped.Reason
	}
	which := root.Kind + " " + root.Name
	if found.isCopy {
		which = fmt.Sprintf("%s %s runs the same as %s, which", s.kind.Kind, s.name, which)
	}
	return fmt.Sprintf("%s was stopped by Sluice%s, and can be started again %s; %s",
		which, describeReason(recorded), describeEnd(found.until, zone), describeRemedy(reason, found.until, project, root, s.namespace))
}

// describeReason is why a workload was stopped, as part of a sentence; empty where that
// is not known.
func describeReason(c *v1alpha1.WorkloadClock) string {
	if c == nil {
		return ""
	}
	switch c.Status.Stopped.Reason {
	case v1alpha1.EndMaxRuntime:
		if limit := c.Status.Limit; limit != nil {
			return fmt.Sprintf(" after it had run for %s, its time limit", limit.InForce)
		}
		return " after it had reached its time limit"
	case v1alpha1.EndIdle:
		return " because its GPUs were idle"
	case v1alpha1.EndProjectSuspended:
		return " because its project is suspended"
	case v1alpha1.EndShareExceeded:
		return " because it used more of a GPU than its share"
	case v1alpha1.EndPreempted:
		return " to make room for other workloads"
	}
	return ""
}

// describeEnd is the minute after which a stop is over: who tries again then is not told
// the same minute once more.
func describeEnd(until time.Time, zone *time.Location) string {
	if until.IsZero() {
		return "only after a decision"
	}
	return "at " + until.Add(time.Minute-time.Nanosecond).Truncate(time.Minute).In(zone).Format(timeFormat)
}

// describeRemedy is what the reader can do.
func describeRemedy(reason v1alpha1.EndReason, until time.Time, project string, root v1alpha1.WorkloadReference, namespace string) string {
	var ways []string
	if !until.IsZero() {
		ways = append(ways, "wait until then")
	}
	switch reason {
	case v1alpha1.EndProjectSuspended:
		if project != "" {
			ways = append(ways, fmt.Sprintf(`renew the project: sluice extend project/%s --reason "..."`, project))
		}
	case v1alpha1.EndShareExceeded, v1alpha1.EndPreempted: // more time would not help
	default:
		ways = append(ways, fmt.Sprintf(`request more time: sluice extend %s/%s -n %s --by 24h --reason "..."`, strings.ToLower(root.Kind), root.Name, namespace))
	}
	if len(ways) == 0 {
		return "ask the administrators of the department"
	}
	return strings.Join(ways, ", or ")
}

// findStoppedClock is the clock of an object that has the mark, or of what controls it:
// Kueue's Workload has the mark of what it holds. It is nil where there is none.
func (h *Validator) findStoppedClock(ctx context.Context, s *startRequest) *v1alpha1.WorkloadClock {
	kinds, names := []schema.GroupKind{s.kind}, []string{s.name}
	if owner := metav1.GetControllerOfNoCopy(s.before); owner != nil {
		kinds, names = append(kinds, ownerKind(owner)), append(names, owner.Name)
	}
	for i, kind := range kinds {
		c := &v1alpha1.WorkloadClock{}
		key := client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.WorkloadClockName(kind.Group, kind.Kind, names[i])}
		if err := h.Clocks.Get(ctx, key, c); err == nil && c.Status.Stopped != nil {
			return c
		}
	}
	return nil
}
