// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package brake_test

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

	"sluice.dev/cmd/sluice/brake"
)

var now = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

const (
	hourAgo  = "2026-11-21T15:00:00Z"
	anHour   = "2026-11-21T17:00:00Z"
	twoHours = "2026-11-21T18:00:00Z"
)

// saying is a cluster whose brake's ConfigMap says this; nil for none.
func saying(data map[string]string, calls interceptor.Funcs) client.WithWatch {
	builder := fake.NewClientBuilder().WithInterceptorFuncs(calls)
	if data != nil {
		builder = builder.WithObjects(configMap(data))
	}
	return builder.Build()
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-brake"}, Data: data}
}

func engaged() map[string]string {
	return map[string]string{"engagedAt": hourAgo, "due": "60", "running": "100"}
}

func with(data map[string]string, key, value string) map[string]string {
	data[key] = value
	return data
}

func TestText(t *testing.T) {
	tests := map[string]struct {
		says map[string]string
		want string
	}{
		"never engaged": {want: "the brake is not engaged\n"},
		"engaged": {
			says: engaged(),
			want: "the brake is engaged since 2026-11-21 15:00:00 UTC: no workload is stopped\n" +
				"60 of 100 running workloads were to be stopped within an hour\n" +
				"if that is meant: sluice brake release --for 2h\n",
		},
		"released": {
			says: with(engaged(), "releasedUntil", anHour),
			want: "the brake is released until 2026-11-21 17:00:00 UTC (1h): workloads are stopped, however many\n" +
				"it was engaged last at 2026-11-21 15:00:00 UTC, when 60 of 100 running workloads were to be stopped within an hour\n",
		},
		"its release is over": {
			says: with(engaged(), "releasedUntil", "2026-11-21T15:30:00Z"),
			want: "the brake is not engaged\n" +
				"it was engaged last at 2026-11-21 15:00:00 UTC, when 60 of 100 running workloads were to be stopped within an hour\n",
		},
		"engaged again": {
			says: with(engaged(), "releasedUntil", "2026-11-21T14:30:00Z"),
			want: "the brake is engaged since 2026-11-21 15:00:00 UTC: no workload is stopped\n" +
				"60 of 100 running workloads were to be stopped within an hour\n" +
				"if that is meant: sluice brake release --for 2h\n",
		},
		"nothing to read": {says: map[string]string{"engagedAt": "\x1b[2J", "due": "-1"}, want: "the brake is not engaged\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			report, err := brake.Read(t.Context(), saying(tc.says, interceptor.Funcs{}), now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report.Text(time.UTC)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	tests := map[string]struct {
		says, want map[string]string
		err        error
	}{
		"never engaged":       {err: brake.ErrNotEngaged},
		"engaged":             {says: engaged(), want: with(engaged(), "releasedUntil", twoHours)},
		"engaged again":       {says: with(engaged(), "releasedUntil", "2026-11-21T14:30:00Z"), want: with(engaged(), "releasedUntil", twoHours)},
		"released already":    {says: with(engaged(), "releasedUntil", anHour), want: with(engaged(), "releasedUntil", twoHours)},
		"its release is over": {says: with(engaged(), "releasedUntil", "2026-11-21T15:30:00Z"), want: with(engaged(), "releasedUntil", "2026-11-21T15:30:00Z"), err: brake.ErrNotEngaged},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := saying(tc.says, interceptor.Funcs{})
			report, err := brake.Release(t.Context(), c, now, 2*time.Hour)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && (!report.Released || report.Engaged || report.ReleasedUntil.Format(time.RFC3339) != twoHours) {
				t.Errorf("it reports %+v", report)
			}
			object := configMap(nil)
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
func TestReleaseLosesNothingOfWhatLifecycleWrites(t *testing.T) {
	tries := 0
	c := saying(engaged(), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				if err := w.Update(ctx, configMap(with(engaged(), "due", "61"))); err != nil {
					return err
				}
			}
			return w.Patch(ctx, o, p, opts...)
		},
	})
	report, err := brake.Release(t.Context(), c, now, 2*time.Hour)
	if err != nil || tries != 2 || report.Due != 61 || !report.Released {
		t.Errorf("after %d tries: %+v, %v", tries, report, err)
	}
}

func TestWithoutTheRight(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "sluice-brake", errors.New("not you"))
	noGet := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return refused
	}}
	noPatch := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return refused
	}}
	_, toRead := brake.Read(t.Context(), saying(engaged(), noGet), now)
	_, toRelease := brake.Release(t.Context(), saying(engaged(), noPatch), now, time.Hour)
	for what, err := range map[string]error{"reading the brake": toRead, "releasing the brake": toRelease} {
		if err == nil || !strings.HasPrefix(err.Error(), what+": ") || !strings.Contains(err.Error(), "get and patch the ConfigMap sluice-brake in namespace sluice-system") {
			t.Errorf("%v: want it to begin %q, and to say whose business it is", err, what)
		}
	}
}

func TestParseLength(t *testing.T) {
	for text, want := range map[string]time.Duration{"2h": 2 * time.Hour, "7d": 7 * 24 * time.Hour, "90m": 90 * time.Minute} {
		if got, err := brake.ParseLength(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{"": "such as", "0h": "longer than zero", "-1h": "such as", "7d1s": "at most 7d", "2": "such as", "forever": "such as"} {
		if _, err := brake.ParseLength(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
