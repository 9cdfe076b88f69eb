// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// A pause that was ended in the second in which it began is over, and not invalid.
func TestPauseCondition(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	pause := func(since, until time.Duration, endedBy string) *v1alpha1.Pause {
		return &v1alpha1.Pause{
			Since: metav1.NewTime(now.Add(since)), Until: metav1.NewTime(now.Add(until)), By: "petra", Reason: "x", EndedBy: endedBy,
		}
	}
	for name, tc := range map[string]struct {
		pause           *v1alpha1.Pause
		reason, message string
	}{
		"none":                         {nil, reasonNoPause, "Sluice is not paused"},
		"in force":                     {pause(-time.Hour, time.Hour, ""), reasonPaused, "until 2026-11-24T13:00:00Z, by petra: x"},
		"over":                         {pause(-2*time.Hour, -time.Hour, ""), reasonEnded, "The pause of petra ended at 2026-11-24T11:00:00Z"},
		"ended early":                  {pause(-2*time.Hour, -time.Hour, "max"), reasonEnded, "ended at 2026-11-24T11:00:00Z, by max"},
		"ended in its first second":    {pause(0, 0, "max"), reasonEnded, "The pause of petra ended at 2026-11-24T12:00:00Z, by max"},
		"ended, its clock was ahead":   {pause(3*time.Minute, 3*time.Minute, "max"), reasonEnded, "by max"},
		"not begun":                    {pause(time.Hour, 2*time.Hour, ""), reasonInvalid, "has not begun"},
		"longer than a pause can be":   {pause(-time.Hour, 24*time.Hour, ""), reasonInvalid, "longer than 24h"},
		"an end without a beginning":   {pause(0, 0, ""), reasonInvalid, "is ignored"},
		"ended, and too long (forged)": {pause(-48*time.Hour, time.Hour, "max"), reasonInvalid, "is ignored"},
	} {
		c := pauseCondition(tc.pause, tc.pause.IsInForce(now), now)
		if c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) {
			t.Errorf("%s: %s, %q; want %s, %q", name, c.Reason, c.Message, tc.reason, tc.message)
		}
	}
}

// Without the object Sluice is not paused, and no metric says otherwise.
func TestPauseMetricsWithoutTheObject(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	paused.Set(1)
	pausedUntil.Set(1)
	r := &PauseReconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Clock: policytime.System()}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.AdmissionParametersName}}); err != nil {
		t.Fatal(err)
	}
	if p, until := testutil.ToFloat64(paused), testutil.ToFloat64(pausedUntil); p != 0 || until != 0 {
		t.Errorf("sluice_paused %v, until %v", p, until)
	}
}
