// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

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

// stamped is the object as the API server has it after the handler's patch.
func stamped(t *testing.T, r admission.Request) *v1alpha1.Extension {
	t.Helper()
	response := (&Stamper{Clock: fixed(now)}).Handler(kinds(t)).Handle(t.Context(), r)
	if !response.Allowed {
		t.Fatalf("refused: %s", response.Result.Message)
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

func signedBy(name string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Annotations = map[string]string{"note": "kept", v1alpha1.AnnotationCreatedBy: name}
	}
}

func unsigned(e *v1alpha1.Extension) { e.Annotations = nil }

func TestWhoAskedIsWhoeverDoes(t *testing.T) {
	tests := map[string]struct {
		before, after *v1alpha1.Extension
		want          map[string]string
	}{
		"asked without a name": {nil, extension(unsigned), map[string]string{v1alpha1.AnnotationCreatedBy: anna}},
		"asked in another's":   {nil, extension(signedBy(dean)), map[string]string{v1alpha1.AnnotationCreatedBy: anna, "note": "kept"}},
		"changed later":        {extension(signedBy(dean)), extension(signedBy(anna)), map[string]string{v1alpha1.AnnotationCreatedBy: dean, "note": "kept"}},
		"taken away later":     {extension(signedBy(dean)), extension(unsigned), map[string]string{v1alpha1.AnnotationCreatedBy: dean}},
		"added later":          {extension(unsigned), extension(signedBy(dean)), map[string]string{"note": "kept"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := stamped(t, request(t, user(anna), tc.before, tc.after, ""))
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhoDecidedIsWhoeverDoes(t *testing.T) {
	at, earlier := metav1.NewTime(now.Truncate(time.Second)), metav1.NewTime(now.Add(-24*time.Hour).Truncate(time.Second))
	open := v1alpha1.ExtensionStatus{}
	decided := v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: dean, DecidedAt: &earlier}
	tests := map[string]struct{ before, after, want v1alpha1.ExtensionStatus }{
		"a decision": {
			open,
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: "fine"},
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: "fine", DecidedBy: editor, DecidedAt: &at},
		},
		"in another's name, long ago": {
			open,
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionRefused, DecidedBy: dean, DecidedAt: &earlier},
			v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionRefused, DecidedBy: editor, DecidedAt: &at},
		},
		"none, in another's name": {open, v1alpha1.ExtensionStatus{DecidedBy: dean, DecidedAt: &at}, open},
		"one that stands":         {decided, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: editor, DecidedAt: &at}, decided},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			with := func(s v1alpha1.ExtensionStatus) *v1alpha1.Extension {
				return extension(func(e *v1alpha1.Extension) { e.Status = s })
			}
			got := stamped(t, request(t, user(editor), with(tc.before), with(tc.after), "status"))
			if diff := cmp.Diff(tc.want, got.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(extension().ObjectMeta, got.ObjectMeta); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}
