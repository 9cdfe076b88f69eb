// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

func newRevision(t *testing.T, policy v1alpha1.Policy, change ...func(*appsv1.ControllerRevision)) appsv1.ControllerRevision {
	t.Helper()
	revision, err := NewRevision(&policy)
	if err != nil {
		t.Fatal(err)
	}
	revision.UID, revision.ResourceVersion = types.UID(revision.Name), "1"
	for _, c := range change {
		c(revision)
	}
	return *revision
}

// A revision returns the source that it was made of.
func TestRevisionKeepsTheWholeSource(t *testing.T) {
	policy := newPolicy("team", "package team\n", `{"a": "<b>"}`)
	policy.UID = "b7e2c9d4-1"
	policy.Spec.Match.Projects = []string{"thesis"}
	policy.Spec.Enforcement, policy.Spec.Replaces = v1alpha1.EnforcementWarn, "core.type"
	policy.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type":"object"}`)}
	revision := newRevision(t, policy)
	got, err := RevisionSource(&revision, &policy)
	if err != nil || got.Digest() != func() [32]byte {
		want := engine.FromPolicy(&policy)
		want.Parameters = []byte(`{"a":"<b>"}`) // as encoded
		return want.Digest()
	}() || got.Generation != 3 {
		t.Errorf("source %+v, error %v", got, err)
	}
	for _, name := range []string{"team", strings.Repeat("a.", 126) + "b", strings.Repeat("a", 199) + "-b"} {
		policy.Name = name
		if wrong := validation.IsDNS1123Subdomain(revisionName(&policy, nil)); len(wrong) > 0 {
			t.Errorf("%s: %s", revisionName(&policy, nil), wrong[0])
		}
	}
}

// A revision that is malformed, huge or forged is ignored and logged once, and never used. Guards
// invariants 4 and 10 of the design.
func TestHostileRevisionsAreIgnored(t *testing.T) {
	policy := newPolicy("team", "package team\n", "")
	policy.UID = "b7e2c9d4-1"
	good := newPolicy("team", "package good\n", "")
	good.UID, good.Generation = policy.UID, 2
	raw := func(text string) func(*appsv1.ControllerRevision) {
		return func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte(text) }
	}
	tests := map[string]struct {
		forged []appsv1.ControllerRevision
		want   string
		logged string
	}{
		"one good revision":     {want: "package good\n"},
		"no data":               {[]appsv1.ControllerRevision{newRevision(t, policy, raw(""))}, "package good\n", "decode its data"},
		"not JSON":              {[]appsv1.ControllerRevision{newRevision(t, policy, raw("{"))}, "package good\n", "decode its data"},
		"a list":                {[]appsv1.ControllerRevision{newRevision(t, policy, raw("[]"))}, "package good\n", "decode its data"},
		"a StatefulSet's patch": {[]appsv1.ControllerRevision{newRevision(t, policy, raw(`{"spec":{"template":{}}}`))}, "package good\n", "it has no source"},
		"deep":                  {[]appsv1.ControllerRevision{newRevision(t, policy, raw(strings.Repeat("[", 100000)))}, "package good\n", "decode its data"},
		"huge": {
			[]appsv1.ControllerRevision{newRevision(t, policy, raw(`{"spec":{"rego":"`+strings.Repeat("a", 2<<20)+`"}}`))},
			"package good\n", "bytes; 1572864 are allowed",
		},
		"of the future": {[]appsv1.ControllerRevision{newRevision(t, policy, func(r *appsv1.ControllerRevision) { r.Revision = 4 })}, "package good\n", "its number is 4"},
		"of no time":    {[]appsv1.ControllerRevision{newRevision(t, policy, func(r *appsv1.ControllerRevision) { r.Revision = -1 })}, "package good\n", ""},
		"of a policy of this name that was deleted": {
			[]appsv1.ControllerRevision{newRevision(t, policy, func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "other" })}, "package good\n", "",
		},
		"of another kind": {
			[]appsv1.ControllerRevision{newRevision(t, policy, func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].Kind = "Project" })},
			"package good\n", "its owner is not the policy",
		},
		"without an owner": {[]appsv1.ControllerRevision{newRevision(t, policy, func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil })}, "package good\n", ""},
		"more than are tried": {
			[]appsv1.ControllerRevision{
				newRevision(t, policy, raw("1")), newRevision(t, policy, raw("2")), newRevision(t, policy, raw("3")), newRevision(t, policy, raw("4")),
			}, "", "decode its data",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := &Store{Logger: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{})}
			for range 2 {
				revisions := append([]appsv1.ControllerRevision{newRevision(t, good)}, tt.forged...)
				found := s.lastGoodSources([]v1alpha1.Policy{policy}, revisions, func(string) bool { return true })
				if found["team"].Rego != tt.want {
					t.Errorf("source %q, want %q", found["team"].Rego, tt.want)
				}
			}
			if !strings.Contains(log.String(), tt.logged) || tt.logged == "" && log.Len() > 0 || strings.Count(log.String(), "\n") > 4 {
				t.Errorf("log %s, want %q once", log.String(), tt.logged)
			}
			found := s.lastGoodSources([]v1alpha1.Policy{policy}, tt.forged, func(string) bool { return false })
			if diff := cmp.Diff(map[string]engine.Source{}, found); diff != "" {
				t.Errorf("not needed (-want +got):\n%s", diff)
			}
		})
	}
}
