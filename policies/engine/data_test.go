// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/policies/engine"
)

// configs returns the data of ConfigMaps by name.
func configs(tb testing.TB, values map[string]map[string]any) []engine.ConfigData {
	tb.Helper()
	var all []engine.ConfigData
	for name, keys := range values {
		config, err := engine.NewConfigData(name, keys)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, config)
	}
	return all
}

// objectGroup returns a group of objects by name.
func objectGroup(tb testing.TB, objects map[string]map[string]any) *engine.ObjectGroup {
	tb.Helper()
	group := make(map[string]engine.DataObject)
	for name, object := range objects {
		one, err := engine.NewDataObject(object)
		if err != nil {
			tb.Fatal(err)
		}
		group[name] = one
	}
	return engine.NewObjectGroup(group)
}

func storageClass(provisioner string) map[string]any {
	return map[string]any{"provisioner": provisioner}
}

// sampleData has two ConfigMaps and three kinds.
func sampleData(tb testing.TB) *engine.Data {
	tb.Helper()
	return engine.NewData(configs(tb, map[string]map[string]any{
		"registries":  {"allowed": []any{"registry.example.org/", "mirror.example.org/"}, "contact": "help@example.org"},
		"my-holidays": {"days": map[string]any{"2026-12-25": "Christmas"}},
	}), []engine.ObjectKind{
		{Kind: "PersistentVolumeClaim", Scope: engine.ScopeNamespace, Groups: map[string]*engine.ObjectGroup{
			"thesis": objectGroup(tb, map[string]map[string]any{"data": {"spec": map[string]any{"storageClassName": "fast"}}}),
			"other":  objectGroup(tb, map[string]map[string]any{"hidden": {"spec": map[string]any{"storageClassName": "slow"}}}),
		}},
		{Kind: "Service", Scope: engine.ScopeAllNamespaces, Groups: map[string]*engine.ObjectGroup{
			"other": objectGroup(tb, map[string]map[string]any{"web": {"spec": map[string]any{"type": "LoadBalancer"}}}),
		}},
		{Kind: "StorageClass.storage.k8s.io", Scope: engine.ScopeCluster, Groups: map[string]*engine.ObjectGroup{
			"": objectGroup(tb, map[string]map[string]any{"fast": storageClass("nvme"), "slow": storageClass("disk")}),
		}},
		{Kind: "Event", Scope: engine.ScopeNamespace, Unavailable: "more than 10000 objects"},
	})
}

// dataInput is the input of a pod of the namespace thesis.
func dataInput(tb testing.TB, image string) engine.Input {
	tb.Helper()
	pod := `{"kind": "Pod", "spec": {"containers": [{"name": "main", "image": ` + strconv.Quote(image) + `}], "nodeName": "n"}}`
	in := podInput(tb, pod)
	in.Review = decodeDocument(tb, `{"operation": "CREATE", "namespace": "thesis", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": `+pod+`}`)
	return in
}

func TestPoliciesReadData(t *testing.T) {
	tests := map[string]struct {
		rego string
		want []string
	}{
		"a key of a ConfigMap": {
			`deny contains data.config.registries.contact`, []string{"help@example.org"},
		},
		"an element of a list": {
			`deny contains data.config.registries.allowed[1]`, []string{"mirror.example.org/"},
		},
		"each element": {
			`deny contains x if some x in data.config.registries.allowed`, []string{"mirror.example.org/", "registry.example.org/"},
		},
		"a name with a dash": {
			`deny contains data.config["my-holidays"].days["2026-12-25"]`, []string{"Christmas"},
		},
		"the ConfigMap as a whole, through a function": {
			"deny contains f(data.config.registries)\nf(x) := x.contact", []string{"help@example.org"},
		},
		"the names of all ConfigMaps": {
			`deny contains name if some name, _ in data.config`, []string{"my-holidays", "registries"},
		},
		"an optional key": {
			`deny contains object.get(data.config.registries, "none", "default")`, []string{"default"},
		},
		"an object of the own namespace": {
			`deny contains data.objects.PersistentVolumeClaim[input.review.namespace].data.spec.storageClassName`, []string{"fast"},
		},
		"no object of another namespace": {
			`deny contains name if data.objects.PersistentVolumeClaim.other[name]`, nil,
		},
		"no names of other namespaces": {
			`deny contains namespace if data.objects.PersistentVolumeClaim[namespace]`, []string{"thesis"},
		},
		"objects of all namespaces, where that is allowed": {
			`deny contains sprintf("%s/%s", [namespace, name]) if data.objects.Service[namespace][name]`, []string{"other/web"},
		},
		"a namespace without objects is empty": {
			`deny contains "empty" if count(data.objects.Service.thesis) == 0`, []string{"empty"},
		},
		"objects without namespaces": {
			`deny contains name if data.objects["StorageClass.storage.k8s.io"][name].provisioner == "disk"`, []string{"slow"},
		},
		"a key under which there is nothing": {
			`deny contains "a" if data.config.registries.contact.none`, nil,
		},
		"a package of the same name has its own rules": {
			"deny contains data.config.contact\ncontact := \"mine\"", []string{"mine"},
		},
		"data that a test replaces": {
			`deny contains x if x := data.config.registries.contact with data.config.registries.contact as "other"`, []string{"other"},
		},
		"with replacements from input": {
			`deny contains x if x := data.config.registries.contact with data.config.registries.contact as input.object.spec.containers[0].image`,
			[]string{"a:1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pkg := "it"
			if strings.HasPrefix(name, "a package") {
				pkg = "config"
			}
			e := newEngine(t, engine.Source{Name: "it", Rego: "package " + pkg + "\n" + tc.rego})
			e.UpdateData(sampleData(t))
			for range 2 { // the second time from the cache
				outcome, err := e.Evaluate(t.Context(), dataInput(t, "a:1"))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, denial := range outcome.Denials {
					got = append(got, denial.Message)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestMissingDataRefuses(t *testing.T) {
	tests := map[string]struct {
		rego, want string
	}{
		"a ConfigMap": {`deny contains "a" if data.config.none.x`, "data.config.none does not exist"},
		"a key":       {`deny contains "a" if data.config.registries.denied[_]`, "data.config.registries.denied does not exist: the ConfigMap has no such key"},
		"in a helper": {"deny contains \"a\" if f(1)\nf(x) if data.config[\"my-none\"] == x", `data.config["my-none"] does not exist`},
		"under not":   {`deny contains "a" if not data.config.none.x`, "data.config.none does not exist"},
		"a kind": {
			`deny contains "a" if data.objects["Job.batch"][_][_]`,
			`data.objects["Job.batch"] does not exist: spec.policyData of the AdmissionParameters does not list the kind`,
		},
		"a kind that is too large": {`deny contains "a" if data.objects.Event[_][_]`, "data.objects.Event cannot be read: more than 10000 objects"},
		"all kinds":                {`deny contains "a" if data.objects[_]`, "data.objects.Event cannot be read: more than 10000 objects"},
		"two":                      {`deny contains "a" if { data.config.one; data.config.two }`, "data.config.one does not exist; data.config.two does not exist"},
		"in the rule type":         {"deny contains \"a\" if false\ntype := \"train\" if data.config.none.x", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Source{Name: "it", Rego: "package it\n" + tc.rego})
			e.UpdateData(sampleData(t))
			outcome, err := e.Evaluate(t.Context(), dataInput(t, "a:1"))
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if _, err := e.WorkloadType(t.Context(), dataInput(t, "a:1")); !errors.Is(err, engine.ErrMissingData) {
					t.Errorf("the type: %v, want ErrMissingData", err)
				}
				return
			}
			if len(outcome.Denials) != 1 || outcome.Denials[0].Message != "the policy it could not be evaluated: "+tc.want {
				t.Errorf("denials %v, want one: %s", outcome.Denials, tc.want)
			}
			set, err := e.Current()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string][]string{"it": strings.Split(tc.want, "; ")}, set.MissingData()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A Warn policy that changes nothing only warns, and one in DryRun has no effect.
func TestMissingDataFollowsTheEnforcement(t *testing.T) {
	for enforcement, want := range map[string][2]int{"Deny": {1, 0}, "Warn": {0, 1}, "DryRun": {0, 0}} {
		source := engine.Source{Name: "it", Rego: "package it\nwarn contains \"a\" if data.config.none.x"}
		source.Enforcement = "Deny"
		switch enforcement {
		case "Warn":
			source.Enforcement = "Warn"
		case "DryRun":
			source.Enforcement = "DryRun"
		}
		outcome, err := newEngine(t, source).Evaluate(t.Context(), dataInput(t, "a:1"))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{len(outcome.Denials), len(outcome.Warnings)}; got != want {
			t.Errorf("%s: %d denials and warnings, want %d", enforcement, got, want)
		}
	}
}

func TestDataProblemsOfTheCompiler(t *testing.T) {
	tests := map[string]struct {
		rego, problem, warning string
	}{
		"objects read data": {
			"objects contains {\"apiVersion\": \"v1\", \"kind\": \"LimitRange\", \"metadata\": {\"name\": x}} if x := f(1)\nf(y) := data.config.a.b if y",
			"it:3:9: objects reads data.config.a.b through data.it.f; objects and requires cannot read data.config and data.objects, " +
				"since a change of them would render nothing again: use spec.parameters", "",
		},
		"a variable name": {
			`deny contains "a" if data.config[input.object.metadata.name].x`, "",
			"it:2:22: data.config[…] with a variable key reads all of data.config, and is undefined for a name that does not exist, " +
				"so that a deny would refuse nothing: write the name as a constant",
		},
		"other data": {
			`deny contains "a" if data.configs.x`,
			"it:2:22: data.configs.x does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib", "",
		},
		"all data": {
			`deny contains "a" if data[input.object.kind].x`,
			"it:2:22: data does not exist; policies see no data but their own rules, data.config, data.objects and data.sluice.lib", "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, reports, err := engine.Compile([]engine.Source{{Name: "it", Rego: "package it\n" + tc.rego}}, engine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			first := func(problems []engine.Problem) string {
				if len(problems) == 0 {
					return ""
				}
				return problems[0].Error()
			}
			if got := first(reports[0].Problems); got != tc.problem {
				t.Errorf("problem %q, want %q", got, tc.problem)
			}
			if got := first(reports[0].Warnings); got != tc.warning {
				t.Errorf("warning %q, want %q", got, tc.warning)
			}
		})
	}
}

// The result of a policy stays in the cache when other data changes, and only then.
func TestDataChangeKeepsTheCacheOfOtherPolicies(t *testing.T) {
	e := newEngine(t,
		engine.Source{Name: "none", Rego: "package none\ndeny contains \"a\" if input.object.spec.nodeName == \"m\""},
		engine.Source{Name: "one", Rego: "package one\ndeny contains \"a\" if not data.config.one.on"},
		engine.Source{Name: "two", Rego: "package two\ndeny contains \"a\" if not data.config.two.on"},
		engine.Source{Name: "own", Rego: "package own\ndeny contains \"a\" if data.objects.Service[input.review.namespace].bad"},
	)
	version := func(one, own, other string) *engine.Data {
		return engine.NewData(configs(t, map[string]map[string]any{"one": {"on": one}, "two": {"on": true}}), []engine.ObjectKind{{
			Kind: "Service", Scope: engine.ScopeNamespace, Groups: map[string]*engine.ObjectGroup{
				"thesis": objectGroup(t, map[string]map[string]any{"a": {"x": own}}),
				"other":  objectGroup(t, map[string]map[string]any{"a": {"x": other}}),
			},
		}})
	}
	evaluated := func(data *engine.Data) []string {
		e.UpdateData(data)
		outcome, err := e.Evaluate(t.Context(), dataInput(t, "a:1"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, evaluation := range outcome.Evaluations {
			if !evaluation.Cached {
				names = append(names, evaluation.Policy)
			}
		}
		return names
	}
	for _, step := range []struct {
		name string
		data *engine.Data
		want []string
	}{
		{"the first version", version("a", "a", "a"), []string{"none", "one", "own", "two"}},
		{"an equal one", version("a", "a", "a"), nil},
		{"a ConfigMap changed", version("b", "a", "a"), []string{"one"}},
		{"an object of the namespace changed", version("b", "b", "a"), []string{"own"}},
		{"an object of another namespace changed", version("b", "b", "b"), nil},
		{"back again", version("a", "a", "a"), nil},
	} {
		if diff := cmp.Diff(step.want, evaluated(step.data)); diff != "" {
			t.Errorf("%s: evaluated (-want +got)\n%s", step.name, diff)
		}
	}
}

// A set with other data that no policy reads is the same set; one with data that a policy reads is another.
func TestDigestCoversTheDataThatPoliciesRead(t *testing.T) {
	e := newEngine(t, engine.Source{Name: "one", Rego: "package one\ndeny contains \"a\" if not data.config.one.on"})
	set := func(one, two string) *engine.Set {
		e.UpdateData(engine.NewData(configs(t, map[string]map[string]any{"one": {"on": one}, "two": {"on": two}}), nil))
		current, err := e.Current()
		if err != nil {
			t.Fatal(err)
		}
		return current
	}
	first, same, other := set("a", "a"), set("a", "b"), set("b", "b")
	if first != same {
		t.Error("a ConfigMap that no policy reads makes another set")
	}
	if first.Digest() == other.Digest() || first.PoliciesDigest() != other.PoliciesDigest() {
		t.Error("the digest of the set must differ, that of the policies must not")
	}
	subject := dataInput(t, "a").Subject
	if first.DigestFor(subject, "thesis") == other.DigestFor(subject, "thesis") {
		t.Error("the digest for pods must differ")
	}
	subject.Group, subject.Kind = "batch", "Job"
	if first.DigestFor(subject, "thesis") != other.DigestFor(subject, "thesis") {
		t.Error("the digest for Jobs must not differ: the policy does not match them")
	}
}

// Equal data have equal digests and results, in whatever order the updates came.
func TestEqualDataGiveEqualResults(t *testing.T) {
	source := engine.Source{Name: "it", Rego: `package it
deny contains sprintf("%v", [data.config])
deny contains sprintf("%v", [data.objects])`}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[a-c]{0,2}`)
		values := rapid.MapOfN(text, rapid.MapOfN(text, text, 0, 3), 0, 3)
		steps := rapid.SliceOfN(values, 1, 4).Draw(rt, "versions")
		build := func(version map[string]map[string]string) *engine.Data {
			config, groups := map[string]map[string]any{}, map[string]*engine.ObjectGroup{}
			for name, keys := range version {
				config[name] = map[string]any{}
				objects := map[string]map[string]any{}
				for key, value := range keys {
					config[name][key] = value
					objects[key] = map[string]any{"value": value}
				}
				groups[name] = objectGroup(t, objects)
			}
			return engine.NewData(configs(t, config), []engine.ObjectKind{{Kind: "Service", Scope: engine.ScopeAllNamespaces, Groups: groups}})
		}
		result := func(versions ...map[string]map[string]string) (string, []string) {
			e := newEngine(t, source)
			for _, version := range versions {
				e.UpdateData(build(version))
				if _, err := e.Evaluate(t.Context(), dataInput(t, "a")); err != nil {
					rt.Fatal(err)
				}
			}
			set, err := e.Current()
			if err != nil {
				rt.Fatal(err)
			}
			outcome, err := set.Evaluate(t.Context(), dataInput(t, "a"))
			if err != nil {
				rt.Fatal(err)
			}
			var messages []string
			for _, denial := range outcome.Denials {
				messages = append(messages, denial.Message)
			}
			return set.Digest(), messages
		}
		digest, messages := result(steps...)
		last := steps[len(steps)-1]
		directDigest, direct := result(last)
		if digest != directDigest {
			rt.Errorf("the digest depends on earlier versions")
		}
		if diff := cmp.Diff(direct, messages); diff != "" {
			rt.Error(diff)
		}
	})
}
