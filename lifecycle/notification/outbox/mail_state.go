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

// MailStateConfigMapName names the ConfigMap in Sluice's namespace that holds the state of mail:
// whether it is paused, and when it was first configured.
const MailStateConfigMapName = "sluice-mail"

// The keys of that ConfigMap. An administrator pauses mail with paused and an optional reason, and
// resumes it by removing the first four keys or with paused "false".
const (
	// MailStatePausedKey is "true" while mail is paused.
	MailStatePausedKey = "paused"
	// MailStateReasonKey is the reason.
	MailStateReasonKey = "reason"
	// MailStatePausedAtKey is when mail was paused, RFC 3339, machine time.
	MailStatePausedAtKey = "pausedAt"
	// MailStateConfigurationKey is set if lifecycle paused mail: the fingerprint of the failed
	// configuration. Mail resumes when it changes.
	MailStateConfigurationKey = "configuration"
	// MailStateEnabledAtKey is when mail was first configured, RFC 3339, policy time.
	MailStateEnabledAtKey = "since"
)

// MailState is the content of that ConfigMap.
type MailState struct {
	// Paused reports whether mail is paused, Reason why.
	Paused bool
	Reason string
	// FailedConfiguration is the fingerprint of the failed configuration; empty if an administrator
	// paused mail.
	FailedConfiguration string
	// EnabledAt is when mail was first configured; zero for not yet.
	EnabledAt time.Time
}

// ParseMailState parses the ConfigMap.
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

// mailStateObjectKey is the key of the ConfigMap.
var mailStateObjectKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: MailStateConfigMapName}

// ReadMailState reads the state. It is empty before mail was configured.
func ReadMailState(ctx context.Context, reader client.Reader) (MailState, error) {
	var object corev1.ConfigMap
	if err := reader.Get(ctx, mailStateObjectKey, &object); client.IgnoreNotFound(err) != nil {
		return MailState{}, fmt.Errorf("get mail state: %w", err)
	}
	return ParseMailState(&object), nil
}

// reconcileMailState reads the state, records when mail was first configured, and resumes mail if
// the failed configuration has changed.
func (s *Sender) reconcileMailState(ctx context.Context, now Instant) (MailState, error) {
	var object corev1.ConfigMap
	if err := s.Live.Get(ctx, mailStateObjectKey, &object); client.IgnoreNotFound(err) != nil {
		return MailState{}, fmt.Errorf("get mail state: %w", err)
	}
	state := ParseMailState(&object)
	if state.Paused && state.FailedConfiguration != "" {
		fingerprint, err := s.Fingerprint(ctx)
		if err != nil {
			return MailState{}, err
		}
		if fingerprint != state.FailedConfiguration {
			values := map[string]string{MailStateEnabledAtKey: object.Data[MailStateEnabledAtKey]}
			if err := s.writeMailState(ctx, &object, values); err != nil {
				return MailState{}, err
			}
			state = MailState{EnabledAt: state.EnabledAt}
			s.recordMailEvent(ctx, corev1.EventTypeNormal, "MailResumed", "Resume", "mail resumed, since its configuration has changed")
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

// readFirstSentAt reads when the first Notice was sent, by the one scan of all Notices in the life
// of a process. Mail was configured by then, even if the ConfigMap has a later time.
func (s *Sender) readFirstSentAt(ctx context.Context) error {
	if !s.firstSentAt.IsZero() {
		return nil
	}
	var all v1alpha1.NoticeList
	if err := s.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list notices: %w", err)
	}
	for i := range all.Items {
		if at := all.Items[i].Status.SentAt; at != nil {
			s.firstSentAt = earliestTime(s.firstSentAt, at.Time)
		}
	}
	return nil
}

// pauseMail pauses mail until the configuration changes or an administrator resumes it. If the
// configuration changed after the attempt began, mail is not paused and the new one is tried:
// otherwise nothing would resume mail. begun is when the attempt began.
func (s *Sender) pauseMail(ctx context.Context, now Instant, begun time.Time, cause error) error {
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
		return fmt.Errorf("get mail state: %w", err)
	}
	if ParseMailState(&object).Paused {
		return nil
	}
	values := map[string]string{
		MailStatePausedKey: "true", MailStateReasonKey: publicReason(cause), MailStateConfigurationKey: fingerprint,
		MailStatePausedAtKey: now.Machine.UTC().Format(time.RFC3339), MailStateEnabledAtKey: object.Data[MailStateEnabledAtKey],
	}
	if err := s.writeMailState(ctx, &object, values); err != nil {
		return err
	}
	pausedGauge.Set(1)
	s.recordMailEvent(ctx, corev1.EventTypeWarning, "MailPaused", "Pause",
		"mail is paused until its configuration or its Secret is corrected; to resume: sluice notices resume; reason: "+publicReason(cause))
	return nil
}

// writeMailState replaces the data of the ConfigMap, which may not exist yet.
func (s *Sender) writeMailState(ctx context.Context, object *corev1.ConfigMap, values map[string]string) error {
	object.Data = values
	if object.ResourceVersion == "" {
		object.ObjectMeta = metav1.ObjectMeta{Namespace: mailStateObjectKey.Namespace, Name: mailStateObjectKey.Name}
		err := s.Client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(corev1.Resource("configmaps"), MailStateConfigMapName, err)
		}
		if err != nil {
			return fmt.Errorf("write mail state: %w", err)
		}
		return nil
	}
	if err := s.Client.Update(ctx, object); err != nil {
		return fmt.Errorf("write mail state: %w", err)
	}
	return nil
}

// recordMailEvent logs a change of the mail state and records an event on the ConfigMap.
func (s *Sender) recordMailEvent(ctx context.Context, kind, reason, action, text string) {
	text = singleLine(text) // an event's note is limited, as is a status's error
	if log := s.logger(ctx); kind == corev1.EventTypeWarning {
		log.Error(nil, "Mail state changed", "reason", reason, "message", text)
	} else {
		log.Info("Mail state changed", "reason", reason, "message", text)
	}
	regarding := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: mailStateObjectKey.Namespace, Name: mailStateObjectKey.Name,
	}
	s.Events.Eventf(regarding, nil, kind, reason, action, "%s", text)
}
