// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// conditions returns the conditions that are true now.
func (p *pass) conditions() (present []metav1.Condition) {
	add := func(kind, reason, message string) {
		present = append(present, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: apply.TruncateMessage(message),
			ObservedGeneration: p.project.Generation, LastTransitionTime: metav1.NewTime(policytime.MachineNow()).Rfc3339Copy(),
		})
	}
	if p.department == nil {
		return nil
	}
	spec, authors := &p.project.Spec, p.project.Annotations
	switch {
	case p.observed.Held:
		add(v1alpha1.ConditionHeld, v1alpha1.ReasonHoldInSpec,
			describeException(spec.Hold, authors[v1alpha1.HeldByAnnotation], "no step of the expiry happens"))
	case p.decision.Paused:
		add(v1alpha1.ConditionHeld, v1alpha1.ReasonPaused,
			"Sluice is paused until "+p.observed.PausedUntil.UTC().Format(time.RFC3339)+"; no step of the expiry happens before: see sluice pause")
	case p.decision.HeldByRequest:
		add(v1alpha1.ConditionHeld, v1alpha1.ReasonExtensionPending,
			"a renewal was requested; the next step waits for its decision, for at most 30 days")
	}
	if p.observed.Exempt {
		add(v1alpha1.ConditionExempt, v1alpha1.ReasonExemptInSpec,
			describeException(spec.Exempt, authors[v1alpha1.ExemptedByAnnotation], "the project does not expire"))
	}
	switch p.decision.Blocked {
	case v1alpha1.ReasonMailPaused:
		add(v1alpha1.ConditionExpiryBlocked, p.decision.Blocked,
			"no mail can be sent, because mail is paused or not set up; no step of the expiry comes before its owners are warned: "+
				"see sluice notices")
	case v1alpha1.ReasonNoRecipient:
		add(v1alpha1.ConditionExpiryBlocked, p.decision.Blocked,
			"a warning reaches neither an owner of the project nor a contact of its department; no step of the expiry comes before: "+
				"correct spec.owners, or the department's spec.contacts")
	}
	return present
}

// describeException returns the effect, the end, the author if it is known, and the reason of an exception.
func describeException(e *v1alpha1.Exception, author, effect string) string {
	until := "it is removed"
	if e.Until != nil {
		until = "the end of " + e.Until.String()
	}
	if author != "" {
		until += ", as " + author + " decided"
	}
	return fmt.Sprintf("%s until %s: %s", effect, until, e.Reason)
}

// mailCache holds for a moment whether mail is paused, since every project depends on it.
type mailCache struct {
	mu     sync.Mutex
	readAt time.Time
	paused bool
}

// mailCacheAge is the time for which the state of mail is used again, in machine time.
const mailCacheAge = 5 * time.Second

// load returns whether mail is paused. Before a change it is read again.
func (c *mailCache) load(ctx context.Context, read func(context.Context) (bool, error), fresh bool) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := policytime.MachineNow()
	if !fresh && !c.readAt.IsZero() && now.Sub(c.readAt) < mailCacheAge {
		return c.paused, nil
	}
	paused, err := read(ctx)
	if err != nil {
		return false, err
	}
	c.readAt, c.paused = now, paused
	return paused, nil
}
