// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// StateName is the name of the ConfigMap, in Sluice's own namespace, that says
// whether mail is paused, and since when there is any.
const StateName = "sluice-mail"

// The keys of that ConfigMap. Whoever pauses mail writes paused, and may say why;
// whoever resumes it takes the four away, or sets paused to "false".
const (
	// StatePaused is "true" while nothing is sent.
	StatePaused = "paused"
	// StateBecause is why, in a sentence.
	StateBecause = "because"
	// StateAt is since when, RFC 3339, machine time.
	StateAt = "pausedAt"
	// StateConfiguration is there if lifecycle itself paused mail, and tells the
	// configuration that did not work from others: with another, mail goes on.
	StateConfiguration = "configuration"
	// StateSince is when mail was set up, RFC 3339, policy time. What was over by then
	// is not sent.
	StateSince = "since"
)

// State is what that ConfigMap says.
type State struct {
	// Paused is true while nothing is sent, and Because why.
	Paused  bool
	Because string
	// Configuration is that which did not work; empty if a person paused mail.
	Configuration string
	// Since is when mail was set up; zero for not yet.
	Since time.Time
}

// StateOf reads the ConfigMap.
func StateOf(object *corev1.ConfigMap) State {
	s := State{
		Because: object.Data[StateBecause], Configuration: object.Data[StateConfiguration],
		Paused: object.Data[StatePaused] != "" && object.Data[StatePaused] != "false",
	}
	if at, err := time.Parse(time.RFC3339, object.Data[StateSince]); err == nil {
		s.Since = at.UTC()
	}
	return s
}

// stateKey is where the ConfigMap is.
var stateKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StateName}

// look reads the state, records when mail was set up, and lets mail go on that was
// paused for a configuration which has changed since.
func (s *Sender) look(ctx context.Context, now Moment) (State, error) {
	var object corev1.ConfigMap
	if err := s.Live.Get(ctx, stateKey, &object); client.IgnoreNotFound(err) != nil {
		return State{}, fmt.Errorf("reading whether mail is paused: %w", err)
	}
	state := StateOf(&object)
	if state.Paused && state.Configuration != "" {
		fingerprint, err := s.Fingerprint(ctx)
		if err != nil {
			return State{}, err
		}
		if fingerprint != state.Configuration {
			if err := s.write(ctx, &object, map[string]string{StateSince: object.Data[StateSince]}); err != nil {
				return State{}, err
			}
			state = State{Since: state.Since}
			s.tell(ctx, corev1.EventTypeNormal, "MailResumed", "Resume", "the configuration of mail has changed; mail goes on")
		}
	}
	if state.Since.IsZero() {
		state.Since = now.Policy.Truncate(time.Second)
		values := map[string]string{StateSince: state.Since.UTC().Format(time.RFC3339)}
		for _, key := range []string{StatePaused, StateBecause, StateAt, StateConfiguration} {
			if value, ok := object.Data[key]; ok {
				values[key] = value
			}
		}
		if err := s.write(ctx, &object, values); err != nil {
			return State{}, err
		}
	}
	s.lookedAt = now.Machine
	pausedGauge.Set(0)
	if state.Paused {
		pausedGauge.Set(1)
	}
	return state, nil
}

// firstSent is when the first Notice was sent, in policy time; zero without one. Mail
// was set up by then, whatever the ConfigMap says.
func firstSent(notices []v1alpha1.Notice) (first time.Time) {
	for i := range notices {
		if at := notices[i].Status.SentAt; at != nil {
			first = sooner(first, at.Time)
		}
	}
	return first
}

// pause has nothing sent until the configuration changes, or somebody resumes mail. A
// configuration that has changed since it was last looked at, perhaps while mails were
// on their way, is tried first: paused for its predecessor, nothing would wake mail.
// begun is when the attempt began.
func (s *Sender) pause(ctx context.Context, now Moment, begun time.Time, why error) error {
	fingerprint, err := s.Fingerprint(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.known != "" && s.known != fingerprint {
		s.changedAt = now.Machine
	}
	s.known = fingerprint
	before := !begun.After(s.changedAt)
	s.mu.Unlock()
	if before {
		return nil
	}
	var object corev1.ConfigMap
	if err := s.Live.Get(ctx, stateKey, &object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pausing mail: %w", err)
	}
	if StateOf(&object).Paused {
		return nil
	}
	values := map[string]string{
		StatePaused: "true", StateBecause: oneLine(why.Error()), StateConfiguration: fingerprint,
		StateAt: now.Machine.UTC().Format(time.RFC3339), StateSince: object.Data[StateSince],
	}
	if err := s.write(ctx, &object, values); err != nil {
		return err
	}
	pausedGauge.Set(1)
	s.tell(ctx, corev1.EventTypeWarning, "MailPaused", "Pause",
		"no mail is sent until its configuration or its Secret is put right, or: sluice notices resume; the reason: "+oneLine(why.Error()))
	return nil
}

// write replaces what the ConfigMap says, which may not be there yet.
func (s *Sender) write(ctx context.Context, object *corev1.ConfigMap, values map[string]string) error {
	object.Data = values
	if object.ResourceVersion == "" {
		object.ObjectMeta = metav1.ObjectMeta{Namespace: stateKey.Namespace, Name: stateKey.Name}
		err := s.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(corev1.Resource("configmaps"), StateName, err)
		}
		if err != nil {
			return fmt.Errorf("recording the state of mail: %w", err)
		}
		return nil
	}
	if err := s.Client.Update(ctx, object); err != nil {
		return fmt.Errorf("recording the state of mail: %w", err)
	}
	return nil
}

// tell says in the log and in an event on the ConfigMap what became of mail.
func (s *Sender) tell(ctx context.Context, kind, reason, action, text string) {
	text = oneLine(text) // an event's text may be as long as a status' error
	if log := s.log(ctx); kind == corev1.EventTypeWarning {
		log.Error(nil, text, "reason", reason)
	} else {
		log.Info(text, "reason", reason)
	}
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: stateKey.Namespace, Name: stateKey.Name}
	s.Events.Eventf(regarding, nil, kind, reason, action, "%s", text)
}
