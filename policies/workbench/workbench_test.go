// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sluice.dev/policies/workbench"
)

const (
	policyYAML = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec:\n  rego: |\n    package a\n" +
		"    deny contains \"no\" if input.object.metadata.labels.x == input.parameters.x\n" +
		"    overrides := {\"metadata\": {\"labels\": {\"tier\": \"1\"}}}\n"
	podCase = "name: a pod\nobject: {apiVersion: v1, kind: Pod, metadata: {name: p, labels: {x: \"1\"}}, spec: {containers: [{name: main, image: i}]}}\n"
)

const (
	deploymentCase = "name: a deployment\nobject: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {containers: [{name: main, image: i}]}}}}\n"
	jobCase        = "name: a job\nobject: {apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}\n"
)

func load(t *testing.T, files map[string]string) (*workbench.Folder, error) {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return workbench.Load(folder)
}

// runCase returns the text of all failures of the only case.
func runCase(t *testing.T, files map[string]string) string {
	t.Helper()
	folder, err := load(t, files)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := folder.RunCases(t.Context())
	if err != nil || len(outcomes) != 1 {
		t.Fatalf("%d outcomes, %v", len(outcomes), err)
	}
	var text strings.Builder
	for _, failure := range outcomes[0].Failures {
		text.WriteString(failure.Message + "\n" + failure.Diff)
	}
	return text.String()
}

func TestCases(t *testing.T) {
	tenants := "apiVersion: sluice.dev/v1alpha1\nkind: Project\nmetadata: {name: thesis}\nspec: {department: students, nodePools: [{name: mig, gpu: {guaranteed: 1, limit: 1}}]}\n" +
		"---\napiVersion: sluice.dev/v1alpha1\nkind: Department\nmetadata: {name: students}\n" +
		"---\napiVersion: sluice.dev/v1alpha1\nkind: NodePool\nmetadata: {name: mig}\nspec: {sharing: MIG}\n"
	share := "name: a share\nproject: thesis\nobject: {apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {gpu-fraction: \"0.5\"}}, spec: {containers: [{name: main, image: i}]}}\n"
	for name, tc := range map[string]struct {
		test string
		want []string // parts of the failures; none if the case passes
	}{
		"allowed":                         {podCase + "expect: {allowed: true}\n", nil},
		"denied by parameters":            {podCase + "parameters: {a: {x: \"1\"}}\nexpect: {denied: [\"no (policy a)\"]}\n", nil},
		"denied, but allowed":             {podCase + "parameters: {a: {x: \"1\"}}\nexpect: {allowed: true}\n", []string{"should be allowed", "+ no (policy a)"}},
		"allowed, but denied":             {podCase + "expect: {denied: [\"never\"]}\n", []string{"the denials differ", "- never"}},
		"another denial":                  {podCase + "parameters: {a: {x: \"1\"}}\nexpect: {denied: [\"yes\"]}\n", []string{"- yes", "+ no (policy a)"}},
		"the object":                      {podCase + "expect: {object: {metadata: {labels: {tier: \"1\", z: null}}}}\n", nil},
		"another object":                  {podCase + "expect: {object: {metadata: {labels: {tier: \"2\", x: null}}}}\n", []string{"the resulting object differs", "-    tier: \"2\"", "+    tier: \"1\"", "+    x: \"1\""}},
		"a container that is missing":     {podCase + "expect: {object: {spec: {containers: [{name: main}, {name: more}]}}}\n", []string{"-  - name: more"}},
		"an absent map":                   {podCase + "expect: {object: {metadata: {annotations: {x: null}}}}\n", nil},
		"an empty list":                   {podCase + "expect: {object: {spec: {containers: []}}}\n", []string{"-  containers: []"}},
		"a name twice":                    {strings.Replace(podCase, "image: i", "image: i, ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]", 1) + "expect: {object: {spec: {containers: [{name: main, ports: [{name: a, containerPort: 1}]}]}}}\n", []string{"containerPort: 2"}},
		"denied, warnings only":           {podCase + "parameters: {a: {x: \"1\"}}\nexpect: {warnings: []}\n", []string{"should be allowed"}},
		"no warnings":                     {podCase + "expect: {warnings: []}\n", nil},
		"a warning of Sluice":             {strings.Replace(podCase, "x: \"1\"", "tier: \"2\"", 1) + "expect: {warnings: []}\n", []string{"the warnings differ", `+ policy a replaced metadata.labels[tier]`}},
		"a project's node pool":           {share + "expect: {object: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-3g.20gb: \"1\"}}}]}}}\n", nil},
		"an unknown project":              {strings.Replace(podCase, "name: a pod", "name: a pod\nproject: other", 1) + "expect: {allowed: true}\n", []string{`project "other" does not exist in the folder, which has thesis`}},
		"parameters of an unknown policy": {podCase + "parameters: {b: {}}\nexpect: {allowed: true}\n", []string{`parameters: there is no policy "b"`}},
		"parameters of a built-in policy": {strings.Replace(podCase, "image: i", "image: i, envFrom: [{configMapRef: {name: c}}], resources: {limits: {nvidia.com/gpu: 1}}", 1) + "parameters: {core.devices: {refuseEnvFrom: false}}\nexpect: {allowed: true}\n", nil},
		"none of a built-in policy":       {strings.Replace(podCase, "image: i", "image: i, envFrom: [{configMapRef: {name: c}}], resources: {limits: {nvidia.com/gpu: 1}}", 1) + "expect: {denied: [envFrom]}\n", nil},
		"wrong ones of a built-in policy": {podCase + "parameters: {core.devices: {refuseEnvFrom: 1}}\nexpect: {allowed: true}\n", []string{"parameters of core.devices: spec.parameters.refuseEnvFrom"}},
		"a template":                      {deploymentCase + "expect: {object: {spec: {template: {metadata: {labels: {tier: \"1\", sluice.dev/project: sample}}}}}}\n", nil},
		"another template":                {deploymentCase + "expect: {object: {spec: {template: {metadata: {labels: {tier: \"2\"}}}}}}\n", []string{"the resulting object differs", "-        tier: \"2\""}},
		"a Job":                           {jobCase + "expect: {object: {spec: {podFailurePolicy: {rules: [{action: Ignore}]}, template: {metadata: {labels: {tier: \"1\"}}}}}}\n", []string{"podFailurePolicy"}},
		"an object without pods":          {"name: a\nobject: {apiVersion: v1, kind: Secret}\nexpect: {allowed: true}\n", []string{"no policy is evaluated for Secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCase(t, map[string]string{"a.yaml": policyYAML, "a.case.yaml": tc.test, "tenants.yaml": tenants})
			if len(tc.want) == 0 && got != "" {
				t.Errorf("failed:\n%s", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("the failures have no %q:\n%s", part, got)
				}
			}
		})
	}
}

func TestLoadNamesEachFault(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":             {map[string]string{"readme.md": "x"}, "no policies found"},
		"an unknown field":    {map[string]string{"a.yaml": policyYAML + "  matches: {}\n"}, `a.yaml: a Policy: unknown field "matches"`},
		"no Rego":             {map[string]string{"b/a.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\n"}, "b/a.yaml: policy a: spec.rego: it is required, here or in the file a.rego"},
		"a name twice":        {map[string]string{"a.yaml": policyYAML, "b.yaml": policyYAML}, "policy a: another policy of the folder has this name"},
		"no name":             {map[string]string{"a.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nspec: {rego: \"package a\"}\n"}, `a.yaml: metadata.name: ""`},
		"a name of a path":    {map[string]string{"a.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: ../a}\nspec: {rego: \"package a\"}\n"}, `a.yaml: metadata.name: "../a"`},
		"a list of policies":  {map[string]string{"b.yaml": policyYAML, "a.yaml": "- apiVersion: sluice.dev/v1alpha1\n  kind: Policy\n"}, "a.yaml: it is no object: want objects, separated by ---"},
		"another version":     {map[string]string{"a.yaml": strings.Replace(policyYAML, "v1alpha1", "v1", 1)}, `a.yaml: apiVersion: "sluice.dev/v1" is no version of Sluice: want sluice.dev/v1alpha1`},
		"another spelling":    {map[string]string{"a.yaml": strings.Replace(policyYAML, "kind: Policy", "kind: policy", 1)}, `a.yaml: kind: "policy" is no kind of sluice.dev/v1alpha1: want Policy, Project, Department, NodePool, AdmissionParameters`},
		"a misplaced case":    {map[string]string{"a.yaml": policyYAML, "a.case.yml": podCase + "expect: {allowed: true}\n"}, "a.case.yml: it is a case, which only a file with the ending .case.yaml may have: rename the file"},
		"an unknown key":      {map[string]string{"a.case.yaml": podCase + "expects: {allowed: true}\n"}, `a.case.yaml: a case: unknown field "expects"; a case has name, object, project, namespace, user, groups, now, parameters, expect, and expect has allowed, denied, warnings, object`},
		"nothing expected":    {map[string]string{"a.case.yaml": podCase}, `a.case.yaml: case "a pod": expect: one of allowed, denied, warnings and object is required`},
		"both":                {map[string]string{"a.case.yaml": podCase + "expect: {allowed: true, denied: [a]}\n"}, "a denied object is not allowed"},
		"an empty text":       {map[string]string{"a.case.yaml": podCase + "expect: {denied: [\"\"]}\n"}, "expect.denied: a text is empty"},
		"a file as a folder":  {map[string]string{"a.yaml": policyYAML, "a.rego": "package a\n", "b.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: b}\n"}, "b.yaml: policy b: spec.rego: it is required, here or in the file b.rego"},
		"a wrong time":        {map[string]string{"a.case.yaml": podCase + "now: tomorrow\nexpect: {allowed: true}\n"}, `now: "tomorrow" is not a time such as`},
		"a case twice":        {map[string]string{"a.case.yaml": podCase + "expect: {allowed: true}\n---\n" + podCase + "expect: {allowed: true}\n"}, "another case of this file has the same name"},
		"no object":           {map[string]string{"a.case.yaml": "name: a\nexpect: {allowed: true}\n"}, "object: it is required"},
		"YAML that is broken": {map[string]string{"a.yaml": "a: [\n"}, "a.yaml: yaml: line 1: did not find"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.files)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("loaded with %v, want %q", err, tc.want)
			}
		})
	}
}

// Files that programs print, such as lint -o json, and objects of other kinds are no faults.
func TestLoadIgnoresOtherFiles(t *testing.T) {
	_, err := load(t, map[string]string{
		"a.yaml": policyYAML, "b.json": "[{\"code\": \"SL001\"}]", "c.yaml": "text", "d.json": "3", "e.yaml": "kind: 3\nitems: 4\n",
		"f.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "g.yaml": "apiVersion: config.sluice.dev/v1alpha1\nkind: WebhookConfig\n",
		"h.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: GPUNode\nmetadata: {name: a}\n",
	})
	if err != nil {
		t.Error(err)
	}
}

func TestUnitTestsAndCoverage(t *testing.T) {
	folder, err := workbench.Load(os.DirFS("testdata/images"))
	if err != nil {
		t.Fatal(err)
	}
	outcomes, coverage, err := folder.RunUnitTests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 2 || slices.ContainsFunc(outcomes, func(o workbench.Outcome) bool { return !o.Passed() }) {
		t.Errorf("outcomes %+v", outcomes)
	}
	if len(coverage) != 1 || coverage[0].Percent < 30 || coverage[0].Percent > 90 || !slices.Contains(coverage[0].Missing, 11) {
		t.Errorf("coverage %+v", coverage)
	}
	folder.UnitTests["broken_test.rego"] = "package broken_test\n\ntest_fails if 1 == 2\n\ntodo_test_later if 1 == 2\n"
	if outcomes, _, err = folder.RunUnitTests(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 4 || outcomes[0].Passed() || !strings.Contains(outcomes[0].Failures[0].Message, "line 3") || !outcomes[1].Skipped {
		t.Errorf("outcomes %+v", outcomes)
	}
	folder.UnitTests["broken_test.rego"] = "package broken_test\n\ntest_fails if {\n"
	if _, _, err = folder.RunUnitTests(t.Context()); err == nil || !strings.Contains(err.Error(), "broken_test.rego:4") {
		t.Errorf("a syntax error: %v", err)
	}
}

func TestExplainNamesUndefinedExpressions(t *testing.T) {
	folder, err := workbench.Load(os.DirFS("testdata/images"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := workbench.NewCluster(folder.Sources(nil))
	if err != nil {
		t.Fatal(err)
	}
	tenant, namespace, err := folder.Tenant("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	decision, err := cluster.Decide(t.Context(), workbench.Request{Object: folder.Cases[1].Object, Tenant: tenant, Namespace: namespace, User: "anna", Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	traces, err := cluster.Explain(t.Context(), &decision.Results[0], "no-latest")
	if err != nil || len(traces) != 3 {
		t.Fatalf("%+v, %v", traces, err)
	}
	deny := traces[0]
	if deny.Rule != "deny" || deny.Line != 3 || deny.Fired || deny.UndefinedLine != 8 || deny.Undefined != `endswith(container.image, ":latest")` {
		t.Errorf("deny: %+v", deny)
	}
	if defaults := traces[2]; defaults.Rule != "defaults" || !defaults.Fired || defaults.Undefined != "" {
		t.Errorf("defaults: %+v", defaults)
	}
	if _, err := cluster.Explain(t.Context(), &decision.Results[0], "missing"); err == nil {
		t.Error("a missing policy was explained")
	}
}

func TestJUnit(t *testing.T) {
	var output strings.Builder
	err := workbench.WriteJUnit(&output, []workbench.Outcome{
		{File: "a.case.yaml", Name: "good"},
		{File: "a.case.yaml", Name: "bad <&>", Failures: []workbench.Failure{{Message: "the denials differ", Diff: "- a\n"}}},
		{File: "b_test.rego", Name: "later", Skipped: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`<testsuite name="a.case.yaml" tests="2" failures="1" skipped="0">`, `name="bad &lt;&amp;&gt;"`,
		`<failure message="the denials differ">`, `<testsuite name="b_test.rego" tests="1" failures="0" skipped="1">`, "<skipped></skipped>",
	} {
		if !strings.Contains(output.String(), part) {
			t.Errorf("no %s in\n%s", part, output.String())
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(policyYAML, podCase+"expect: {allowed: true}\n")
	f.Add("kind: List\napiVersion: v1\nitems: [{}]\n", "name: a\nobject: []\n")
	f.Fuzz(func(t *testing.T, objects, cases string) {
		// Any file is a folder or an error; a folder's cases have outcomes or an error.
		folder, err := load(t, map[string]string{"a.yaml": objects, "a.case.yaml": cases})
		if err == nil {
			_, _ = folder.RunCases(t.Context())
		}
	})
}
