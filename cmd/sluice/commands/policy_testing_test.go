// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

const imagePolicies = "../../../policies/workbench/testdata/images"

func TestPolicyTest(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.xml")
	output, err := runCommand(t, "policy", "test", imagePolicies, "--coverage", "--junit", report)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, output, "policy/test.txt")
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), `<testsuite name="no-latest.case.yaml" tests="3" failures="0"`) {
		t.Errorf("the report is %s, %v", text, err)
	}
}

// The command shows each difference, and its exit status fails a pipeline.
func TestPolicyTestFails(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(imagePolicies)); err != nil {
		t.Fatal(err)
	}
	const wrong = `name: a version is refused
object:
  apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec: {containers: [{name: main, image: "other.example.org/a:1"}]}
expect: {denied: ["no registry of ours"]}
---
name: the team is set
object:
  apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec: {containers: [{name: main, image: "registry.example.org/a:1"}]}
expect: {object: {metadata: {labels: {team: physics}}}}
`
	if err := os.WriteFile(filepath.Join(folder, "wrong.case.yaml"), []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := runCommand(t, "policy", "test", folder)
	if err == nil || err.Error() != "tests that failed: 2" {
		t.Errorf("the error is %v", err)
	}
	golden.Assert(t, output, "policy/test-failed.txt")
}

func TestPolicyEval(t *testing.T) {
	for name, image := range map[string]string{"eval.txt": "registry.example.org/a:1", "eval-denied.txt": "registry.example.org/a:latest"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pod.yaml")
			pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: \"" + image + "\"}]}\n"
			if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := []string{"policy", "eval", "-f", file, "--policies", imagePolicies, "--now", "2026-01-05T12:00:00Z"}
			output, err := runCommand(t, arguments...)
			if denied := strings.Contains(image, "latest"); (err != nil) != denied {
				t.Fatal(err)
			}
			golden.Assert(t, output, "policy/"+name)
		})
	}
}

func TestPolicyEvalErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Secret\napiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"no project":        {[]string{"-f", file}, "--project is required without --policies"},
		"an unknown one":    {[]string{"-f", file, "--policies", imagePolicies, "--project", "x"}, `project "x" does not exist in the folder, which has no projects`},
		"a wrong time":      {[]string{"-f", file, "--policies", imagePolicies, "--now", "noon"}, `--now: "noon" is not a time`},
		"no pod":            {[]string{"-f", file, "--policies", imagePolicies}, "no policy is evaluated for Secret"},
		"no directory":      {[]string{"-f", file, "--policies", file}, "is not a directory"},
		"no file of a name": {[]string{"-f", file + "x", "--policies", imagePolicies}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runCommand(t, append([]string{"policy", "eval"}, tc.arguments...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}

// kubectl can apply what build prints: it is the same set of policies, complete.
func TestPolicyBuild(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(imagePolicies)); err != nil {
		t.Fatal(err)
	}
	const library = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: z-registries}\nspec:\n  type: Library\n" +
		"  rego: |\n    package lib.registries\n\n    own := \"registry.example.org\"\n"
	if err := os.WriteFile(filepath.Join(folder, "library.yaml"), []byte(library), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := runCommand(t, "policy", "build", folder)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, output, "policy/build.txt")
	built := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(built, []byte(output), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := runCommand(t, "policy", "check", built); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	if _, err := runCommand(t, "policy", "build", filepath.Join(folder, "none")); err == nil {
		t.Error("a directory that does not exist was built")
	}
}

// Every command that reads a directory knows the libraries in it: those of the sample, and as the export writes them.
func TestPolicyCommandsWithLibraries(t *testing.T) {
	sample, err := os.ReadFile("../../../manifests/samples/policies/registries.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	const test = "package own_registries_test\n\nimport data.lib.registries\n\ntest_own if registries.allowed(\"registry.example.org/a\")\n"
	for name, text := range map[string]string{"registries.yaml": string(sample), "registries_test.rego": test} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built, err := runCommand(t, "policy", "build", folder)
	if err != nil || !strings.Contains(built, "type: Library") {
		t.Fatalf("%v\n%s", err, built)
	}
	if err := os.WriteFile(filepath.Join(folder, "registries.yaml"), []byte(built), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"test", folder},
		{"lint", folder, "--strict"},
		{"check", folder},
		{"bench", folder, "--count", "1"},
		{"replay", os.DevNull, "--policies", folder},
	} {
		if output, err := runCommand(t, append([]string{"policy"}, args...)...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, output)
		}
	}
}

// Commands for policies fail where there are none, instead of printing nothing.
func TestPolicyCommandsWithoutPolicies(t *testing.T) {
	folder := t.TempDir()
	const text = "name: a\nobject: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}]}}\nexpect: {allowed: true}\n"
	if err := os.WriteFile(filepath.Join(folder, "a.case.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "build", "bench"} {
		if _, err := runCommand(t, "policy", command, folder); err == nil || !strings.Contains(err.Error(), "has no policies, only cases") {
			t.Errorf("%s: the error is %v", command, err)
		}
	}
	if output, err := runCommand(t, "policy", "test", folder); err != nil {
		t.Errorf("cases of the built-in policies: %v\n%s", err, output)
	}
}

// The results are shown although the report cannot be written.
func TestPolicyTestReportThatCannotBeWritten(t *testing.T) {
	output, err := runCommand(t, "policy", "test", imagePolicies, "--junit", filepath.Join(t.TempDir(), "none", "report.xml"))
	if err == nil || !strings.Contains(err.Error(), "report.xml") || !strings.Contains(output, " passed, ") {
		t.Errorf("the error is %v, and the output\n%s", err, output)
	}
}

// A file that is not a schema of Sluice, such as an input of opa eval, is not overwritten.
func TestPolicySchemaOverwritesNothing(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "input.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "policy", "schema", "--output-dir", folder); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("the error is %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "{}" {
		t.Errorf("the file is %s, %v", text, err)
	}
	if output, err := runCommand(t, "policy", "schema", "--output-dir", folder, "--force"); err != nil || !strings.Contains(output, "3 files written") {
		t.Errorf("%v\n%s", err, output)
	}
}

// An object is bounded, and read strictly.
func TestPolicyEvalHostileObjects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	for text, want := range map[string]string{
		"":                                   "a.yaml: it has no object",
		"kind: Pod\nkind: Pod\n":             "a.yaml: yaml: unmarshal errors:\n  line 2: key \"kind\" already set in map",
		"kind: Pod\n---\nkind: Pod\n":        "a.yaml: it has more than one object",
		"a: " + strings.Repeat("a", 5<<20):   "a.yaml has more than 4194304 bytes",
		"- a\n":                              "a.yaml: cannot unmarshal array",
		"apiVersion: v1\nkind: Service\n":    "no policy is evaluated for Service",
		"apiVersion: v1\nkind: Pod\nspec: 1": "decode pod",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runCommand(t, "policy", "eval", "-f", file, "--policies", imagePolicies); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: the error is %v, want %q", text, err, want)
		}
	}
}
