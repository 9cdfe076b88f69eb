// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// renderRule renders the objects of a node pool with a policy of one rule.
func renderRule(tb testing.TB, rule string) engine.Rendering {
	tb.Helper()
	// A slow machine must not fail the policy.
	patient := engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}}
	e := newEngineWithOptions(tb, patient, engine.Source{Name: "schedulers.it", Rego: "package it\n" + rule + "\n"})
	got, err := e.RenderObjects(tb.Context(), engine.Input{
		Object:   decodeDocument(tb, `{"kind": "NodePool", "metadata": {"name": "dgx"}}`),
		NodePool: decodeDocument(tb, `{"name": "dgx", "gpus": 16, "scheduler": "it"}`),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

const fairSharingSetting = `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "kueue-system", "name": "kueue-manager-config",
	"path": ["data", "controller_manager_config.yaml", "fairSharing"]}`

func TestRequirementForms(t *testing.T) {
	place := &engine.Setting{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "kueue-system", Name: "kueue-manager-config",
		Path: []string{"data", "controller_manager_config.yaml", "fairSharing"},
	}
	for rule, want := range map[string]engine.Requirement{
		`{"crd": "queues.scheduling.run.ai", "fix": "install KAI"}`:                                                   {CRD: "queues.scheduling.run.ai", Fix: "install KAI"},
		`{"crd": "queues.scheduling.run.ai", "version": "v2", "optional": true, "fix": "install\nKAI"}`:               {CRD: "queues.scheduling.run.ai", Version: "v2", Optional: true, Fix: "install KAI"},
		`{"setting": ` + fairSharingSetting + `, "fix": "turn it on"}`:                                                {Setting: place, Fix: "turn it on"},
		`{"setting": ` + fairSharingSetting + `, "is": null, "fix": "turn it off"}`:                                   {Setting: place, HasIs: true, Fix: "turn it off"},
		`{"setting": ` + fairSharingSetting + `, "is": {"a": [1, 0.5, "x"]}, "optional": false, "fix": "turn it on"}`: {Setting: place, HasIs: true, Is: map[string]any{"a": []any{int64(1), 0.5, "x"}}, Fix: "turn it on"},
		`{"setting": ` + fairSharingSetting + `, "as": "queueLabelKey", "default": "kai.scheduler/queue"}`:            {Setting: place, As: "queueLabelKey", Default: "kai.scheduler/queue"},
		`{"setting": ` + fairSharingSetting + `, "as": "queueLabelKey", "default": "", "fix": "say it"}`:              {Setting: place, As: "queueLabelKey", Fix: "say it"},
		`{"setting": ` + fairSharingSetting + `, "as": "class", "default": "d", "allowEmpty": true}`:                  {Setting: place, As: "class", Default: "d", AllowEmpty: true},
		`{"setting": {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "where": {"path": ["spec", "partitionLabelValue"], "is": ""}, "path": ["spec", "args"]}, "advisory": true, "fix": "x"}`: {
			Setting: &engine.Setting{APIVersion: "kai.scheduler/v1", Kind: "SchedulingShard", Where: &engine.Where{Path: []string{"spec", "partitionLabelValue"}}, Path: []string{"spec", "args"}}, Advisory: true, Fix: "x",
		},
		`{"setting": {"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": input.nodePool.name, "path": ["spec", "x", "0"]}, "fix": "x"}`: {
			Setting: &engine.Setting{APIVersion: "kai.scheduler/v1", Kind: "Config", Name: "dgx", Path: []string{"spec", "x", "0"}}, Fix: "x",
		},
	} {
		got := renderRule(t, "requires contains "+rule+` if input.object.kind == "NodePool"`)
		want.Policy = "schedulers.it"
		if diff := cmp.Diff([]engine.Requirement{want}, got.Requires); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%v", rule, diff, got.Failures)
		}
	}
}

func TestInvalidRequirementsNamePolicyAndAllowedForms(t *testing.T) {
	const object = `"apiVersion": "v1", "kind": "ConfigMap", "name": "x"`
	for _, tt := range []struct{ rule, want string }{
		{`"install KAI"`, `must be objects, with crd or setting, and one is string`},
		{`{"fix": "x"}`, `needs either crd or setting`},
		{`{"crd": "a.b", "setting": ` + fairSharingSetting + `, "fix": "x"}`, `needs either crd or setting`},
		{`{"crd": "a.b"}`, `has no fix`},
		{`{"crd": "a.b", "fix": " \n"}`, `fix is empty; state what to do if the requirement is not met`},
		{`{"crd": "a.b", "fix": ["x"]}`, `fix must be a string of at most 1000 characters, and is ["x"]`},
		{`{"crd": "Queue", "fix": "x"}`, `crd must be the name of a custom resource definition, such as queues.scheduling.run.ai, and is "Queue"`},
		{`{"crd": "a.b", "version": 2, "fix": "x"}`, `version must be a version, such as v1beta2, and is 2`},
		{`{"crd": "a.b", "is": true, "fix": "x"}`, `has the field "is"; crd, version, optional, advisory, fix are allowed`},
		{`{"crd": "a.b", "optional": "yes", "fix": "x"}`, `optional must be true or false, and is "yes"`},
		{`{"crd": "a.b", 7: "x", "fix": "x"}`, `the key 7 is not a string`},
		{`{"setting": "fairSharing", "fix": "x"}`, `setting must be an object of apiVersion, kind, namespace, name or where, and path, and is "fairSharing"`},
		{`{"setting": ` + fairSharingSetting + `}`, `has no fix`},
		{`{"setting": ` + fairSharingSetting + `, "version": "v1", "fix": "x"}`, `has the field "version"; setting, is, optional, advisory, fix are allowed`},
		{`{"setting": ` + fairSharingSetting + `, "default": "x", "fix": "x"}`, `has the field "default"; setting, is, optional, advisory, fix are allowed`},
		{`{"setting": ` + fairSharingSetting + `, "as": "x"}`, `has no default`},
		{`{"setting": ` + fairSharingSetting + `, "as": "x", "default": 3}`, `default must be a string of at most 1000 characters, and is 3`},
		{`{"setting": ` + fairSharingSetting + `, "as": "x y", "default": ""}`, `as must be a name of letters and digits, such as queueLabelKey, and is "x y"`},
		{`{"setting": ` + fairSharingSetting + `, "as": "x", "default": "", "is": 1}`, `has the field "is"; setting, as, default, allowEmpty, advisory, fix are allowed`},
		{`{"setting": {` + object + `}, "fix": "x"}`, `setting: path must be an array of 1 to 32 keys, as in ["data", "config.yaml", "fairSharing"], and is null`},
		{`{"setting": {` + object + `, "path": []}, "fix": "x"}`, `setting: path must be an array of 1 to 32 keys, as in ["data", "config.yaml", "fairSharing"], and is []`},
		{`{"setting": {` + object + `, "path": ["a", 0]}, "fix": "x"}`, `setting: path[1] must be a key or, in quotes, an index, and is 0`},
		{`{"setting": {` + object + `, "path": [""]}, "fix": "x"}`, `setting: path[0] must be a key or, in quotes, an index, and is ""`},
		{`{"setting": {` + object + `, "field": "x", "path": ["a"]}, "fix": "x"}`, `setting: has the field "field"; apiVersion, kind, namespace, name, where, path are allowed`},
		{`{"setting": {"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "x", "path": ["data"]}, "fix": "x"}`, `setting: kind must not be Secret: settings are public`},
		{`{"setting": {` + object + `, "where": {"path": ["a"], "is": "b"}, "path": ["a"]}, "fix": "x"}`, `setting: needs either name or where`},
		{`{"setting": {"apiVersion": "v1", "kind": "ConfigMap", "where": "b", "path": ["a"]}, "fix": "x"}`, `setting: where must be an object of path and is, and is "b"`},
		{`{"setting": {"apiVersion": "v1", "kind": "ConfigMap", "where": {"path": ["a"], "is": 1}, "path": ["a"]}, "fix": "x"}`, `setting: where: is must be a string of at most 1000 characters, and is 1`},
		{`{"crd": "a.b", "advisory": 1, "fix": "x"}`, `advisory must be true or false, and is 1`},
		{`{"setting": {"apiVersion": "v1/", "kind": "ConfigMap", "name": "x", "path": ["a"]}, "fix": "x"}`, `setting: apiVersion must be an API version, such as v1 or kai.scheduler/v1, and is "v1/"`},
		{`{"setting": {"apiVersion": "v1", "kind": "configmaps", "name": "x", "path": ["a"]}, "fix": "x"}`, `setting: kind must be a kind, such as ConfigMap, and is "configmaps"`},
		{`{"setting": {"apiVersion": "v1", "kind": "ConfigMap", "name": "../secrets/x", "path": ["a"]}, "fix": "x"}`, `setting: name may not contain '/'`},
		{`{"setting": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "A B", "path": ["a"]}, "fix": "x"}`, `setting: namespace must be the name of a namespace, and is "A B"`},
		{`{"setting": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "a", "path": ["a"]}, "fix": {1, 2}}`, `.fix: a set has no JSON form: write an array, [x | some x in …]`},
		{`{"crd": "a.b", "fix": "x", "why": "` + strings.Repeat("long", 1000) + `"}`, `has the field "why"; crd, version, optional, advisory, fix are allowed`},
	} {
		got := renderRule(t, "requires contains "+tt.rule)
		if len(got.Failures) != 1 || got.Failures[0].Policy != "schedulers.it" || len(got.Requires) != 0 {
			t.Errorf("%s: %d failures, %d requirements", tt.rule, len(got.Failures), len(got.Requires))
			continue
		}
		if err := got.Failures[0].Err; !errors.Is(err, engine.ErrShape) || !strings.Contains(err.Error(), "requires") || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s\n got %v\nwant … %s", tt.rule, err, tt.want)
		}
	}
}

func TestRequirementsAreBounded(t *testing.T) {
	for rule, want := range map[string]string{
		`requires contains {"crd": sprintf("a%d.b", [i]), "fix": "x"} if some i in numbers.range(1, 101)`:                                    "has 101 elements; 100 are allowed",
		`requires contains {"setting": ` + fairSharingSetting + `, "as": "x", "default": d} if some d in ["a", "b"]`:                         "has as x twice; each setting needs a unique name",
		`requires contains {"setting": ` + fairSharingSetting + `, "is": numbers.range(1, 70000), "fix": "x"}`:                               "the result is too large",
		`requires contains {"setting": object.union(` + fairSharingSetting + `, {"path": [x | some x in numbers.range(1, 33)]}), "fix": ""}`: "path must be an array of 1 to 32 keys",
	} {
		got := renderRule(t, rule)
		if len(got.Failures) != 1 || !strings.Contains(got.Failures[0].Err.Error(), want) {
			t.Errorf("%s: %v, want %s", rule, got.Failures, want)
		}
	}
}

// The fuzz test: any element becomes a requirement of one form, or an error.
func FuzzRequirement(f *testing.F) {
	for _, seed := range []string{
		`{"crd": "a.b", "version": "v1", "fix": "x"}`,
		`{"setting": ` + fairSharingSetting + `, "is": [1, {"a": 1e999}], "optional": true, "fix": "x"}`,
		`{"setting": ` + fairSharingSetting + `, "as": "x", "default": "\u0000"}`,
		`{"setting": {"path": [[], {}]}, "fix": null}`, `[]`, `"x"`, `{"crd": "a.b", "setting": 1}`,
	} {
		f.Add(seed)
	}
	patient := engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}}
	e := newEngineWithOptions(f, patient, engine.Source{Name: "it", Rego: "package it\nrequires contains input.object.wanted\n"})
	f.Fuzz(func(t *testing.T, text string) {
		wanted, err := document.Decode([]byte(text))
		if err != nil || wanted.IsAbsent() {
			t.Skip()
		}
		got, err := e.RenderObjects(t.Context(), engine.Input{Object: document.FromObject(map[string]any{}).WithField("wanted", wanted)})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Requires)+len(got.Failures) != 1 {
			t.Fatalf("%d requirements and %d failures", len(got.Requires), len(got.Failures))
		}
		if len(got.Failures) == 1 {
			return
		}
		r := got.Requires[0]
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		if (r.CRD == "") == (r.Setting == nil) || r.As == "" && r.Fix == "" || r.As != "" && (r.HasIs || r.Setting == nil) || r.Policy != "it" {
			t.Errorf("%s became %+v", text, r)
		}
	})
}

func TestOnlyRenderingReadsTheNodePool(t *testing.T) {
	if got := compileProblems(t, "package it\nrequires contains {\"crd\": \"a.b\", \"fix\": x} if x := name\nname := input.nodePool.name\n"); got != nil {
		t.Errorf("in requires: %q", got)
	}
	want := []string{"it:3:19: deny reads input.nodePool through data.it.name, which only objects and requires have; a project's node pools are input.nodePools"}
	if diff := cmp.Diff(want, compileProblems(t, "package it\ndeny contains \"a\" if name == \"dgx\"\nname := x if x := input.nodePool.name\n")); diff != "" {
		t.Errorf("in deny (-want +got):\n%s", diff)
	}
}

func TestProvidesIncludesReplacements(t *testing.T) {
	const rego = "package it\nobjects contains {\"apiVersion\": \"v1\", \"kind\": \"LimitRange\", \"metadata\": {\"name\": \"x\"}}\n"
	for name, tt := range map[string]struct {
		source engine.Source
		serves bool
	}{
		"the policy":                     {engine.Source{Name: "schedulers.kai"}, true},
		"another policy":                 {engine.Source{Name: "schedulers.kueue"}, false},
		"one that replaces it":           {engine.Source{Name: "ours", Replaces: "schedulers.kai"}, true},
		"one in DryRun":                  {engine.Source{Name: "schedulers.kai", Enforcement: v1alpha1.EnforcementDryRun}, false},
		"one in DryRun that replaces it": {engine.Source{Name: "ours", Replaces: "schedulers.kai", Enforcement: v1alpha1.EnforcementDryRun}, false},
		"one that warns":                 {engine.Source{Name: "schedulers.kai", Enforcement: v1alpha1.EnforcementWarn}, true},
	} {
		tt.source.Rego = rego
		set, err := newEngine(t, tt.source).Current()
		if err != nil {
			t.Fatal(err)
		}
		if got := set.Provides("schedulers.kai"); got != tt.serves {
			t.Errorf("%s: %v, want %v", name, got, tt.serves)
		}
	}
}
