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

// MailStateConfigMapName is the name of the ConfigMap, in Sluice's own namespace, that says
// whether mail is paused, and since when there is any.
const MailStateConfigMapName = "sluice-mail"

// The keys of that ConfigMap. Whoever pauses mail writes paused, and may say why;
// whoever resumes it takes the four away, or sets paused to "false".
const (
	// MailStatePausedKey is "true" while nothing is sent.
	MailStatePausedKey = "paused"
	// MailStateReasonKey is why, in a sentence.
	MailStateReasonKey = "because"
	// MailStatePausedAtKey is since when, RFC 3339, machine time.
	MailStatePausedAtKey = "pausedAt"
	// MailStateConfigurationKey is there if lifecycle itself paused mail, and tells the
	// configuration that did not work from others: with another, mail goes on.
	MailStateConfigurationKey = "configuration"
	// MailStateEnabledAtKey is when mail was set up, RFC 3339, policy time. What was over by then
	// is not sent.
	MailStateEnabledAtKey = "since"
)

// MailState is what that ConfigMap says.
type MailState struct {
	// Paused is true while nothing is sent, and Because why.
	Paused bool
	Reason string
	// FailedConfiguration is that which did not work; empty if a person paused mail.
	FailedConfiguration string
	// EnabledAt is when mail was set up; zero for not yet.
	EnabledAt time.Time
}

// ParseMailState reads the ConfigMap.
func ParseMailState(object *corev1.ConfigMap) MailState {
	s := MailState{
		Reason: object.Data[MailStateReasonKey], FailedConfiguration: object.Data[MailStateConfigurationKey],
		Paused: object.Data[MailStatePausedKey] != "" && object.Data[MailStatePausedKey] != "false",
	}
	if at, err := time.Parse(time.RFC3339, object.Data[MailStateEnabledAtKey]); err == nil {
		s.EnabledAt = at.UTC()
	}
	return s
}

// mailStateObjectKey is where the ConfigMap is.
var mailStateObjectKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: MailStateConfigMapName}

// reconcileMailState reads the state, records when mail was set up, and lets mail go on that was
// paused for a configuration which has changed since.
func (s *Sender) reconcileMailState(ctx context.Context, now Instant) (MailState, error) {
	var object corev1.ConfigMap
	if err := s.Live.Get(ctx, mailStateObjectKey, &object); client.IgnoreNotFound(err) != nil {
		return MailState{}, fmt.Errorf("reading whether mail is paused: %w", err)
	}
	state := ParseMailState(&object)
	if state.Paused && state.FailedConfiguration != "" {
		fingerprint, err := s.Fingerprint(ctx)
		if err != nil {
			return MailState{}, err
		}
		if fingerprint != state.FailedConfiguration {
			if err := s.writeMailState(ctx, &object, map[string]string{MailStateEnabledAtKey: object.Data[MailStateEnabledAtKey]}); err != nil {
				return MailState{}, err
			}
			state = MailState{EnabledAt: state.EnabledAt}
			s.recordMailEvent(ctx, corev1.EventTypeNormal, "MailResumed", "Resume", "the configuration of mail has changed; mail goes on")
		}
	}
	if state.EnabledAt.IsZero() {
		state.EnabledAt = now.Policy.Truncate(time.Second)
		values := map[string]string{MailStateEnabledAtKey: state.EnabledAt.UTC().Format(time.RFC3339)}
		for _, key := range []string{MailStatePausedKey, MailStateReasonKey, MailStatePausedAtKey, MailStateConfigurationKey} {
			if value, ok := object.Data[key]; ok {
				values[key] = value
			}
		}
		if err := s.writeMailState(ctx, &object, values); err != nil {
			return MailState{}, err
		}
	}
	s.mailStateReadAt = now.Machine
	pausedGauge.Set(0)
	if state.Paused {
		pausedGauge.Set(1)
	}
	return state, nil
}

// firstSentAt is when the first Notice was sent, in policy time; zero without one. Mail
// was set up by then, whatever the ConfigMap says.
func firstSentAt(notices []v1alpha1.Notice) (first time.Time) {
	for i := range notices {
		if at := notices[i].Status.SentAt; at != nil {
			first = earliestTime(first, at.Time)
		}
	}
	return first
}

// pauseMail has nothing sent until the configuration changes, or somebody resumes mail. A
// configuration that has changed since it was last looked at, perhaps while mails were
// on their way, is tried first: paused for its predecessor, nothing would wake mail.
// begun is when the attempt began.
func (s *Sender) pauseMail(ctx context.Context, now Instant, begun time.Time, why error) error {
	fingerprint, err := s.Fingerprint(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.knownFingerprint != "" && s.knownFingerprint != fingerprint {
		s.fingerprintChangedAt = now.Machine
	}
	s.knownFingerprint = fingerprint
	before := !begun.After(s.fingerprintChangedAt)
	s.mu.Unlock()
	if before {
		return nil
	}
	var object corev1.ConfigMap
	if err := s.Live.Get(ctx, mailStateObjectKey, &object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pausing mail: %w", err)
	}
	if ParseMailState(&object).Paused {
		return nil
	}
	values := map[string]string{
		MailStatePausedKey: "true", MailStateReasonKey: singleLine(why.Error()), MailStateConfigurationKey: fingerprint,
		MailStatePausedAtKey: now.Machine.UTC().Format(time.RFC3339), MailStateEnabledAtKey: object.Data[MailStateEnabledAtKey],
	}
	if err := s.writeMailState(ctx, &object, values); err != nil {
		return err
	}
	pausedGauge.Set(1)
	s.recordMailEvent(ctx, corev1.EventTypeWarning, "MailPaused", "Pause",
		"no mail is sent until its configuration or its Secret is put right, or: sluice notices resume; the reason: "+singleLine(why.Error()))
	return nil
}

// writeMailState replaces what the ConfigMap says, which may not be there yet.
func (s *Sender) writeMailState(ctx context.Context, object *corev1.ConfigMap, values map[string]string) error {
	object.Data = values
	if object.ResourceVersion == "" {
		object.ObjectMeta = metav1.ObjectMeta{Namespace: mailStateObjectKey.Namespace, Name: mailStateObjectKey.Name}
		err := s.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(corev1.Resource("configmaps"), MailStateConfigMapName, err)
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

// recordMailEvent says in the log and in an event on the ConfigMap what became of mail.
func (s *Sender) recordMailEvent(ctx context.Context, kind, reason, action, text string) {
	text = singleLine(text) // an event's text may be as long as a status' error
	if log := s.logger(ctx); kind == corev1.EventTypeWarning {
		log.Error(nil, text, "reason", reason)
	} else {
		log.Info(text, "reason", reason)
	}
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: mailStateObjectKey.Namespace, Name: mailStateObjectKey.Name}
	s.Events.Eventf(regarding, nil, kind, reason, action, "%s", text)
}
