// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/convert"
)

// refusedEntry converts one text, and returns all gaps.
func refusedEntry(t *testing.T, convertFrom func(context.Context, []convert.File, convert.Checker) (*convert.Result, error), text string) string {
	t.Helper()
	result, err := convertFrom(t.Context(), []convert.File{{Name: "a.yaml", Text: []byte(text)}}, inProcess)
	if err != nil {
		t.Fatal(err)
	}
	var gaps []string
	for _, entry := range result.Entries {
		for _, gap := range entry.Gaps {
			gaps = append(gaps, entry.Object+": "+gap.Part+": "+gap.Reason)
		}
	}
	if len(gaps) == 0 || result.Incomplete() == 0 {
		t.Errorf("nothing was refused: %+v", result.Entries)
	}
	return strings.Join(gaps, "\n")
}

// template returns a ConstraintTemplate of the kind T with this Rego, and a constraint with this match.
func template(rego, libraries, match string) string {
	indented := strings.ReplaceAll(rego, "\n", "\n        ")
	return fmt.Sprintf(`apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: t}
spec:
  crd: {spec: {names: {kind: T}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        %s
%s---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: T
metadata: {name: c}
spec: {match: %s}
`, indented, libraries, match)
}

const (
	plainRule = "package t\nviolation[{\"msg\": \"no\"}] { input.review.object.spec.hostPID }"
	pods      = `{kinds: [{apiGroups: [""], kinds: [Pod]}]}`
)

// What has no counterpart in Gatekeeper's objects is reported by name, and never dropped.
func TestGatekeeperRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"inventory":            {template("package t\nviolation[{\"msg\": \"no\"}] { data.inventory.namespace[_][_].Pod[_].metadata.name == input.review.object.metadata.name }", "", pods), "data.inventory has no counterpart"},
		"external data":        {template("package t\nviolation[{\"msg\": \"no\"}] { external_data({\"provider\": \"p\", \"keys\": []}).errors[_] }", "", pods), "external_data has no counterpart"},
		"only Deployments":     {template(plainRule, "", `{kinds: [{apiGroups: [apps], kinds: [Deployment]}]}`), "it names neither"},
		"labels of namespaces": {template(plainRule, "", `{namespaceSelector: {matchLabels: {stage: prod}}}`), "do not see the labels of namespaces"},
		"expansions":           {template(plainRule, "", `{source: Generated}`), "Generated has no counterpart"},
		"an unknown field":     {template(plainRule, "", `{cluster: a}`), "spec.match.cluster: the field is unknown"},
		"an action":            {strings.Replace(template(plainRule, "", pods), "spec: {match", "spec: {enforcementAction: shout, match", 1), `the action "shout" is unknown`},
		"no template":          {"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: T\nmetadata: {name: c}\n", "no ConstraintTemplate of its kind"},
		"CEL": {"apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: t}\nspec:\n  crd: {spec: {names: {kind: T}}}\n  targets:\n" +
			"    - target: admission.k8s.gatekeeper.sh\n      code: [{engine: K8sNativeValidation, source: {validations: []}}]\n", "K8sNativeValidation is CEL"},
		"no Rego":                {template("package t\nviolation[{", "", pods), "rego_parse_error"},
		"network":                {template("package t\nviolation[{\"msg\": \"no\"}] { http.send({\"method\": \"get\", \"url\": \"http://a\"}) }", "", pods), "http.send"},
		"cyclic rules":           {template("package t\nviolation[{\"msg\": \"no\"}] { a }\na { b }\nb { a }", "", pods), "recursive"},
		"cyclic libs":            {template("package t\nimport data.lib.a\nviolation[{\"msg\": \"no\"}] { a.x }", "      libs:\n        - |\n          package lib.a\n          import data.lib.b\n          x { b.y }\n        - |\n          package lib.b\n          import data.lib.a\n          y { a.x }\n", pods), "recursive"},
		"a missing lib":          {template("package t\nimport data.lib.a\nviolation[{\"msg\": \"no\"}] { a.x }", "      libs:\n        - |\n          package lib.b\n          y { true }\n", pods), "data.lib.a is not a rule"},
		"a lib elsewhere":        {template(plainRule, "      libs:\n        - |\n          package other\n          y { true }\n", pods), "is not below lib"},
		"a hidden import":        {template("package t\nimport data.lib.a\nviolation[{\"msg\": \"no\"}] { f({\"x\": true}) }\nf(a) { a.x }", "      libs:\n        - |\n          package lib.a\n          x { true }\n", pods), "import data.lib.a unused"},
		"the configuration":      {"apiVersion: config.gatekeeper.sh/v1alpha1\nkind: Config\nmetadata: {name: config}\n", "Gatekeeper's own configuration"},
		"a mutator from outside": {"apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: m}\nspec:\n  applyTo: [{groups: [\"\"], versions: [v1], kinds: [Pod]}]\n  location: spec.hostPID\n  parameters: {assign: {fromMetadata: {field: name}}}\n", "only an assigned value"},
		"a list without names":   {"apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: m}\nspec:\n  applyTo: [{groups: [\"\"], versions: [v1], kinds: [Pod]}]\n  location: \"spec.tolerations[key: a].value\"\n  parameters: {assign: {value: b}}\n", "lists are addressed by name"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedEntry(t, convert.Gatekeeper, tc.text); !strings.Contains(got, tc.want) {
				t.Errorf("the gaps are\n%s\nwant %q", got, tc.want)
			}
		})
	}
}

// clusterPolicy returns a ClusterPolicy with a rule for pods.
func clusterPolicy(rule string) string {
	return "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  validationFailureAction: Enforce\n  rules:\n    - name: r\n" +
		"      match: {any: [{resources: {kinds: [Pod]}}]}\n      " + strings.ReplaceAll(rule, "\n", "\n      ") + "\n"
}

func TestKyvernoRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"generate":            {clusterPolicy("generate: {kind: ConfigMap}"), "generate has no counterpart"},
		"images":              {clusterPolicy("verifyImages: [{imageReferences: [\"*\"]}]"), "verifyImages has no counterpart"},
		"calls":               {clusterPolicy("context: [{name: c, apiCall: {urlPath: /api}}]\nvalidate: {pattern: {spec: {hostPID: false}}}"), "policies call no API"},
		"CEL":                 {clusterPolicy("validate: {cel: {expressions: []}}"), "validate.cel: it has no counterpart"},
		"pod security":        {clusterPolicy("validate: {podSecurity: {level: baseline}}"), "validate.podSecurity"},
		"keys with wildcards": {clusterPolicy("validate: {pattern: {metadata: {labels: {\"a/*\": \"?*\"}}}}"), "wildcards in keys"},
		"variables":           {clusterPolicy("validate: {pattern: {metadata: {name: \"{{ x }}\"}}}"), "variables in patterns"},
		"an expression":       {clusterPolicy("validate: {deny: {conditions: {all: [{key: \"{{ request.object.spec | keys(@) }}\", operator: Equals, value: a}]}}}"), "fields of request.object have one"},
		"an operator":         {clusterPolicy("validate: {deny: {conditions: {all: [{key: \"{{ request.operation }}\", operator: Resembles, value: a}]}}}"), `the operator "Resembles" is unknown`},
		"JSON patches":        {clusterPolicy("mutate: {patchesJson6902: \"[]\"}"), "mutate.patchesJson6902"},
		"directives":          {clusterPolicy("mutate: {patchStrategicMerge: {spec: {$patch: delete}}}"), "directives have no counterpart"},
		"roles":               {"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n    - name: r\n      match: {any: [{resources: {kinds: [Pod]}, clusterRoles: [a]}]}\n      validate: {pattern: {spec: {}}}\n", "do not see the roles"},
		"only Services":       {"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n    - name: r\n      match: {any: [{resources: {kinds: [Service]}}]}\n      validate: {pattern: {spec: {}}}\n", "it names neither"},
		"a CEL policy":        {"apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\n", "its rules are CEL"},
		"an exception":        {"apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: p}\n", "the kind has no counterpart"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedEntry(t, convert.Kyverno, tc.text); !strings.Contains(got, tc.want) {
				t.Errorf("the gaps are\n%s\nwant %q", got, tc.want)
			}
		})
	}
}

func TestRunAIRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"defaults that are no map": {"defaults: 3\nrules: []\n", "defaults: it is 3, and must be a map of fields"},
		"rules that are no map":    {"defaults: {image: a}\nrules: [a]\n", "rules: it is [a], and must be a map of fields"},
		"a rule that is no map":    {"rules: {compute: {gpuDevicesRequest: {max: 2}}, image: 3}\n", "rules.image: it is 3, and must be a map of fields"},
		"a list of variables":      {"defaults: {environmentVariables: [{name: A, value: b}]}\n", "defaults.environmentVariables: it is [map[name:A value:b]], and must be a map"},
		"assets that are no list":  {"imposedAssets: {a: b}\n", "imposedAssets: it is map[a:b], and must be a list"},
		"a field of the old form":  {"apiVersion: run.ai/v2alpha1\nkind: TrainingPolicy\nmetadata: {name: a}\nspec: {image: 3}\n", "image: it is 3, and must be a map of fields"},
		"a rule of variables":      {"rules: {environmentVariables: {required: true}}\n", "rules.environmentVariables.required: it has no counterpart"},
		"instances that are none":  {"defaults: {environmentVariables: {instances: {A: b}}}\n", "defaults.environmentVariables.instances: it is map[A:b], and must be a list"},
		"items that are no map":    {"apiVersion: run.ai/v2alpha1\nkind: TrainingPolicy\nmetadata: {name: a}\nspec: {environment: {items: [A]}}\n", "environment.items: it is [A], and must be a map"},
		"a section that is no map": {"defaults: {compute: 3}\nrules: {compute: {gpuDevicesRequest: {max: 2}}}\n", "defaults.compute: it is 3, and must be a map"},
		"an asset":                 {"imposedAssets: [f12c965b-44e9-4ff6-8b43-01d8f9e630cc]\n", "known to Run:ai only"},
		"a priority class":         {"rules: {priorityClass: {canEdit: false}}\n", "priorityClass: it has no counterpart"},
		"attributes":               {"rules: {storage: {pvc: {attributes: {size: {max: 1}}}}}\n", "storage.pvc.attributes"},
		"a default of GPUs":        {"defaults: {compute: {gpuDevicesRequest: 1}}\n", "sets no default of the number of GPUs"},
		"no number":                {"rules: {compute: {cpuCoreRequest: {max: many}}}\n", "many is no number"},
		"an impossible step":       {"rules: {compute: {gpuDevicesRequest: {step: 0}}}\n", "is no step"},
		"a rule":                   {"rules: {compute: {cpuCoreRequest: {defaultFrom: {field: compute.cpuCoreLimit, factor: 0.5}}}}\n", "defaultFrom"},
		"additions of labels":      {"rules: {labels: {instances: {canAdd: false}}}\n", "labels.canAdd"},
		"a department's id":        {"meta: {scope: department, departmentId: \"4\"}\npolicy: {rules: {image: {required: true}}}\n", "it has the id and no name"},
		"no policy":                {"a: b\n", "no defaults, rules or imposedAssets"},
		"items' rules":             {"apiVersion: run.ai/v2alpha1\nkind: TrainingPolicy\nmetadata: {name: a}\nspec: {volumes: {itemRules: {path: {required: true}}}}\n", "volumes.itemRules"},
		"ports":                    {"apiVersion: run.ai/v2alpha1\nkind: TrainingPolicy\nmetadata: {name: a}\nspec: {ports: {rules: {canAdd: true}}}\n", "ports: it has no counterpart"},
		"a workload":               {"apiVersion: run.ai/v2alpha1\nkind: TrainingWorkload\nmetadata: {name: a}\n", "the kind is no policy"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedEntry(t, convert.RunAI, tc.text); !strings.Contains(got, tc.want) {
				t.Errorf("the gaps are\n%s\nwant %q", got, tc.want)
			}
		})
	}
}

// A file whose name has the words of two types always applies to all of them.
func TestRunAITypeIsDeterministic(t *testing.T) {
	for range 30 {
		files := []convert.File{{Name: "training-and-inference.yaml", Text: []byte("rules: {image: {required: true}}\n")}}
		result, err := convert.RunAI(t.Context(), files, inProcess)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Entries) != 1 || len(result.Entries[0].Notes) != 1 {
			t.Fatalf("entries %+v", result.Entries)
		}
	}
}

// Hostile files are reported, and need neither much time nor memory.
func TestHostileFiles(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	deep := clusterPolicy("validate:\n  pattern: " + strings.Repeat("{a: ", 100) + "b" + strings.Repeat("}", 100))
	var indented strings.Builder
	indented.WriteString("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n")
	for i := range 120 {
		indented.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, tc := range map[string]struct{ text, want string }{
		"aliases":         {bomb.String(), "alias"},
		"a large file":    {strings.Repeat("# x\n", 2<<20), "bytes"},
		"a deep pattern":  {deep, "levels"},
		"deep by columns": {indented.String(), "levels"},
		"brackets":        {strings.Repeat("[", 100000), "brackets"},
		"no YAML":         {"a: b: c: d", "cannot be read"},
		"1 MiB of Rego":   {template(plainRule+strings.Repeat("\n# padding padding padding", 40000), "", pods), "bytes"},
		"deep Rego":       {template("package t\nviolation[{\"msg\": \"no\"}] { x := "+strings.Repeat("[", 190)+strings.Repeat("]", 190)+" }", "", pods), ""},
		"many parts":      {clusterPolicy("validate: {pattern: {spec: {a: \"" + strings.Repeat("1!-2&", 30) + "3\"}}}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for source, convertFrom := range map[string]func(context.Context, []convert.File, convert.Checker) (*convert.Result, error){
				"gatekeeper": convert.Gatekeeper, "kyverno": convert.Kyverno, "runai": convert.RunAI,
			} {
				result, err := convertFrom(t.Context(), []convert.File{{Name: "a.yaml", Text: []byte(tc.text)}}, inProcess)
				if err != nil {
					t.Fatal(source, err)
				}
				var gaps strings.Builder
				for _, entry := range result.Entries {
					for _, gap := range entry.Gaps {
						gaps.WriteString(gap.Reason + "\n")
					}
				}
				if source == "gatekeeper" && !strings.Contains(gaps.String(), tc.want) && !strings.HasPrefix(tc.text, "apiVersion: kyverno") {
					t.Errorf("the gaps are %s, want %q", gaps.String(), tc.want)
				}
			}
		})
	}
}

// FuzzConvert converts a text with all converters: none panics, and each policy passes the check.
func FuzzConvert(f *testing.F) {
	for _, directory := range []string{"testdata/gatekeeper", "testdata/kyverno", "testdata/runai"} {
		for i, file := range filesOf(f, directory) {
			if i%4 == 0 && !strings.HasSuffix(file.Name, ".case.yaml") {
				f.Add(string(file.Text))
			}
		}
	}
	f.Add(template("package t\nviolation[{\"msg\": m}] { m := \"a\" }", "      libs: [\"package lib.a\\nx = 1\"]\n", `{labelSelector: {matchExpressions: [{key: "a\"b", operator: NotIn, values: ["\n"]}]}}`))
	f.Add(clusterPolicy("mutate: {patchStrategicMerge: {spec: {containers: [{(name): \"*\", +(a\\\"b): [1, {c: null}]}]}}}"))
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 8<<10 {
			t.Skip()
		}
		for _, convertFrom := range []func(context.Context, []convert.File, convert.Checker) (*convert.Result, error){convert.Gatekeeper, convert.Kyverno, convert.RunAI} {
			result, err := convertFrom(t.Context(), []convert.File{{Name: "a.yaml", Text: []byte(text)}}, inProcess)
			if err != nil {
				t.Fatal(err)
			}
			all := make([]v1alpha1.Policy, len(result.Policies))
			for i := range result.Policies {
				all[i] = result.Policies[i].Policy
			}
			for _, p := range result.Policies {
				if problems := checkOf(&p.Policy, all); len(problems) > 0 {
					t.Errorf("%s: %v", p.Policy.Name, problems)
				}
			}
		}
	})
}
