// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

const emptyModule = "package quiet\n"

// newPolicy returns a Policy object of generation 3, with optional parameters.
func newPolicy(name, rego, parameters string, labels ...string) v1alpha1.Policy {
	object := v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, Labels: map[string]string{}},
		Spec:       v1alpha1.PolicySpec{Rego: rego},
	}
	for _, label := range labels {
		object.Labels[label] = "true"
	}
	if parameters != "" {
		object.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(parameters)}
	}
	return object
}

func TestMirrorsContributeParametersOnly(t *testing.T) {
	devices := engine.Source{Name: "core.devices", Rego: emptyModule, BuiltIn: true, Parameters: []byte(`{"refuseEnvFrom":true,"runtimeClasses":["a"]}`)}
	limits := engine.Source{Name: "core.limits", Rego: emptyModule, BuiltIn: true}
	given := func(source engine.Source, parameters string) engine.Source {
		source.Generation = 3
		source.Parameters = []byte(parameters)
		return source
	}
	mirrored := v1alpha1.LabelBuiltIn
	tests := map[string]struct {
		before   map[string]parameterSet
		lastGood map[string]engine.Source
		objects  []v1alpha1.Policy
		want     []engine.Source
		// problems are the problems in the reports, each with its policy's name.
		problems []string
	}{
		"no objects": {want: []engine.Source{devices, limits}},
		"policies of teams": {
			objects: []v1alpha1.Policy{newPolicy("team", "package team\n", `{"a":1}`)},
			want:    []engine.Source{devices, limits, {Name: "team", Rego: "package team\n", Parameters: []byte(`{"a":1}`), Generation: 3}},
		},
		"a mirror as it should be": {
			objects: []v1alpha1.Policy{newPolicy("core.limits", emptyModule, "", mirrored)},
			want:    []engine.Source{devices, given(limits, "")},
		},
		"parameters, field by field": {
			objects: []v1alpha1.Policy{newPolicy("core.devices", emptyModule, `{"runtimeClasses": ["b"], "allowedHostPaths": ["/data"]}`, mirrored), newPolicy("core.limits", emptyModule, `{"minimumGraceSeconds": 60}`, mirrored)},
			want:    []engine.Source{given(devices, `{"allowedHostPaths":["/data"],"refuseEnvFrom":true,"runtimeClasses":["b"]}`), given(limits, `{"minimumGraceSeconds": 60}`)},
		},
		"a mirror with other Rego": {
			objects: []v1alpha1.Policy{newPolicy("core.limits", "no Rego at all", "", mirrored)},
			want:    []engine.Source{devices, given(limits, "")},
		},
		"unreadable parameters": {
			objects: []v1alpha1.Policy{newPolicy("core.devices", emptyModule, `[1]`, mirrored), newPolicy("core.limits", emptyModule, `{"a": 1, `, mirrored)},
			want:    []engine.Source{devices, limits},
			problems: []string{
				"core.devices: spec.parameters: Invalid value: [1]: must be a JSON object",
				"core.limits: spec.parameters: ",
			},
		},
		"one wrong parameter keeps all from being in force": {
			objects:  []v1alpha1.Policy{newPolicy("core.devices", emptyModule, `{"refuseEnvFrom": false, "runtimeClass": ["b"]}`, mirrored)},
			want:     []engine.Source{devices, limits},
			problems: []string{`core.devices: spec.parameters.runtimeClass: Invalid value: ["b"]: there is no such parameter; core.devices takes allowedCapabilities, allowedHostPaths, refuseEnvFrom, runtimeClasses`},
		},
		"the last good parameters stay": {
			before:  map[string]parameterSet{"core.limits": {[]byte(`{"minimumGraceSeconds":90}`), 2}},
			objects: []v1alpha1.Policy{newPolicy("core.limits", emptyModule, `{"minimumGraceSeconds": "soon"}`, mirrored)},
			want: []engine.Source{devices, {
				Name: "core.limits", Rego: emptyModule, BuiltIn: true, Generation: 2, Parameters: []byte(`{"minimumGraceSeconds":90}`),
			}},
			problems: []string{`core.limits: spec.parameters.minimumGraceSeconds: Invalid value: "soon": must be a whole number of seconds from 1 to 86400`},
		},
		"the last good parameters of the cluster, after a restart": {
			lastGood: map[string]engine.Source{"core.limits": {Parameters: []byte(`{"minimumGraceSeconds":90}`), Generation: 2}},
			objects:  []v1alpha1.Policy{newPolicy("core.limits", emptyModule, `{"minimumGraceSeconds": "soon"}`, mirrored)},
			want: []engine.Source{devices, {
				Name: "core.limits", Rego: emptyModule, BuiltIn: true, Generation: 2, Parameters: []byte(`{"minimumGraceSeconds":90}`),
			}},
			problems: []string{`core.limits: spec.parameters.minimumGraceSeconds: Invalid value: "soon"`},
		},
		"those in memory come first": {
			before:   map[string]parameterSet{"core.limits": {}},
			lastGood: map[string]engine.Source{"core.limits": {Parameters: []byte(`{"minimumGraceSeconds":90}`), Generation: 2}},
			objects:  []v1alpha1.Policy{newPolicy("core.limits", emptyModule, `{"minimumGraceSeconds": "soon"}`, mirrored)},
			want:     []engine.Source{devices, limits},
			problems: []string{`core.limits: spec.parameters.minimumGraceSeconds: Invalid value: "soon"`},
		},
		"the last good version of a team's policy": {
			lastGood: map[string]engine.Source{"team": {Name: "team", Rego: "package old\n", Generation: 2}},
			objects:  []v1alpha1.Policy{newPolicy("team", "package team\n", "")},
			want: []engine.Source{devices, limits, {
				Name: "team", Rego: "package team\n", Generation: 3, LastGood: &engine.Source{Name: "team", Rego: "package old\n", Generation: 2},
			}},
		},
		"the present version is the last good one": {
			lastGood: map[string]engine.Source{"team": {Name: "team", Rego: "package team\n", Generation: 3}},
			objects:  []v1alpha1.Policy{newPolicy("team", "package team\n", "")},
			want:     []engine.Source{devices, limits, {Name: "team", Rego: "package team\n", Generation: 3}},
		},
		"good ones that are wrong by now do not": {
			before:   map[string]parameterSet{"core.limits": {[]byte(`{"old":90}`), 2}},
			objects:  []v1alpha1.Policy{newPolicy("core.limits", emptyModule, `{"minimumGraceSeconds": "soon"}`, mirrored)},
			want:     []engine.Source{devices, limits},
			problems: []string{`core.limits: spec.parameters.minimumGraceSeconds: Invalid value: "soon"`},
		},
		"a built-in policy's name without the label": {
			objects:  []v1alpha1.Policy{newPolicy("core.devices", "package mine\n", `{"runtimeClasses": []}`)},
			want:     []engine.Source{devices, limits},
			problems: []string{"core.devices: the Policy object of this name is ignored, since it is not Sluice's mirror of the built-in policy; choose another name"},
		},
		"the label without a built-in policy's name": {
			objects:  []v1alpha1.Policy{newPolicy("core.old", "package old\n", "", mirrored)},
			want:     []engine.Source{devices, limits},
			problems: []string{"core.old: the label sluice.dev/built-in is Sluice's, and no built-in policy has this name; remove the label"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			builtIn := []engine.Source{devices, limits}
			got := collectSources(builtIn, tt.objects, tt.before, tt.lastGood)
			for i := range got.sources {
				if len(got.sources[i].Parameters) == 0 {
					got.sources[i].Parameters = nil
				}
			}
			for i := range tt.want {
				if len(tt.want[i].Parameters) == 0 {
					tt.want[i].Parameters = nil
				}
			}
			if diff := cmp.Diff(tt.want, got.sources); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]engine.Source{devices, limits}, builtIn); diff != "" {
				t.Errorf("the built-in sources were changed (-want +got):\n%s", diff)
			}
			var problems []string
			for _, report := range got.reports([]engine.Report{{Name: "core.devices"}, {Name: "core.limits"}}) {
				if text := summarizeReport(report); text != "" {
					problems = append(problems, text)
				}
			}
			if len(problems) != len(tt.problems) {
				t.Fatalf("problems %q\nwant %q", problems, tt.problems)
			}
			for i, want := range tt.problems {
				if !strings.HasPrefix(problems[i], want) {
					t.Errorf("problem %q\nwant %q", problems[i], want)
				}
			}
		})
	}
}

func TestReplacements(t *testing.T) {
	pods := v1alpha1.PolicyMatch{Kinds: []string{"Pod"}, Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationCreate}}
	builtIn := []engine.Source{{Name: "core.type", BuiltIn: true, Match: pods}}
	ours := map[string]Replacement{"team": {Policy: "team", Replaces: "core.type"}}
	for name, tt := range map[string]struct {
		match       v1alpha1.PolicyMatch
		replaces    string
		enforcement v1alpha1.Enforcement
		problems    int
		inForce     bool
		before      map[string]Replacement
		want        map[string]Replacement
	}{
		"for all":                  {replaces: "core.type", inForce: true, want: ours},
		"for some":                 {match: v1alpha1.PolicyMatch{Projects: []string{"a"}}, replaces: "core.type", inForce: true, want: map[string]Replacement{"team": {Policy: "team", Replaces: "core.type", Projects: []string{"a"}}}},
		"warning":                  {replaces: "core.type", enforcement: v1alpha1.EnforcementWarn, inForce: true, want: ours},
		"on trial":                 {replaces: "core.type", enforcement: v1alpha1.EnforcementDryRun, inForce: true},
		"replaces none":            {inForce: true},
		"what is not there":        {replaces: "core.old", inForce: true},
		"about other objects":      {match: v1alpha1.PolicyMatch{Kinds: []string{"Job.batch"}}, replaces: "core.type", inForce: true},
		"about the kind as it is":  {match: v1alpha1.PolicyMatch{Kinds: []string{"Job", "Pod"}}, replaces: "core.type", inForce: true, want: ours},
		"at another time":          {match: v1alpha1.PolicyMatch{Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationUpdate}}, replaces: "core.type", inForce: true},
		"not in force":             {replaces: "core.type", problems: 1},
		"an earlier one in force":  {problems: 1, inForce: true, before: ours, want: ours},
		"it did before, no longer": {inForce: true, before: ours},
	} {
		t.Run(name, func(t *testing.T) {
			team := engine.Source{Name: "team", Match: tt.match, Replaces: tt.replaces, Enforcement: tt.enforcement}
			desired := desiredSources{sources: append(builtIn[:1:1], team)}
			report := engine.Report{Name: "team", Active: tt.inForce, Problems: make([]engine.Problem, tt.problems)}
			want := tt.want
			if want == nil {
				want = map[string]Replacement{}
			}
			if diff := cmp.Diff(want, desired.activeReplacements([]engine.Report{{Name: "core.type", Active: true}, report}, tt.before)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
