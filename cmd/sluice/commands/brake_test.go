// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var stopLimiterNow = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

const (
	oneHourAgo    = "2026-11-21T15:00:00Z"
	untilOneHour  = "2026-11-21T17:00:00Z"
	untilTwoHours = "2026-11-21T18:00:00Z"

	brakeDepartment = "h2-students"
)

// newBrakeClient returns a cluster with the ConfigMap of the stop limiter; none if
// state is nil.
func newBrakeClient(t *testing.T, state map[string]any, calls interceptor.Funcs) client.WithWatch {
	t.Helper()
	if state == nil {
		return newFakeClient(t, calls)
	}
	return newFakeClient(t, calls, stopLimiterConfigMap(t, state))
}

func stopLimiterConfigMap(t *testing.T, state map[string]any) *corev1.ConfigMap {
	t.Helper()
	raw, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-stop-limiter"},
		Data:       map[string]string{brakeDepartment: string(raw)},
	}
}

func engagedStopLimiterState() map[string]any {
	return map[string]any{"engagedAt": oneHourAgo, "stopsDue": 60.0, "runningWorkloads": 100.0}
}

func withKey(data map[string]any, key string, value any) map[string]any {
	data[key] = value
	return data
}

func TestStopLimiterReportText(t *testing.T) {
	const engaged = "The stop limiter is engaged in department h2-students since 2026-11-21 15:00:00 UTC: " +
		"workloads with a shortened limit are not stopped.\n" +
		"60 of 100 running workloads were to be stopped within an hour at a shortened limit.\n" +
		"To stop them nevertheless: sluice brake release h2-students --for 2h\n"
	const last = "It last engaged at 2026-11-21 15:00:00 UTC, when 60 of 100 running workloads were to be stopped " +
		"within an hour at a shortened limit.\n"
	tests := map[string]struct {
		state map[string]any
		want  string
	}{
		"never engaged": {want: "The stop limiter is not engaged.\n"},
		"engaged":       {state: engagedStopLimiterState(), want: engaged},
		"released": {
			state: withKey(engagedStopLimiterState(), "releasedUntil", untilOneHour),
			want: "The stop limiter of department h2-students is released until 2026-11-21 17:00:00 UTC (1h): " +
				"workloads are stopped at their limits.\n" + last,
		},
		"after its release": {
			state: withKey(engagedStopLimiterState(), "releasedUntil", "2026-11-21T15:30:00Z"),
			want:  "The stop limiter is not engaged in department h2-students.\n" + last,
		},
		"engaged again": {state: withKey(engagedStopLimiterState(), "releasedUntil", "2026-11-21T14:30:00Z"), want: engaged},
		"unreadable data": {
			state: map[string]any{"engagedAt": "\x1b[2J", "stopsDue": -1},
			want:  "The stop limiter is not engaged in department h2-students.\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			report, err := getStopLimiterReport(t.Context(), newBrakeClient(t, tc.state, interceptor.Funcs{}), stopLimiterNow)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report.text(time.UTC)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseStopLimiter(t *testing.T) {
	tests := map[string]struct {
		state, want map[string]any
		department  string
		err         error
	}{
		"never engaged": {err: errStopLimiterNotEngaged},
		"engaged":       {state: engagedStopLimiterState(), want: withKey(engagedStopLimiterState(), "releasedUntil", untilTwoHours)},
		"engaged in another department": {
			state: engagedStopLimiterState(), want: engagedStopLimiterState(), department: "research", err: errStopLimiterNotEngaged,
		},
		"engaged again": {
			state: withKey(engagedStopLimiterState(), "releasedUntil", "2026-11-21T14:30:00Z"),
			want:  withKey(engagedStopLimiterState(), "releasedUntil", untilTwoHours),
		},
		"released already": {
			state: withKey(engagedStopLimiterState(), "releasedUntil", untilOneHour),
			want:  withKey(engagedStopLimiterState(), "releasedUntil", untilTwoHours),
		},
		"after its release": {
			state: withKey(engagedStopLimiterState(), "releasedUntil", "2026-11-21T15:30:00Z"),
			want:  withKey(engagedStopLimiterState(), "releasedUntil", "2026-11-21T15:30:00Z"),
			err:   errStopLimiterNotEngaged,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newBrakeClient(t, tc.state, interceptor.Funcs{})
			department := brakeDepartment
			if tc.department != "" {
				department = tc.department
			}
			report, err := releaseStopLimiter(t.Context(), c, department, stopLimiterNow, 2*time.Hour)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && (!report.Released || report.Engaged || report.ReleasedUntil.Format(time.RFC3339) != untilTwoHours) {
				t.Errorf("it reports %+v", report)
			}
			object := &corev1.ConfigMap{}
			key := client.ObjectKey{Namespace: "sluice-system", Name: "sluice-stop-limiter"}
			if err := c.Get(t.Context(), key, object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if text, found := object.Data[brakeDepartment]; found {
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the ConfigMap (-want +got):\n%s", diff)
			}
		})
	}
}

// Lifecycle may engage the stop limiter again while a user releases it.
func TestReleaseStopLimiterKeepsConcurrentUpdates(t *testing.T) {
	tries := 0
	c := newBrakeClient(t, engagedStopLimiterState(), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				if err := w.Update(ctx, stopLimiterConfigMap(t, withKey(engagedStopLimiterState(), "stopsDue", 61))); err != nil {
					return err
				}
			}
			return w.Patch(ctx, o, p, opts...)
		},
	})
	report, err := releaseStopLimiter(t.Context(), c, brakeDepartment, stopLimiterNow, 2*time.Hour)
	if err != nil || tries != 2 || report.StopsDue != 61 || !report.Released {
		t.Errorf("after %d tries: %+v, %v", tries, report, err)
	}
}

func TestStopLimiterForbidden(t *testing.T) {
	noGet := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return forbiddenError()
	}}
	noPatch := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return forbiddenError()
	}}
	_, toRead := getStopLimiterReport(t.Context(), newBrakeClient(t, engagedStopLimiterState(), noGet), stopLimiterNow)
	_, toRelease := releaseStopLimiter(t.Context(), newBrakeClient(t, engagedStopLimiterState(), noPatch), brakeDepartment, stopLimiterNow, time.Hour)
	for what, err := range map[string]error{"get the stop limiter": toRead, "release the stop limiter": toRelease} {
		if err == nil || !strings.HasPrefix(err.Error(), what+": ") ||
			!strings.Contains(err.Error(), "get and patch the ConfigMap sluice-stop-limiter in namespace sluice-system") {
			t.Errorf("%v: want the prefix %q, and a hint on the rights", err, what)
		}
	}
}

func TestParseReleaseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"2h": 2 * time.Hour, "7d": 7 * 24 * time.Hour, "90m": 90 * time.Minute} {
		if got, err := parseReleaseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "such as", "0h": "longer than zero", "-1h": "such as", "7d1s": "at most 7d", "2": "such as", "forever": "such as",
	} {
		if _, err := parseReleaseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
