// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 16, 0, 0, 500, time.UTC)

// applyDefaulter returns the object with the handler's patch.
func applyDefaulter(t *testing.T, r admission.Request) *v1alpha1.Extension {
	t.Helper()
	response := (&Defaulter{Clock: fixedClock(now)}).Handler(newScheme(t)).Handle(t.Context(), r)
	if !response.Allowed {
		t.Fatalf("denied: %s", response.Result.Message)
	}
	raw := r.Object.Raw
	if len(response.Patches) > 0 {
		operations, err := json.Marshal(response.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(operations)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	after := &v1alpha1.Extension{}
	if err := json.Unmarshal(raw, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func withCreatedBy(name string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Annotations = map[string]string{"note": "kept", v1alpha1.AnnotationCreatedBy: name}
	}
}

func withoutCreatedBy(e *v1alpha1.Extension) { e.Annotations = nil }

func TestDefaulterSetsCreatedBy(t *testing.T) {
	tests := map[string]struct {
		before, after *v1alpha1.Extension
		want          map[string]string
	}{
		"created without": {nil, newExtension(withoutCreatedBy), map[string]string{v1alpha1.AnnotationCreatedBy: anna}},
		"another's name":  {nil, newExtension(withCreatedBy(dean)), map[string]string{v1alpha1.AnnotationCreatedBy: anna, "note": "kept"}},
		"changed later":   {newExtension(withCreatedBy(dean)), newExtension(withCreatedBy(anna)), map[string]string{v1alpha1.AnnotationCreatedBy: dean, "note": "kept"}},
		"removed later":   {newExtension(withCreatedBy(dean)), newExtension(withoutCreatedBy), map[string]string{v1alpha1.AnnotationCreatedBy: dean}},
		"added later":     {newExtension(withoutCreatedBy), newExtension(withCreatedBy(dean)), map[string]string{"note": "kept"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := applyDefaulter(t, newRequest(t, userInfo(anna), tc.before, tc.after, ""))
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaulterSetsDecidedBy(t *testing.T) {
	at, earlier := metav1.NewTime(now.Truncate(time.Second)), metav1.NewTime(now.Add(-24*time.Hour).Truncate(time.Second))
	open := v1alpha1.ExtensionStatus{}
	decided := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: dean, DecidedAt: &earlier}
	tests := map[string]struct{ before, after, want v1alpha1.ExtensionStatus }{
		"a decision": {
			open,
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: "fine"},
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: "fine", DecidedBy: editor, DecidedAt: &at},
		},
		"another approver and time": {
			open,
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, DecidedBy: dean, DecidedAt: &earlier},
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, DecidedBy: editor, DecidedAt: &at},
		},
		"no decision":     {open, v1alpha1.ExtensionStatus{DecidedBy: dean, DecidedAt: &at}, open},
		"an old decision": {decided, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: editor, DecidedAt: &at}, decided},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			with := func(s v1alpha1.ExtensionStatus) *v1alpha1.Extension {
				return newExtension(func(e *v1alpha1.Extension) { e.Status = s })
			}
			got := applyDefaulter(t, newRequest(t, userInfo(editor), with(tc.before), with(tc.after), "status"))
			if diff := cmp.Diff(tc.want, got.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(newExtension().ObjectMeta, got.ObjectMeta); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}
