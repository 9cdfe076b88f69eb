// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// localTime is how people read an instant: with its zone.
const localTime = "2006-01-02 15:04 MST"

// words say why it is refused, until when, and what to do. What cannot be found
// out for them is left out.
func (h *Handler) words(ctx context.Context, s *start, found *stop) string {
	project, zone := "", time.UTC
	if owner, err := h.Tenants.Of(ctx, s.namespace); err == nil && owner != nil {
		project, zone = owner.Project, owner.Zone
	}
	recorded := found.clock
	if recorded == nil {
		recorded = h.recorded(ctx, s)
	}
	root, reason := v1alpha1.WorkloadReference{Kind: s.kind.Kind, Name: s.name}, v1alpha1.EndReason("")
	if recorded != nil {
		root, reason = recorded.Spec.Root, recorded.Status.Stopped.Reason
	}
	which := root.Kind + " " + root.Name
	if found.copied {
		which = fmt.Sprintf("%s %s runs the same as %s, which", s.kind.Kind, s.name, which)
	}
	return fmt.Sprintf("%s was stopped by Sluice%s, and may be started again %s; %s",
		which, because(recorded), when(found.until, zone), remedy(reason, found.until, project, root, s.namespace))
}

// because is why a workload was stopped, as part of a sentence; empty where that
// is not known.
func because(c *v1alpha1.WorkloadClock) string {
	if c == nil {
		return ""
	}
	switch c.Status.Stopped.Reason {
	case v1alpha1.EndMaxRuntime:
		if limit := c.Status.Limit; limit != nil {
			return fmt.Sprintf(" when it had run for %s, as long as it may", limit.InForce)
		}
		return " when it had run as long as it may"
	case v1alpha1.EndIdle:
		return " since its GPUs were not used"
	case v1alpha1.EndProjectSuspended:
		return " since its project is suspended"
	case v1alpha1.EndOverShare:
		return " since it took more of a GPU than its share"
	case v1alpha1.EndPreempted:
		return " to make room for others"
	}
	return ""
}

// when is the minute after which a stop is over: who tries again then is not told
// the same minute once more.
func when(until time.Time, zone *time.Location) string {
	if until.IsZero() {
		return "only when that is decided"
	}
	return "at " + until.Add(time.Minute-time.Nanosecond).Truncate(time.Minute).In(zone).Format(localTime)
}

// remedy is what the reader can do.
func remedy(reason v1alpha1.EndReason, until time.Time, project string, root v1alpha1.WorkloadReference, namespace string) string {
	var ways []string
	if !until.IsZero() {
		ways = append(ways, "wait until then")
	}
	switch reason {
	case v1alpha1.EndProjectSuspended:
		if project != "" {
			ways = append(ways, fmt.Sprintf(`have the project renewed: sluice extend project/%s --reason "..."`, project))
		}
	case v1alpha1.EndOverShare, v1alpha1.EndPreempted: // more time would not help
	default:
		ways = append(ways, fmt.Sprintf(`ask for more time: sluice extend %s/%s -n %s --by 24h --reason "..."`, strings.ToLower(root.Kind), root.Name, namespace))
	}
	if len(ways) == 0 {
		return "ask the administrators of the department"
	}
	return strings.Join(ways, ", or ")
}

// recorded is the clock of an object that has the mark, or of what controls it:
// Kueue's Workload has the mark of what it holds. It is nil where there is none.
func (h *Handler) recorded(ctx context.Context, s *start) *v1alpha1.WorkloadClock {
	kinds, names := []schema.GroupKind{s.kind}, []string{s.name}
	if owner := metav1.GetControllerOfNoCopy(s.before); owner != nil {
		kinds, names = append(kinds, kindOf(owner)), append(names, owner.Name)
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
