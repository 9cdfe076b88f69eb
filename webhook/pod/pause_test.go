// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// settableClock is a policy time that a test sets.
type settableClock struct {
	policytime.Clock
	now time.Time
}

func (c *settableClock) Now() time.Time { return c.now }

const plainPod = `{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}`

var pausedAt = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func newPause(since, until time.Time) *v1alpha1.Pause {
	return &v1alpha1.Pause{Since: metav1.NewTime(since), Until: metav1.NewTime(until), By: "root", Reason: "a broken policy"}
}

// A pause makes the denials of a team's policies warnings, in both phases of admission, and of no other policy. It ends at its
// time without any write. A pause that is not valid does nothing.
func TestPauseTurnsDenialsIntoWarnings(t *testing.T) {
	deny := engine.Source{Name: "team", Rego: "package team\ndeny contains \"no pods today\""}
	fails := engine.Source{Name: "team", Rego: "package team\noverrides := {\"metadata\": {\"labels\": {\"a\": 1 / (count(input.object.metadata.name) - 1)}}}\n" +
		"deny contains \"x\" if {\n\t1 / (count(input.object.metadata.name) - 1) > 0\n}"}
	replaces := engine.Source{Name: "team", Replaces: "core.type", Rego: "package team\ndeny contains \"no pods today\""}
	conflict := func(value string) engine.Source {
		return engine.Source{Name: "team-" + value, Rego: "package team" + value + "\noverrides := {\"metadata\": {\"labels\": {\"a\": \"" + value + "\"}}}"}
	}
	pause := newPause(pausedAt, pausedAt.Add(2*time.Hour))
	const tooMuch = `{"metadata": {"name": "a", "labels": {"sluice.dev/node-pool": "other"}}, "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}`
	for name, tc := range map[string]struct {
		pause  *v1alpha1.Pause
		after  time.Duration
		pod    string
		team   []engine.Source
		denial string
	}{
		"no pause":                      {pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"a pause":                       {pause: pause, pod: plainPod, team: []engine.Source{deny}},
		"just before its end":           {pause: pause, after: 2*time.Hour - time.Second, pod: plainPod, team: []engine.Source{deny}},
		"its end":                       {pause: pause, after: 2 * time.Hour, pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"before it":                     {pause: pause, after: -time.Hour, pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"a clock that is behind":        {pause: pause, after: -time.Minute, pod: plainPod, team: []engine.Source{deny}},
		"a policy that fails":           {pause: pause, pod: plainPod, team: []engine.Source{fails}},
		"a failure without a pause":     {pod: plainPod, team: []engine.Source{fails}, denial: "could not be evaluated"},
		"a built-in policy":             {pause: pause, pod: tooMuch, team: []engine.Source{deny}, denial: "(policy core.quota)"},
		"a replacement of one":          {pause: pause, pod: plainPod, team: []engine.Source{replaces}, denial: "no pods today"},
		"policies that conflict":        {pause: pause, pod: plainPod, team: []engine.Source{conflict("x"), conflict("y")}, denial: "conflict"},
		"a pause of a week":             {pause: newPause(pausedAt, pausedAt.Add(7*24*time.Hour)), pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"a pause from an old backup":    {pause: newPause(pausedAt.Add(-48*time.Hour), pausedAt.Add(-47*time.Hour)), pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"a pause without a beginning":   {pause: newPause(time.Time{}, pausedAt.Add(time.Hour)), pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
		"a pause that ends as it began": {pause: newPause(pausedAt, pausedAt), pod: plainPod, team: []engine.Source{deny}, denial: "no pods today"},
	} {
		t.Run(name, func(t *testing.T) {
			base, cluster := newBase(t, tc.team...), newFakeReader()
			cluster.pause = tc.pause
			base.Tenants = &evaluation.TenantResolver{Cache: cluster, Clock: &settableClock{policytime.System(), pausedAt.Add(tc.after)}}
			request := createRequest([]byte(tc.pod))
			response := (&pod.Mutator{Base: base}).Handle(t.Context(), request)
			if tc.denial != "" {
				if response.Allowed || !strings.Contains(response.Result.Message, tc.denial) {
					t.Fatalf("response %+v, want a denial with %q", response.AdmissionResponse, tc.denial)
				}
				return
			}
			if !response.Allowed || !strings.Contains(strings.Join(response.Warnings, "\n"), "2026-11-24T14:00:00Z, until when policies are paused") {
				t.Fatalf("allowed %v with warnings %q", response.Allowed, response.Warnings)
			}
			request.Object.Raw = applyPatch(t, request.Object.Raw, response)
			var recorded map[string][]string
			if err := json.Unmarshal([]byte(decisions(t, request.Object.Raw)), &recorded); err != nil || len(recorded["team"]) == 0 {
				t.Errorf("recorded %v, want the paused denial of policy team: %v", recorded, err)
			}
			if again := (&pod.Mutator{Base: base}).Handle(t.Context(), request); len(again.Patch) > 0 {
				t.Errorf("a second call changes the pod: %s", again.Patch)
			}
			if final := (&pod.Validator{Base: base}).Handle(t.Context(), request); !final.Allowed {
				t.Errorf("the final phase denies the pod: %s", final.Result.Message)
			}
		})
	}
}

// A response from before a pause is not used in it, and one of the pause not after it.
func TestPauseAndCachedResponses(t *testing.T) {
	base, cluster := newBase(t, engine.Source{Name: "team", Rego: "package team\ndeny contains \"no pods today\""}), newFakeReader()
	clock := &settableClock{policytime.System(), pausedAt}
	base.Tenants = &evaluation.TenantResolver{Cache: cluster, Clock: clock}
	mutator := &pod.Mutator{Base: base}
	for step, want := range []bool{false, true, false} {
		switch step {
		case 1:
			cluster.pause = newPause(pausedAt, pausedAt.Add(time.Hour))
		case 2:
			clock.now = pausedAt.Add(time.Hour)
		}
		for range 2 {
			if got := mutator.Handle(t.Context(), createRequest([]byte(plainPod))).Allowed; got != want {
				t.Errorf("step %d: allowed %v, want %v", step, got, want)
			}
		}
	}
}
