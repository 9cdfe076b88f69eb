// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/cmd/sluice/commands"
)

var stopLimiterNow = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

const (
	oneHourAgo    = "2026-11-21T15:00:00Z"
	untilOneHour  = "2026-11-21T17:00:00Z"
	untilTwoHours = "2026-11-21T18:00:00Z"
)

// clientWithStopLimiter is a cluster whose brake's ConfigMap says this; nil for none.
func clientWithStopLimiter(data map[string]string, calls interceptor.Funcs) client.WithWatch {
	builder := fake.NewClientBuilder().WithInterceptorFuncs(calls)
	if data != nil {
		builder = builder.WithObjects(stopLimiterConfigMap(data))
	}
	return builder.Build()
}

func stopLimiterConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-brake"}, Data: data}
}

func engagedStopLimiterData() map[string]string {
	return map[string]string{"engagedAt": oneHourAgo, "due": "60", "running": "100"}
}

func withDataKey(data map[string]string, key, value string) map[string]string {
	data[key] = value
	return data
}

func TestStopLimiterStatusText(t *testing.T) {
	tests := map[string]struct {
		says map[string]string
		want string
	}{
		"never engaged": {want: "the brake is not engaged\n"},
		"engaged": {
			says: engagedStopLimiterData(),
			want: "the brake is engaged since 2026-11-21 15:00:00 UTC: no workload is stopped\n" +
				"60 of 100 running workloads were to be stopped within an hour\n" +
				"if that is meant: sluice brake release --for 2h\n",
		},
		"released": {
			says: withDataKey(engagedStopLimiterData(), "releasedUntil", untilOneHour),
			want: "the brake is released until 2026-11-21 17:00:00 UTC (1h): workloads are stopped, however many\n" +
				"it was engaged last at 2026-11-21 15:00:00 UTC, when 60 of 100 running workloads were to be stopped within an hour\n",
		},
		"its release is over": {
			says: withDataKey(engagedStopLimiterData(), "releasedUntil", "2026-11-21T15:30:00Z"),
			want: "the brake is not engaged\n" +
				"it was engaged last at 2026-11-21 15:00:00 UTC, when 60 of 100 running workloads were to be stopped within an hour\n",
		},
		"engaged again": {
			says: withDataKey(engagedStopLimiterData(), "releasedUntil", "2026-11-21T14:30:00Z"),
			want: "the brake is engaged since 2026-11-21 15:00:00 UTC: no workload is stopped\n" +
				"60 of 100 running workloads were to be stopped within an hour\n" +
				"if that is meant: sluice brake release --for 2h\n",
		},
		"nothing to read": {says: map[string]string{"engagedAt": "\x1b[2J", "due": "-1"}, want: "the brake is not engaged\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			report, err := commands.GetStopLimiterStatus(t.Context(), clientWithStopLimiter(tc.says, interceptor.Funcs{}), stopLimiterNow)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report.Text(time.UTC)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseStopLimiter(t *testing.T) {
	tests := map[string]struct {
		says, want map[string]string
		err        error
	}{
		"never engaged":       {err: commands.ErrStopLimiterNotEngaged},
		"engaged":             {says: engagedStopLimiterData(), want: withDataKey(engagedStopLimiterData(), "releasedUntil", untilTwoHours)},
		"engaged again":       {says: withDataKey(engagedStopLimiterData(), "releasedUntil", "2026-11-21T14:30:00Z"), want: withDataKey(engagedStopLimiterData(), "releasedUntil", untilTwoHours)},
		"released already":    {says: withDataKey(engagedStopLimiterData(), "releasedUntil", untilOneHour), want: withDataKey(engagedStopLimiterData(), "releasedUntil", untilTwoHours)},
		"its release is over": {says: withDataKey(engagedStopLimiterData(), "releasedUntil", "2026-11-21T15:30:00Z"), want: withDataKey(engagedStopLimiterData(), "releasedUntil", "2026-11-21T15:30:00Z"), err: commands.ErrStopLimiterNotEngaged},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := clientWithStopLimiter(tc.says, interceptor.Funcs{})
			report, err := commands.ReleaseStopLimiter(t.Context(), c, stopLimiterNow, 2*time.Hour)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && (!report.Released || report.Engaged || report.ReleasedUntil.Format(time.RFC3339) != untilTwoHours) {
				t.Errorf("it reports %+v", report)
			}
			object := stopLimiterConfigMap(nil)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, object.Data); diff != "" {
				t.Errorf("the ConfigMap (-want +got):\n%s", diff)
			}
		})
	}
}

// Lifecycle engages the brake again while somebody releases it: both are kept.
func TestReleaseStopLimiterKeepsConcurrentUpdates(t *testing.T) {
	tries := 0
	c := clientWithStopLimiter(engagedStopLimiterData(), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				if err := w.Update(ctx, stopLimiterConfigMap(withDataKey(engagedStopLimiterData(), "due", "61"))); err != nil {
					return err
				}
			}
			return w.Patch(ctx, o, p, opts...)
		},
	})
	report, err := commands.ReleaseStopLimiter(t.Context(), c, stopLimiterNow, 2*time.Hour)
	if err != nil || tries != 2 || report.StopsDue != 61 || !report.Released {
		t.Errorf("after %d tries: %+v, %v", tries, report, err)
	}
}

func TestStopLimiterForbidden(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "sluice-brake", errors.New("not you"))
	noGet := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return refused
	}}
	noPatch := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return refused
	}}
	_, toRead := commands.GetStopLimiterStatus(t.Context(), clientWithStopLimiter(engagedStopLimiterData(), noGet), stopLimiterNow)
	_, toRelease := commands.ReleaseStopLimiter(t.Context(), clientWithStopLimiter(engagedStopLimiterData(), noPatch), stopLimiterNow, time.Hour)
	for what, err := range map[string]error{"reading the brake": toRead, "releasing the brake": toRelease} {
		if err == nil || !strings.HasPrefix(err.Error(), what+": ") || !strings.Contains(err.Error(), "get and patch the ConfigMap sluice-brake in namespace sluice-system") {
			t.Errorf("%v: want it to begin %q, and to say whose business it is", err, what)
		}
	}
}

func TestParseReleaseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"2h": 2 * time.Hour, "7d": 7 * 24 * time.Hour, "90m": 90 * time.Minute} {
		if got, err := commands.ParseReleaseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{"": "such as", "0h": "longer than zero", "-1h": "such as", "7d1s": "at most 7d", "2": "such as", "forever": "such as"} {
		if _, err := commands.ParseReleaseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
