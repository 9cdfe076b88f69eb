// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/data"
)

// A fault of a ConfigMap has one event, and another one after it changed or came back.
func TestDataFaultsAreRecordedOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Events: recorder}
	fault := data.Fault{Name: "registries", UID: "1", Message: strings.Repeat("x", 2*maxEventMessage)}
	other := fault
	other.Message = "another fault"
	for _, step := range []struct {
		faults []data.Fault
		want   int
	}{{[]data.Fault{fault}, 1}, {[]data.Fault{fault}, 0}, {[]data.Fault{other}, 1}, {nil, 0}, {[]data.Fault{other}, 1}} {
		r.recordDataFaults(step.faults)
		if len(recorder.Events) != step.want {
			t.Errorf("%v: %d events, want %d", step.faults, len(recorder.Events), step.want)
		}
		for range step.want {
			if event := <-recorder.Events; !strings.HasPrefix(event, "Warning PolicyDataInvalid ") || len(event) > maxEventMessage+64 {
				t.Errorf("event of %d bytes: %.80s", len(event), event)
			}
		}
	}
}

func TestFailureEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		enforcement v1alpha1.Enforcement
		rego, want  string
	}{
		"Deny":                   {"", "deny contains 1", "the policy refuses every object that it matches"},
		"Warn":                   {v1alpha1.EnforcementWarn, "deny contains 1", "the policy warns of every object that it matches"},
		"Warn that changes":      {v1alpha1.EnforcementWarn, "defaults := {}", "the policy refuses every object that it matches"},
		"DryRun changes nothing": {v1alpha1.EnforcementDryRun, "defaults := {}", "the policy is not evaluated"},
	} {
		policy := &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Enforcement: tt.enforcement, Rego: "package a\n" + tt.rego}}
		if got := failureEffect(policy); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
