// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/lifecycle/notices/outbox"
)

// State is whether mail is sent.
type State struct {
	// Paused is true while nothing is sent, Because why, and Since, machine time, since
	// when.
	Paused  bool       `json:"paused"`
	Because string     `json:"because,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// ByLifecycle is true where lifecycle itself paused mail, for a configuration that
	// does not work: with another, mail goes on by itself.
	ByLifecycle bool `json:"byLifecycle,omitempty"`
}

// longestReason is how many characters a reason may have.
const longestReason = 256

// ErrNotPaused is that there is nothing to resume.
var ErrNotPaused = errors.New("mail is not paused")

var stateKey = client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: outbox.StateName}

// ReadState reads whether mail is sent. Where nobody ever paused it, it is.
func ReadState(ctx context.Context, c client.Reader) (State, error) {
	object := &corev1.ConfigMap{}
	if err := c.Get(ctx, stateKey, object); client.IgnoreNotFound(err) != nil {
		return State{}, fmt.Errorf("reading whether mail is paused: %w%s", err, mayChange(err))
	}
	return stateOf(object), nil
}

func stateOf(object *corev1.ConfigMap) State {
	read := outbox.StateOf(object)
	if !read.Paused {
		return State{}
	}
	s := State{Paused: true, Because: read.Because, ByLifecycle: read.Configuration != ""}
	if at, err := time.Parse(time.RFC3339, object.Data[outbox.StateAt]); err == nil {
		at = at.UTC()
		s.Since = &at
	}
	return s
}

// Pause has no mail sent from now on, machine time, until somebody resumes it; the
// reason may be empty. What is being sent is sent.
func Pause(ctx context.Context, c client.Client, reason string, now time.Time) (State, error) {
	if utf8.RuneCountInString(reason) > longestReason || strings.ContainsAny(reason, "\n\r") {
		return State{}, fmt.Errorf("--reason: want one line of at most %d characters", longestReason)
	}
	return change(ctx, c, "pausing mail", func(object *corev1.ConfigMap) error {
		clearPause(object)
		object.Data[outbox.StatePaused] = "true"
		object.Data[outbox.StateAt] = now.UTC().Format(time.RFC3339)
		if reason != "" {
			object.Data[outbox.StateBecause] = reason
		}
		return nil
	})
}

// Resume has mail sent again. It fails with [ErrNotPaused] where it is sent already.
func Resume(ctx context.Context, c client.Client) (State, error) {
	return change(ctx, c, "resuming mail", func(object *corev1.ConfigMap) error {
		if !outbox.StateOf(object).Paused {
			return ErrNotPaused
		}
		clearPause(object)
		return nil
	})
}

// clearPause leaves of the state what is not about a pause.
func clearPause(object *corev1.ConfigMap) {
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	for _, key := range []string{outbox.StatePaused, outbox.StateBecause, outbox.StateAt, outbox.StateConfiguration} {
		delete(object.Data, key)
	}
}

// change changes the ConfigMap, or makes it. Lifecycle may write at the same time;
// what it writes is kept.
func change(ctx context.Context, c client.Client, what string, how func(*corev1.ConfigMap) error) (State, error) {
	var state State
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		object := &corev1.ConfigMap{}
		err := c.Get(ctx, stateKey, object)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return fmt.Errorf("%s: %w%s", what, err, mayChange(err))
		}
		before := object.DeepCopy()
		if err := how(object); err != nil {
			return err
		}
		if missing {
			object.ObjectMeta = metav1.ObjectMeta{Namespace: stateKey.Namespace, Name: stateKey.Name}
			err = c.Create(ctx, object, client.FieldOwner(v1alpha1.FieldManagerCLI))
		} else {
			err = c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManagerCLI))
		}
		if err != nil {
			return fmt.Errorf("%s: %w%s", what, err, mayChange(err))
		}
		state = stateOf(object)
		return nil
	})
	return state, err
}

func mayChange(err error) string {
	return whoMay(err, fmt.Sprintf("get, create and patch the ConfigMap %s in namespace %s", stateKey.Name, stateKey.Namespace))
}

// Text is the state for a person, in lines; times in zone.
func (s State) Text(zone *time.Location) string {
	if !s.Paused {
		return "mail is sent\n"
	}
	var text strings.Builder
	text.WriteString("mail is paused")
	if s.Since != nil {
		text.WriteString(" since " + show.Second(*s.Since, zone))
	}
	text.WriteString(": what is due waits, nothing is lost\n")
	if s.Because != "" {
		fmt.Fprintf(&text, "the reason: %s\n", show.Clean(s.Because))
	}
	if s.ByLifecycle {
		text.WriteString("it goes on by itself with another configuration or Secret; to try with the same: sluice notices resume\n")
	} else {
		text.WriteString("to go on: sluice notices resume\n")
	}
	return text.String()
}
