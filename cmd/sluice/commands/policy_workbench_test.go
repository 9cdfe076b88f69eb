// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/spf13/cobra"
	"gotest.tools/v3/golden"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/workbench"
)

func TestPolicyNew(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	created, newErr := runCommand(t, "policy", "new", "at-most-two-gpus", "--output-dir", "policies")
	tested, testErr := runCommand(t, "policy", "test", "policies", "--coverage")
	linted, lintErr := runCommand(t, "policy", "lint", "policies", "--strict")
	before, readErr := os.ReadFile("policies/at-most-two-gpus.rego")
	_, again := runCommand(t, "policy", "new", "at-most-two-gpus", "--kind", "append", "--output-dir", "policies")
	after, readAgainErr := os.ReadFile("policies/at-most-two-gpus.rego")
	t.Chdir(here)
	if err := errors.Join(newErr, testErr, lintErr, readErr, readAgainErr); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, created+tested+linted, "policy/new.txt")
	if again == nil || !strings.Contains(again.Error(), " exist; nothing was written") || !bytes.Equal(before, after) {
		t.Errorf("a second policy of the name: %v", again)
	}
	if _, err := runCommand(t, "policy", "new", "Wrong", "--output-dir", t.TempDir()); err == nil || !strings.Contains(err.Error(), `name: "Wrong"`) {
		t.Errorf("a wrong name: %v", err)
	}
	if _, err := runCommand(t, "policy", "new", "a", "--kind", "refuse", "--output-dir", t.TempDir()); err == nil {
		t.Error("an unknown kind was accepted")
	}
}

// A policy that the webhook would refuse fails, before any test runs.
func TestPolicyTestOfRefusedPolicy(t *testing.T) {
	folder := t.TempDir()
	writeFiles(t, folder, map[string]string{
		"a.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec:\n  match: {kinds: [Deployment.apps]}\n  rego: |\n    package a\n    deny contains \"x\" if input.workload.gpu > 1\n",
	})
	output, err := runCommand(t, "policy", "test", folder)
	if err == nil || err.Error() != "tests that failed: 1" {
		t.Errorf("the error is %v", err)
	}
	golden.Assert(t, output, "policy/test-refused.txt")
}

func TestPolicyEvalOfTemplate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deployment.yaml")
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  template:\n    spec: {containers: [{name: main, image: \"registry.example.org/a:1\"}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := runCommand(t, "policy", "eval", "-f", file, "--policies", imagePolicies, "--now", "2026-01-05T12:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, output, "policy/eval-template.txt")
}

func TestPolicySchema(t *testing.T) {
	folder := t.TempDir()
	output, err := runCommand(t, "policy", "schema", "--output-dir", folder)
	if err != nil || strings.Count(output, "Wrote ") != 3 {
		t.Fatalf("%s, %v", output, err)
	}
	for _, arguments := range [][]string{{}, {"policies"}} {
		if _, err := runCommand(t, append([]string{"policy", "schema"}, arguments...)...); err == nil {
			t.Errorf("%v was accepted", arguments)
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "policy.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema spec.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	validator := validate.NewSchemaValidator(&schema, nil, "", strfmt.Default)
	policy, err := os.ReadFile(filepath.Join(imagePolicies, "no-latest.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{
		string(policy): true,
		"apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\n":                             true,
		"apiVersion: sluice.dev/v1alpha1\nkind: Policies\nmetadata: {name: a}\n":                           false,
		"apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec: {enforcement: Block}\n": false,
		"apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec: {matches: {}}\n":        false,
		"apiVersion: sluice.dev/v1alpha1\nkind: Policy\n":                                                  false,
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if got := len(validator.Validate(value).Errors) == 0; got != valid {
			t.Errorf("valid %v, want %v:\n%s", got, valid, text)
		}
	}
}

// OPA's own compiler finds a misspelled field with the schema, named on the command line or in an annotation.
func TestPolicySchemaOfInput(t *testing.T) {
	text, err := runCommand(t, "policy", "schema", "input")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]ast.Ref{"--schema FILE": ast.SchemaRootRef, "an annotation": ast.MustParseRef("schema.input")} {
		t.Run(name, func(t *testing.T) {
			schemas := ast.NewSchemaSet()
			schemas.Put(ref, schema)
			annotated := len(ref) > 1
			compile := func(field string) error {
				module, err := ast.ParseModuleWithOpts("p.rego", "# METADATA\n# scope: package\n# schemas:\n#   - input: schema.input\npackage p\n\ndeny contains \"x\" if input."+field+"\n",
					ast.ParserOptions{RegoVersion: ast.RegoV1, ProcessAnnotation: annotated})
				if err != nil {
					t.Fatal(err)
				}
				compiler := ast.NewCompiler().WithSchemas(schemas).WithUseTypeCheckAnnotations(annotated)
				if compiler.Compile(map[string]*ast.Module{"p": module}); compiler.Failed() {
					return compiler.Errors
				}
				return nil
			}
			for _, field := range []string{"workload.devices > 1", `object.spec.nodeName == "a"`, "parameters.any", `object.metadata.labels.team == "a"`} {
				if err := compile(field); err != nil {
					t.Errorf("%s: %v", field, err)
				}
			}
			for _, field := range []string{"workload.gpu > 1", `object.spec.nodename == "a"`, "objekt", "project.nme"} {
				if err := compile(field); err == nil || !strings.Contains(err.Error(), "undefined ref") {
					t.Errorf("%s: %v", field, err)
				}
			}
		})
	}
}

func TestPolicyBench(t *testing.T) {
	baseline := filepath.Join(t.TempDir(), "baseline.json")
	output, err := runCommand(t, "policy", "bench", imagePolicies, "--count", "2", "--save", baseline)
	if err != nil || !strings.Contains(output, "no-latest") || strings.Contains(output, "BEFORE") {
		t.Fatalf("%s, %v", output, err)
	}
	output, err = runCommand(t, "policy", "bench", imagePolicies, "--count", "2", "--baseline", baseline, "--threshold", "50")
	if err != nil || !strings.Contains(output, "ALLOCATIONS BEFORE") {
		t.Errorf("%s, %v", output, err)
	}
	output, err = runCommand(t, "policy", "bench", imagePolicies, "--count", "2", "--baseline", baseline, "--threshold", "0.01", "-o", "json")
	if err == nil || err.Error() != "policies that exceed the baseline by more than 0.01: no-latest" {
		t.Errorf("the error is %v", err)
	}
	var measurements []workbench.Measurement
	if err := json.Unmarshal([]byte(output), &measurements); err != nil || len(measurements) != 1 || measurements[0].Before == nil {
		t.Errorf("%s, %v", output, err)
	}
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: a}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := runCommand(t, "policy", "bench", imagePolicies, "--count", "1", "-f", pod, "-o", "json"); err != nil || !strings.Contains(output, `"objects": 1`) {
		t.Errorf("%s, %v", output, err)
	}
	for _, arguments := range [][]string{{"--count", "0"}, {"--threshold", "0"}, {"--baseline", pod}, {"-f", pod + "x"}} {
		if _, err := runCommand(t, append([]string{"policy", "bench", imagePolicies}, arguments...)...); err == nil {
			t.Errorf("%v was accepted", arguments)
		}
	}
}

func TestFormatNanoseconds(t *testing.T) {
	for nanoseconds, want := range map[int64]string{0: "0s", 999: "999ns", 12345: "12.3µs", 1234567: "1.23ms", 1999999999: "2s"} {
		if got := formatNanoseconds(nanoseconds); got != want {
			t.Errorf("%d: %s, want %s", nanoseconds, got, want)
		}
	}
}

// newPolicyCluster returns a cluster with a project, its objects and policies.
func newPolicyCluster(t *testing.T) client.Client {
	t.Helper()
	policy := func(name, rego string) *v1alpha1.Policy {
		return &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDeny, Rego: rego}}
	}
	mirror := policy("core.gpu", "package core.gpu\n")
	mirror.Labels = map[string]string{v1alpha1.LabelBuiltIn: "true"}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}, Spec: v1alpha1.ProjectSpec{Department: "students"}}
	project.Status.Phase = v1alpha1.ProjectActive
	container := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "thesis"}}
	deployment.Spec.Template.Spec = container("other.example.org/web:1")
	controlled := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "thesis", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "u", Controller: new(bool),
	}}}}
	*controlled.OwnerReferences[0].Controller = true
	controlled.Spec.Template.Spec = container("other.example.org/web:1")
	return newFakeClient(t, interceptor.Funcs{},
		policy("no-latest", "package no_latest\n\ndeny contains \"no old image\" if input.object.spec.containers[0].image == \"old:1\"\n"),
		policy("kept", "package kept\n\ndefaults := {\"metadata\": {\"labels\": {\"kept\": \"yes\"}}}\n"), mirror,
		project, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "latest", Namespace: "thesis"}, Spec: container("registry.example.org/a:latest")},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: "thesis"}, Spec: container("old:1")},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "labeled", Namespace: "thesis", Labels: map[string]string{"team": "physics"}}, Spec: container("registry.example.org/a:1")},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: "default"}, Spec: container("registry.example.org/a:latest")},
		deployment, controlled,
	)
}

// runDiff returns the output of sluice policy diff on a cluster.
func runDiff(t *testing.T, c client.Client, folder *workbench.Folder, objects bool) (*policyDiff, string) {
	t.Helper()
	var output bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetErr(&output)
	result, err := diffPolicies(cmd, c, folder, objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := printPolicyDiff(&output, result, objects); err != nil {
		t.Fatal(err)
	}
	return result, output.String()
}

func TestPolicyDiff(t *testing.T) {
	c := newPolicyCluster(t)
	folder, err := loadFolder(imagePolicies)
	if err != nil {
		t.Fatal(err)
	}
	result, output := runDiff(t, c, folder, true)
	golden.Assert(t, output, "policy/diff.txt")
	if result.Evaluated != 4 || result.Affected != 3 {
		t.Errorf("%d objects evaluated, %d affected", result.Evaluated, result.Affected)
	}
	golden.Assert(t, jsonText(t, result), "policy/diff.json")
	if result, _ := runDiff(t, c, folder, false); result.Evaluated != 0 {
		t.Errorf("%d objects evaluated", result.Evaluated)
	}
}

// What export writes has no difference from the cluster, and its files are only overwritten on demand.
func TestPolicyExport(t *testing.T) {
	c := newPolicyCluster(t)
	var list v1alpha1.PolicyList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	files, err := exportedFiles(list.Items, nil)
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	folder := t.TempDir()
	var output bytes.Buffer
	if err := writeExport(&output, folder, files, false); err != nil {
		t.Fatal(err)
	}
	if err := writeExport(&output, folder, files, false); err != nil || !strings.HasSuffix(output.String(), "0 files written, 4 unchanged\n") {
		t.Errorf("a second export: %v\n%s", err, output.String())
	}
	loaded, err := loadFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "policy", "lint", folder); err != nil {
		t.Errorf("lint: %v", err)
	}
	result, text := runDiff(t, c, loaded, true)
	if result.Affected != 0 || strings.Contains(text, "@@") || strings.Contains(text, "Changed") {
		t.Errorf("the difference is\n%s", text)
	}
	writeFiles(t, folder, map[string]string{"kept.rego": "package mine\n"})
	if err := writeExport(&output, folder, files, false); err == nil || !strings.Contains(err.Error(), "kept.rego exists with another content") {
		t.Errorf("another content: %v", err)
	}
	if err := writeExport(&output, folder, files, true); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "kept.rego")); err != nil || string(text) != files["kept.rego"] {
		t.Errorf("%s, %v", text, err)
	}
	for _, name := range []string{"core.gpu", "missing"} {
		if _, err := exportedFiles(list.Items, []string{name}); err == nil {
			t.Errorf("%s was exported", name)
		}
	}
	if files, err := exportedFiles(list.Items, []string{"kept"}); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
