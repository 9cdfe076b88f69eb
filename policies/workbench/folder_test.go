// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// A place in the Rego is the same line of the file, wherever the Rego is.
func TestRegoPlaces(t *testing.T) {
	const head = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		files map[string]string
		line  int // of the Rego
		want  string
	}{
		"beside":            {map[string]string{"a.yaml": head, "a.rego": "package a\n\nx := 1\n"}, 3, "a.rego:3:2"},
		"a block":           {map[string]string{"a.yaml": head + "spec:\n  rego: |\n    package a\n\n    x := 1\n"}, 3, "a.yaml:8:6"},
		"an indented block": {map[string]string{"a.yaml": head + "spec:\n  rego: |4\n      package a\n\n      x := 1\n"}, 3, "a.yaml:8:8"},
		"without an end":    {map[string]string{"a.yaml": head + "spec:\n  rego: |-\n   package a\n\n   x := 1"}, 3, "a.yaml:8:5"},
		"a text":            {map[string]string{"a.yaml": head + "spec:\n  rego: \"package a\\n\\nx := 1\\n\"\n"}, 3, "a.yaml:5:9"},
		"a folded text":     {map[string]string{"a.yaml": head + "spec:\n  rego: >\n    package a\n\n\n    x := 1\n"}, 3, "a.yaml:5:9"},
		"JSON":              {map[string]string{"a.json": `{"apiVersion": "sluice.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "a"}, "spec": {"rego": "package a\n\nx := 1"}}`}, 3, "a.json:1:101"},
		"the second object": {map[string]string{"a.yaml": "# a comment\n---\n" + strings.Replace(head, "name: a", "name: b", 1) + "spec: {rego: package b}\n---\n" + head + "spec:\n  rego: |\n    package a\n\n    x := 1\n"}, 3, "a.yaml:15:6"},
		"a list":            {map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: sluice.dev/v1alpha1\n  kind: Policy\n  metadata: {name: a}\n  spec:\n    rego: |\n      package a\n\n      x := 1\n"}, 3, "a.yaml:11:8"},
		"a line too far":    {map[string]string{"a.yaml": head + "spec:\n  rego: |\n    package a\n"}, 9, "a.yaml:5:9"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, err := load(t, tc.files)
			if err != nil {
				t.Fatal(err)
			}
			if got := folder.RegoPlace("a", tc.line, 2).String(); got != tc.want {
				t.Errorf("place %s, want %s", got, tc.want)
			}
		})
	}
}

func TestLoadReadsTheNamedFilesOnly(t *testing.T) {
	folder, err := workbench.Load(fstest.MapFS{
		"a.yaml": {Data: []byte(policyYAML)}, "broken.yaml": {Data: []byte("a: [")},
	}, "a.yaml")
	if err != nil || len(folder.Policies) != 1 {
		t.Errorf("%v, %v", folder, err)
	}
}

// Each of two policies with one package has its own unit tests.
func TestUnitTestsOfPoliciesWithOnePackage(t *testing.T) {
	policy := func(name string) string {
		return "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: " + name + "}\n"
	}
	folder, err := load(t, map[string]string{
		"a.yaml": policy("a"), "a.rego": "package p\n\nlimit := 1\n",
		"b.yaml": policy("b"), "b.rego": "package p\n\nlimit := 2\n",
		"c.yaml": policy("c"), "c.rego": "package q\n\nlimit := 3\n",
		"a_test.rego":   "package p_test\n\nimport data.p\nimport data.q\n\ntest_one if {\n\tp.limit == 1\n\tq.limit == 3\n}\n",
		"b_test.rego":   "package p_test\n\nimport data.p\n\ntest_two if p.limit == 2\n",
		"q_a_test.rego": "package q_test\n\nimport data.q\n\ntest_three if q.limit == 3\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, coverage, err := folder.RunUnitTests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 3 || slices.ContainsFunc(outcomes, func(o workbench.Outcome) bool { return !o.Passed() }) {
		t.Errorf("outcomes %+v", outcomes)
	}
	for _, c := range coverage {
		if c.Percent != 100 {
			t.Errorf("coverage %+v", c)
		}
	}
}

func TestCheckPolicies(t *testing.T) {
	folder, err := load(t, map[string]string{"a.yaml": strings.Replace(policyYAML, "input.parameters.x", "input.workload.gpu", 1)})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := folder.CheckPolicies(t.Context(), noLimits)
	if err != nil || len(outcomes) != 1 || !strings.HasPrefix(outcomes[0].Failures[0].Message, "a.yaml:7:61: input.workload.gpu does not exist; did you mean gpus?") {
		t.Errorf("%+v, %v", outcomes, err)
	}
}

// compileSchema returns a validator of a JSON schema.
func compileSchema(t *testing.T, schema map[string]any) *validate.SchemaValidator {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var parsed spec.Schema
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(&parsed, nil, "", strfmt.Default)
}

func TestCaseSchema(t *testing.T) {
	validator := compileSchema(t, workbench.CaseSchema())
	valid := func(text string) bool {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		return len(validator.Validate(value).Errors) == 0
	}
	text, err := os.ReadFile("testdata/images/no-latest.case.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(text), "---\n")
	if len(cases) != 3 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, one := range append(cases, podCase+"expect: {allowed: false, denied: [a]}\n") {
		if !valid(one) {
			t.Errorf("the schema refuses\n%s", one)
		}
	}
	for name, hostile := range map[string]string{
		"no name":            strings.Replace(podCase, "name: a pod\n", "", 1) + "expect: {allowed: true}\n",
		"an empty name":      strings.Replace(podCase, "name: a pod", `name: ""`, 1) + "expect: {allowed: true}\n",
		"no object":          "name: a\nexpect: {allowed: true}\n",
		"no kind":            "name: a\nobject: {}\nexpect: {allowed: true}\n",
		"no expectation":     podCase,
		"an empty one":       podCase + "expect: {}\n",
		"an unknown key":     podCase + "expects: {}\nexpect: {allowed: true}\n",
		"another in it":      podCase + "expect: {allowedd: true}\n",
		"an empty text":      podCase + "expect: {denied: [\"\"]}\n",
		"a text for a list":  podCase + "expect: {denied: no}\n",
		"denied and allowed": podCase + "expect: {denied: [a], allowed: true}\n",
		"denied, an object":  podCase + "expect: {denied: [a], object: {}}\n",
		"a list of objects":  "name: a\nobject: []\nexpect: {allowed: true}\n",
		"parameters":         podCase + "parameters: {a: 1}\nexpect: {allowed: true}\n",
	} {
		if valid(hostile) {
			t.Errorf("%s: the schema allows\n%s", name, hostile)
		}
	}
	properties := func(schema map[string]any) []string {
		return slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))
	}
	fields := func(of reflect.Type) (names []string) {
		for i := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	schema := workbench.CaseSchema()
	expect := schema["properties"].(map[string]any)["expect"].(map[string]any)
	if diff := cmp.Diff(fields(reflect.TypeFor[workbench.Case]()), properties(schema)); diff != "" {
		t.Errorf("the fields of a case (-Go +schema)\n%s", diff)
	}
	if diff := cmp.Diff(fields(reflect.TypeFor[workbench.Expectation]()), properties(expect)); diff != "" {
		t.Errorf("the fields of an expectation (-Go +schema)\n%s", diff)
	}
}

func TestScaffoldNames(t *testing.T) {
	for name, want := range map[string]string{
		"Upper": "name: \"Upper\"", "": "name: \"\"", "a.b": "name: \"a.b\"", "9a": "begin with a letter", "in": "neither a keyword", "sluice": "neither a keyword",
		"input": "neither a keyword", strings.Repeat("a", 64): "name: ", "../a": "name: ",
	} {
		if _, err := workbench.Scaffold(name, "deny"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if _, err := workbench.Scaffold("a", "denial"); err == nil || !strings.Contains(err.Error(), "deny, default, override, append") {
		t.Errorf("an unknown kind: %v", err)
	}
}

func noLimits(_ context.Context, source engine.Source, environment check.Environment) (check.Result, error) {
	return check.Check(source, environment.Policies...), nil
}

// A slower version has a ratio above 1, and an equal one has the same allocations.
func TestBench(t *testing.T) {
	text := func(rego string) map[string]string {
		return map[string]string{
			"a.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec: {match: {projects: [elsewhere]}}\n", "a.rego": "package a\n\n" + rego,
			"job.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: job}\nspec:\n  match: {kinds: [Job.batch]}\n  rego: |\n    package job\n    warn contains \"x\" if input.object.spec.completions > 1\n",
		}
	}
	fast, err := load(t, text("deny contains \"x\" if input.workload.devices > 8\n"))
	if err != nil {
		t.Fatal(err)
	}
	examples, err := check.Examples()
	if err != nil {
		t.Fatal(err)
	}
	measured, err := fast.Bench(t.Context(), examples, 3, nil)
	if err != nil || len(measured) != 2 || measured[0].Objects != len(examples) || measured[1].Objects != 1 || measured[0].Nanoseconds == 0 || measured[0].Allocations == 0 {
		t.Fatalf("%+v, %v", measured, err)
	}
	var saved strings.Builder
	if err := fast.NewBaseline(measured).Write(&saved); err != nil {
		t.Fatal(err)
	}
	baseline, err := workbench.ReadBaseline(strings.NewReader(saved.String()))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := load(t, text("deny contains \"x\" if count([a | some a in numbers.range(1, 2000); a > input.workload.devices]) < 8\n"))
	if err != nil {
		t.Fatal(err)
	}
	measured, err = slow.Bench(t.Context(), examples, 5, baseline)
	if err != nil || measured[0].Before == nil || measured[0].Ratio() < 3 || measured[1].Before == nil {
		t.Errorf("%+v, %v", measured, err)
	}
	if job := measured[1]; float64(job.Allocations) > 1.2*float64(job.Before.Allocations) {
		t.Errorf("an equal policy has %d allocations, and %d before", job.Allocations, job.Before.Allocations)
	}
	for _, text := range []string{"", "{}", "[]", `{"policies": 1}`, `{"other": []}`} {
		if _, err := workbench.ReadBaseline(strings.NewReader(text)); err == nil {
			t.Errorf("the baseline %q was accepted", text)
		}
	}
}

// What export writes is what the cluster has: the folder loads, and applying it changes nothing.
func TestExportedPoliciesAreUnchanged(t *testing.T) {
	var policies []v1alpha1.Policy
	for _, text := range []string{
		policyYAML,
		"metadata: {name: b.case, labels: {team: a}, annotations: {note: x, kubectl.kubernetes.io/last-applied-configuration: \"{}\"}}\nspec: {enforcement: Warn, parameters: {z: 1, a: [2]}, rego: \"package b\\r\\n\\n\\n\\tx := 1\"}\n",
	} {
		var policy v1alpha1.Policy
		if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
			t.Fatal(err)
		}
		policy.UID, policy.ResourceVersion, policy.Generation, policy.CreationTimestamp = "u", "7", 3, metav1.Unix(1, 0)
		policy.Status.Violations = 4
		policies = append(policies, policy)
	}
	policies[0].Spec.Enforcement = v1alpha1.EnforcementDeny
	files := make(map[string]string)
	for i := range policies {
		exported, err := workbench.Export(&policies[i])
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(files, exported)
	}
	if diff := cmp.Diff([]string{"a.rego", "a.yaml", "b.case.rego", "b.case.yml"}, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	if want := "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata:\n  annotations:\n    note: x\n  labels:\n    team: a\n  name: b.case\nspec:\n  enforcement: Warn\n  parameters:\n    a:\n    - 2\n    z: 1\n"; files["b.case.yml"] != want {
		t.Errorf("exported\n%s", files["b.case.yml"])
	}
	folder, err := load(t, files)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := folder.CompareSets(policies)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if change.Change != workbench.Unchanged || change.Diff != "" {
			t.Errorf("%+v", change)
		}
	}
	if len(changes) != 2 {
		t.Errorf("%d changes", len(changes))
	}
}

// Any file of a policy has places within it, and a block that is replaced is the only change.
func FuzzRegoPlace(f *testing.F) {
	f.Add("apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec:\n  rego: |\n    package a\n\n    x := 1\n", 3, "package a\n\nx := 2\n")
	f.Add("apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: &n a}\nspec: &s\n  rego: |+2\n    package a\n\n\n---\n", 1, "a: b\n# c")
	f.Fuzz(func(t *testing.T, text string, line int, rego string) {
		folder, err := workbench.Load(fstest.MapFS{"a.yaml": {Data: []byte(text)}})
		if folder == nil || err != nil {
			return
		}
		lines := strings.Split(text, "\n")
		for i := range folder.Policies {
			policy := folder.Policies[i]
			place := folder.RegoPlace(policy.Name, line, 1)
			if place.Line < 0 || place.Line > len(lines) || place.Column < 0 {
				t.Errorf("%+v of %q", place, text)
			}
			if !folder.ReplaceRego(policy.Name, rego) {
				continue
			}
			again, err := workbench.Load(fstest.MapFS{"a.yaml": {Data: []byte(folder.Text("a.yaml"))}})
			if err != nil || len(again.Policies) != len(folder.Policies) {
				if strings.TrimSpace(rego) == "" {
					continue // a policy needs Rego
				}
				t.Fatalf("%q became %q: %v", text, folder.Text("a.yaml"), err)
			}
			for k := range again.Policies {
				if k != i && again.Policies[k].Spec.Rego != folder.Policies[k].Spec.Rego {
					t.Errorf("another policy changed: %q became %q", text, folder.Text("a.yaml"))
				}
			}
		}
	})
}
