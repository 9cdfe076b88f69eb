// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

var pauseNow = time.Date(2026, 11, 24, 11, 0, 0, 0, time.UTC)

// asPetra answers the question for the user.
var asPetra = asPetraWithClock(0)

// asPetraWithClock is asPetra with an API server whose clock is ahead by that much.
func asPetraWithClock(ahead time.Duration) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if review, ok := o.(*authenticationv1.SelfSubjectReview); ok {
			review.CreationTimestamp = metav1.NewTime(time.Now().Add(ahead))
			review.Status.UserInfo.Username = "petra"
			return nil
		}
		return c.Create(ctx, o, options...)
	}}
}

func TestPauseAndResume(t *testing.T) {
	c := newFakeClient(t, asPetra, &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}})
	state, err := getPause(t.Context(), c, pauseNow)
	if err != nil || state.text(time.UTC) != "Sluice is not paused.\n" {
		t.Errorf("%v, %s", err, state.text(time.UTC))
	}
	if _, err := changePause(t.Context(), c, pauseNow, endPause); err == nil {
		t.Error("a pause that does not exist was ended")
	}
	request := func(user string, now time.Time, _ *v1alpha1.Pause) (*v1alpha1.Pause, error) {
		return &v1alpha1.Pause{Since: metav1.NewTime(now), Until: metav1.NewTime(now.Add(2 * time.Hour)), By: user, Reason: "a broken policy"}, nil
	}
	if state, err = changePause(t.Context(), c, pauseNow, request); err != nil {
		t.Fatal(err)
	}
	const paused = `Sluice is paused until 2026-11-24 13:00:00 UTC: denials of policies are warnings, and time limits,
evictions and project expiry are held.
Since:  2026-11-24 11:00:00 UTC
By:     petra
Reason: a broken policy
To end it now: sluice resume
`
	if diff := cmp.Diff(paused, state.text(time.UTC)); diff != "" {
		t.Errorf("the pause (-want +got):\n%s", diff)
	}
	if state, err = changePause(t.Context(), c, pauseNow.Add(time.Hour), endPause); err != nil {
		t.Fatal(err)
	}
	const ended = `Sluice is not paused. The last pause ended at 2026-11-24 12:00:00 UTC.
Since:  2026-11-24 11:00:00 UTC
By:     petra
Reason: a broken policy
Ended by: petra
`
	if diff := cmp.Diff(ended, state.text(time.UTC)); diff != "" {
		t.Errorf("the ended pause (-want +got):\n%s", diff)
	}
	if _, err := changePause(t.Context(), newFakeClient(t, asPetra), pauseNow, request); err == nil || !strings.Contains(err.Error(), "is Sluice installed here?") {
		t.Errorf("without Sluice: %v", err)
	}
}

func TestPauseFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no duration":    {[]string{"--reason", "x"}, "--for: required with --reason"},
		"no reason":      {[]string{"--for", "2h"}, "--reason: required with --for"},
		"too short":      {[]string{"--for", "30s", "--reason", "x"}, "--for: 30s is not from 1m to 24h"},
		"too long":       {[]string{"--for", "25h", "--reason", "x"}, "--for: 25h is not from 1m to 24h"},
		"not a duration": {[]string{"--for", "soon", "--reason", "x"}, "--for: "},
		"a long reason":  {[]string{"--for", "2h", "--reason", strings.Repeat("x", 513)}, "--reason: is 513 bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := runCommand(t, append([]string{"pause"}, tc.args...)...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v: %s; want %q", err, out, tc.want)
			}
		})
	}
}

// The clock of the API server counts, not that of the machine with the command.
func TestPauseByClockOfAPIServer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": 3 * time.Hour, "behind": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := newFakeClient(t, asPetraWithClock(ahead), &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}})
			request := func(user string, now time.Time, _ *v1alpha1.Pause) (*v1alpha1.Pause, error) {
				return &v1alpha1.Pause{Since: metav1.NewTime(now), Until: metav1.NewTime(now.Add(2 * time.Hour)), By: user, Reason: "a broken policy"}, nil
			}
			state, err := changePause(t.Context(), c, pauseNow, request)
			if err != nil {
				t.Fatal(err)
			}
			if apart := state.Pause.Since.Sub(pauseNow.Add(ahead)); apart.Abs() > time.Minute {
				t.Errorf("the pause begins at %s, and the API server has %s", state.Pause.Since, pauseNow.Add(ahead))
			}
			shown, err := getPause(t.Context(), c, pauseNow)
			if err != nil || !shown.Paused || !strings.HasPrefix(shown.text(time.UTC), "Sluice is paused until ") {
				t.Errorf("a pause in force is shown as\n%s%v", shown.text(time.UTC), err)
			}
		})
	}
}
